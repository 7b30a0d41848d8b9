"""Commands for data sets and the ledger."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from labkit.cli.app import Commands, app, path_of

data_app = Commands(help="Data sets: those here, and the others. Example: labkit data list", no_args_is_help=True)
ledger_app = Commands(help="The ledger of measured rows. Example: labkit ledger export", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")


@data_app.command("list")
def _data_list():
    """List the data sets: what is here, and how to get the rest.

    Example: labkit data list
    """
    from labkit.data import status

    for row in status():
        where = f"{(row.disk_bytes or 0) / 1e6:,.0f} MB in {path_of(row.path)}"
        if not row.present:
            where = f"{f'damaged, {where}' if row.disk_bytes else 'not here'}; next: {row.how}"
        echo(f"{'ok' if row.present else '- '} {row.name:16} {where}")


@data_app.command("get")
def _data_get(
    name: str,
    source: Annotated[Path | None, Option("--from")] = None,
):
    """Fetch a data set into data/NAME, and check its hash.

    It is read from its archive.

    name    A set of `labkit data list`.
    source  The published archive, if you have it.

    Example: labkit data get cifar10
    """
    from labkit.data import fetch

    echo(f"{name} is in {path_of(fetch(name, source=source))}")


@ledger_app.command("export")
def _ledger_export(folder: Path | None = None):
    """Write every table as CSV and Parquet.

    Both can be rebuilt at any time.

    folder  Default: artifacts/export.

    Example: labkit ledger export --folder tables
    """
    from labkit.ledger import export

    for path in export(folder):
        echo(path_of(path))


@ledger_app.command("record")
def _ledger_record(
    hardware: Annotated[str | None, Argument()] = None,
    profile: str = "lab",
):
    """Keep the newest run of each lesson as recorded results.

    They go to artifacts/recorded/HARDWARE/LESSON.json, without samples. A run of a commit with changes is not taken,
    and a file that holds more than the new run stays.

    hardware  A name for people; the machine's own by default.
    profile   The profile whose runs are kept.

    Example: labkit ledger record "RTX 4090, Ryzen 7950X"
    """
    from labkit.ledger import record

    for path, left in record(hardware, profile=profile).items():
        echo(f"{path_of(path)}: left as it was, {left}" if left else path_of(path))


@ledger_app.command("claims")
def _ledger_claims(
    profile: str = "lab",
    seeds: str = "",
    out: Path | None = None,
    rules: bool = False,
):
    """Say over how many seeds and machines each claim holds.

    Run the lessons with several seeds first: labkit run --profile lab --seeds 3:8

    profile  The profile whose runs are counted.
    seeds    Of these alone: 3:8 for 3 to 7, on which no bound was set.
    out      Default: artifacts/claims.md.
    rules    Not your runs: each rule, its reason and its history.

    Example: labkit ledger claims --rules --out docs/claims.md
    """
    from labkit.files import artifacts, write_text
    from labkit.lesson.claims import as_markdown, as_page
    from labkit.runner.tasks import seeds_of

    path = out or artifacts() / "claims.md"
    write_text(path, as_page() if rules else as_markdown(profile, seeds and seeds_of(seeds)))
    echo(path_of(path))


@ledger_app.command("pack")
def _ledger_pack(file: Path):
    """Write the rows and the executed notebooks as one zip.

    Somebody else takes it with `labkit ledger merge`.

    file  The zip to write.

    Example: labkit ledger pack ada.zip
    """
    from labkit.ledger.merge import pack

    echo(path_of(pack(file)))


@ledger_app.command("merge")
def _ledger_merge(parcels: list[Path]):
    """Take rows, executed notebooks and scores of others.

    They come from other machines, seeds or students, each once, and are shown "as reported" by the parcel's name. A
    parcel that does not fit is refused whole. A score counts on the leaderboard only where it was judged.

    parcels  Zips, or artifacts folders.

    Example: labkit ledger merge ada.zip bob.zip
    """
    from labkit.ledger.merge import merge

    for parcel in parcels:
        came = merge(parcel)
        runs = len({row.run_key for row in came if hasattr(row, "run_key")})
        echo(f"{path_of(parcel)}: {len(came):,} rows of {runs} runs" if came else f"{path_of(parcel)}: nothing new")
