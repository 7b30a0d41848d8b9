"""The command `labkit` itself, which the other files here add their commands to."""

import inspect
import re
from pathlib import Path

import typer

LINE = re.compile(r"^(\w+) {2,}(\S.*(?:\n {2,}\S.*)*)\n?", re.MULTILINE)


def described(docstring):
    """{name: what it is} of the lines `name  what it is` of a docstring."""
    return {name: " ".join(words.split()) for name, words in LINE.findall(inspect.cleandoc(docstring))}


class _Command(typer.core.TyperCommand):
    """A command whose docstring describes its parameters: `--help` shows them beside what it knows of types."""

    def __init__(self, *arguments, help, **settings):
        super().__init__(*arguments, help=LINE.sub("", help), **settings)
        for each in self.params:
            each.help = each.help or described(help)[each.name]


class Commands(typer.Typer):
    """A group of such commands."""

    def command(self, *arguments, **settings):
        return super().command(*arguments, cls=_Command, **settings)


app = Commands(
    help="The workbook's command line. `labkit COMMAND --help` shows an example of each.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def path_of(path):
    """A path relative to the current folder where that is shorter."""
    path = Path(path).resolve()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
