"""Commands for data sets and the ledger."""

from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.app import app, shown

data_app = typer.Typer(
    help="Data sets: what is here, and how to get the rest. Example: labkit data list", no_args_is_help=True
)
ledger_app = typer.Typer(help="The ledger of measured rows. Example: labkit ledger export", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")


@data_app.command("list")
def data_list():
    """List the data sets: what is here, and how to get the rest.

    Example: labkit data list
    """
    from labkit.data import status

    for row in status():
        where = f"{(row.disk_bytes or 0) / 1e6:,.0f} MB in {shown(row.path)}"
        if not row.present:
            where = f"{f'damaged, {where}' if row.disk_bytes else 'not here'}; next: {row.how}"
        typer.echo(f"{'ok' if row.present else '- '} {row.name:16} {where}")


@data_app.command("get")
def data_get(
    name: str,
    source: Annotated[Path | None, typer.Option("--from", help="The published archive, if you have it.")] = None,
):
    """Fetch a data set into data/NAME and check its hash; it is read from its archive.

    Example: labkit data get cifar10
    """
    from labkit.data import fetch

    typer.echo(f"{name} is in {shown(fetch(name, source=source))}")


@ledger_app.command("export")
def ledger_export(folder: Annotated[Path | None, typer.Option(help="Default: artifacts/export.")] = None):
    """Write every table as CSV and Parquet; both can be rebuilt at any time.

    Example: labkit ledger export --folder tables
    """
    from labkit.ledger import export

    for path in export(folder):
        typer.echo(shown(path))


@ledger_app.command("record")
def ledger_record(hardware: Annotated[str, typer.Argument(help='A name, such as "RTX 4090, Ryzen 7950X".')]):
    """Keep the newest run of each lesson as results of this named hardware, in artifacts/recorded/.

    Example: labkit ledger record "RTX 4090, Ryzen 7950X"
    """
    from labkit.ledger._recorded import record

    typer.echo(shown(record(hardware)))
