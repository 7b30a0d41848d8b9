"""The `labkit` command: parses, calls, prints.

One file for each group of commands (`app.FILES`), imported when one of them is asked for; nothing
heavy is imported at the top of a file.
"""

import os
import sys
from pathlib import Path

from typer import echo

from labkit.cli.app import app
from labkit.errors import LabError, disk_error, explained

# `labkit train` says by itself what is left of a training
STOPPED = "stopped. The same command may be given again; `run` goes on where it was cut short."


def main():
    """Run the command; whatever the reader can act on is said in words, without a traceback."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 (None: it was closed)
    try:
        try:
            app()
        finally:
            # what a full disk or a closed pipe does not take is found out here, not after the end
            sys.stdout.flush()
    except LabError as error:
        _end(error)
    except BrokenPipeError:  # the reader of the pipe has enough: nothing to say
        _end(None, code=1)
    except OSError as error:
        _end(explained(error))
    except KeyboardInterrupt:
        _end(STOPPED, code=130)
    except Exception as error:  # a library says in its own way that the disk refuses
        refused = disk_error(error)
        if refused is None:
            raise
        _end(explained(refused))
    except SystemExit as end:  # typer's own way of ending, after Ctrl-C too
        if end.code == 130:
            _end(STOPPED, code=130)
        raise


def _end(words, code=2):
    """Say the words on stderr and end the process; what stdout could not take is given up."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if words is not None:
        echo(f"labkit: {words}", err=True)
    sys.exit(code)
