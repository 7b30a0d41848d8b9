"""The command `labkit` itself, which the other files here add their commands to."""

from pathlib import Path

import typer

app = typer.Typer(
    help="The workbook's command line. `labkit COMMAND --help` shows an example of each.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def path_of(path):
    """A path relative to the current folder where that is shorter."""
    path = Path(path).resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
