"""Commands for data sets and the ledger."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer, echo

from labkit.cli.app import app, path_of

data_app = Typer(
    help="Data sets: those here, and the others. Example: labkit data list", no_args_is_help=True
)
ledger_app = Typer(
    help="The ledger of measured rows. Example: labkit ledger export", no_args_is_help=True
)
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")


@data_app.command("list")
def _data_list():
    """List the data sets: what is here, and how to get the rest.

    Example: labkit data list
    """
    from labkit.data import status

    for row in status():
        stored = f"{(row.disk_bytes or 0) / 1e6:,.0f} MB in {path_of(row.path)}"
        if row.present:
            echo(f"ok {row.name:16} {stored}")
        elif row.disk_bytes:
            echo(f"-  {row.name:16} damaged, {stored}; next: {row.how}")
        else:
            echo(f"-  {row.name:16} not here; next: {row.how}")


@data_app.command("get")
def _data_get(
    name: Annotated[str, Argument(help="A set of `labkit data list`.")],
    source: Annotated[
        Path | None, Option("--from", help="The published archive, if you have it.")
    ] = None,
):
    """Fetch a data set into data/NAME, and check its hash.

    It is read from its archive.

    Example: labkit data get cifar10
    """
    from labkit.data import fetch

    echo(f"{name} is in {path_of(fetch(name, source=source))}")


@ledger_app.command("export")
def _ledger_export(
    folder: Annotated[Path | None, Option(help="Default: artifacts/export.")] = None,
):
    """Write every table as CSV and Parquet.

    Both can be rebuilt at any time.

    Example: labkit ledger export --folder tables
    """
    from labkit.ledger import export

    for path in export(folder):
        echo(path_of(path))


@ledger_app.command("record")
def _ledger_record(
    hardware: Annotated[
        str | None, Argument(help="A name for people; the machine's own by default.")
    ] = None,
    profile: Annotated[str, Option(help="The profile whose runs are kept.")] = "lab",
):
    """Keep the newest run of each lesson as recorded results.

    They go to artifacts/recorded/HARDWARE/LESSON.json, without samples. A run of a commit with
    changes is not taken, and a file that holds more than the new run stays.

    Example: labkit ledger record "RTX 4090, Ryzen 7950X"
    """
    from labkit.ledger import record

    for path, reason in record(hardware, profile=profile).items():
        if reason:
            echo(f"{path_of(path)}: left as it was, {reason}")
        else:
            echo(path_of(path))


@ledger_app.command("claims")
def _ledger_claims(
    profile: Annotated[str, Option(help="The profile whose runs are counted.")] = "lab",
    seeds: Annotated[
        str, Option(help="Of these alone: 3:8 for 3 to 7, on which no bound was set.")
    ] = "",
    out: Annotated[Path | None, Option(help="Default: artifacts/claims.md.")] = None,
    rules: Annotated[
        bool, Option(help="Not your runs: each bound, its reason, and what recorded runs said.")
    ] = False,
):
    """Say over how many seeds and machines each claim holds.

    Run the lessons with several seeds first: labkit run --profile lab --seeds 3:8

    Example: labkit ledger claims --rules --out docs/claims.md
    """
    from labkit.files import artifacts, write_text
    from labkit.lesson.claims import as_markdown, as_page
    from labkit.runner.tasks import seeds_of

    path = out or artifacts() / "claims.md"
    if rules:
        page = as_page()
    else:
        page = as_markdown(profile, seeds and seeds_of(seeds))
    write_text(path, page)
    echo(path_of(path))


@ledger_app.command("published")
def _ledger_published(
    out: Annotated[Path | None, Option(help="Default: artifacts/published-experiments.md.")] = None,
):
    """Say where the course has each published experiment.

    Their tables, plans and headings, the section that serves each, and our newest recorded result.

    Example: labkit ledger published --out docs/published-experiments.md
    """
    from labkit.authoring.experiments_page import as_page
    from labkit.files import artifacts, write_text

    path = out or artifacts() / "published-experiments.md"
    write_text(path, as_page())
    echo(path_of(path))


@ledger_app.command("pack")
def _ledger_pack(file: Annotated[Path, Argument(help="The zip to write.")]):
    """Write the rows and the executed notebooks as one zip.

    Somebody else takes it with `labkit ledger merge`.

    Example: labkit ledger pack ada.zip
    """
    from labkit.ledger.merge import pack

    echo(path_of(pack(file)))


@ledger_app.command("merge")
def _ledger_merge(parcels: Annotated[list[Path], Argument(help="Zips, or artifacts folders.")]):
    """Take rows, executed notebooks and scores of others.

    They come from other machines, seeds or students, each once, and are shown "as reported" by the
    parcel's name. A parcel that does not fit is refused whole. A score counts on the leaderboard
    only where it was judged.

    Example: labkit ledger merge ada.zip bob.zip
    """
    from labkit.ledger.merge import merge

    for parcel in parcels:
        new_rows = merge(parcel)
        runs = len({row.run_key for row in new_rows if hasattr(row, "run_key")})
        news = f"{len(new_rows):,} rows of {runs} runs" if new_rows else "nothing new"
        echo(f"{path_of(parcel)}: {news}")
