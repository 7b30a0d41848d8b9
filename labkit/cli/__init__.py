"""The `labkit` command: parses what was typed, calls the package, prints the result.

Each group of commands has a file (`app.FILES`), which is imported when one of its commands is
typed. No file imports anything slow at its top.
"""

import os
import sys
from pathlib import Path

from typer import echo

from labkit.cli.app import app
from labkit.errors import LabError, as_lab_error, disk_error

# `labkit train` adds what remains of a training
STOPPED = "stopped. The same command may be given again; `run` goes on where it was cut short."


def main():
    """Run the typed command, and end the process with its exit code.

    An error that the user can do something about is printed without a traceback.
    """
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 (None: it was closed)
    try:
        try:
            app()
        finally:
            # a full disk or a closed pipe raises here, and not after the process has ended
            sys.stdout.flush()
    except LabError as error:
        _end(error)
    except BrokenPipeError:  # the program at the end of the pipe stopped reading: no error
        _end(None, code=1)
    except OSError as error:
        _end(as_lab_error(error))
    except KeyboardInterrupt:
        _end(STOPPED, code=130)
    except Exception as error:  # a library may wrap the error of a full disk in its own
        error_of_disk = disk_error(error)
        if error_of_disk is None:
            raise
        _end(as_lab_error(error_of_disk))
    except SystemExit as end:  # typer's own way of ending, after Ctrl-C too
        if end.code == 130:
            _end(STOPPED, code=130)
        raise


def _end(words, code=2):
    """Print an error on stderr and end the process with the exit code `code`.

    Text that stdout has not written yet is thrown away, because writing that text may be what
    failed.

    words  the error in words; None: nothing is printed
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if words is not None:
        echo(f"labkit: {words}", err=True)
    sys.exit(code)
