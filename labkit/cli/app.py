"""The command `labkit` itself, to which the other files of this folder add their commands."""

import importlib
from pathlib import Path

import typer
from typer.core import TyperGroup

from labkit.errors import LabError
from labkit.format import shown

# {file of this folder: its commands}, in the order of `labkit --help`
FILES = {
    "course": ("doctor", "run", "list", "progress", "new-lesson", "lab", "reset", "report"),
    "deploying": ("export", "build"),
    "quantizing": ("quantize",),
    "networks": ("view", "bench", "search"),
    "training": ("train",),
    "experimenting": ("experiment",),
    "gpu": ("gpu",),
    "serving": ("serve",),
    "shipping": ("submit", "leaderboard"),
    "teaching": ("grade", "release", "minutes"),
    "tables": ("data", "ledger"),
}


class OnDemand(TyperGroup):
    """The group of all commands.

    A file of `FILES` is imported only when one of its commands is typed.
    """

    def list_commands(self, context):
        """Return the names of all commands."""
        return [name for names in FILES.values() for name in names]

    def get_command(self, context, name):
        """Return the command of a name, or None where there is no such command."""
        if name not in self.commands:
            files = [file for file, names in FILES.items() if name in names]
            for file in (
                files or FILES
            ):  # all for an unknown name: typer then suggests a similar one
                importlib.import_module(f"labkit.cli.{file}")
            self.commands = typer.main.get_group(app).commands | self.commands
        return self.commands.get(name)


app = typer.Typer(
    cls=OnDemand,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _labkit():
    """The workbook's command line. `labkit COMMAND --help` shows an example of each."""


def path_of(path):
    """Return a path as messages show it: relative below the current folder, else absolute."""
    path = Path(path).resolve()
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd())
    return path


def size_of(path):
    """Return the size of a file in words, such as "1.3 MB"."""
    return shown(path.stat().st_size, "B")


def require_use(holds, needing):
    """Raise LabError where the user typed a switch that would do nothing.

    Such a switch has an effect only under a condition, for example only with "--data".

    holds    {condition in words: whether it holds}
    needing  {condition in words: {switch: whether the user typed it}}, for the switches that need
             this condition
    """
    for condition, switches in needing.items():
        idle = [switch for switch, is_given in switches.items() if is_given]
        if idle and not holds[condition]:
            raise LabError(
                f"{', '.join(idle)} would do nothing here.",
                expected=condition,
                fix=f"leave out {' and '.join(idle)}, or add {condition}",
            )
