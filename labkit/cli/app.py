"""The command `labkit` itself, which the other files here add their commands to."""

from pathlib import Path

import typer

from labkit.errors import LabError
from labkit.format import shown

app = typer.Typer(
    help="The workbook's command line. `labkit COMMAND --help` shows an example of each.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def path_of(path):
    """Return a path relative to the current folder where it lies below it, else the whole path."""
    path = Path(path).resolve()
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd())
    return path


def size_of(path):
    """Return the size of a file in words, such as "1.3 MB"."""
    return shown(path.stat().st_size, "B")


def require_use(holds, needing):
    """Refuse switches that would do nothing.

    holds    {condition in words: True if it holds}
    needing  {condition: {switch: True if it was given}} of the switches that do nothing without it
    """
    for condition, switches in needing.items():
        idle = [switch for switch, is_given in switches.items() if is_given]
        if idle and not holds[condition]:
            raise LabError(
                f"{', '.join(idle)} would do nothing here.",
                expected=condition,
                fix=f"leave out {' and '.join(idle)}, or add {condition}",
            )
