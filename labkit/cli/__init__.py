"""The `labkit` command: parses, calls, prints. One file for each group of commands; nothing heavy is imported here."""

import sys

import typer

from labkit.cli import course, deploying, networks, tables  # noqa: F401 (importing them adds their commands)
from labkit.cli.app import app
from labkit.errors import LabError


def main():
    """Run the command; a problem the reader can act on is printed without a traceback."""
    try:
        app()
    except LabError as error:
        typer.echo(f"labkit: {error}", err=True)
        sys.exit(2)
