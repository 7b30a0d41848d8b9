"""The `labkit` command: parses, calls, prints."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from labkit.errors import LabError

app = typer.Typer(
    help="The workbook's command line. `labkit COMMAND --help` shows an example of each.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(
    help="Data sets: what is here, and how to get the rest. Example: labkit data list", no_args_is_help=True
)
ledger_app = typer.Typer(help="The ledger of measured rows. Example: labkit ledger export", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")


@app.command()
def doctor():
    """Say what this machine can and cannot do, with the reason and the fix.

    Ends with 1 when something is missing that the course needs.

    Example: labkit doctor
    """
    from labkit.doctor import examine

    checks = examine()
    for check in checks:
        typer.echo(f"{'ok ' if check.ok else 'NO ' if check.needed else '-  '} {check.name:22} {check.detail}")
        if not check.ok and check.fix:
            typer.echo(f"{'':26} next: {check.fix}")
    missing = [check.name for check in checks if check.needed and not check.ok]
    typer.echo(f"\nMissing and needed: {', '.join(missing)}" if missing else "\nEverything the course needs is here.")
    raise typer.Exit(1 if missing else 0)


@app.command()
def run(
    notebooks: Annotated[
        list[str] | None, typer.Argument(help="Numbers, names or paths; all when none is given.")
    ] = None,
    profile: Annotated[str, typer.Option(help="quick, lab or paper.")] = "quick",
    parameter: Annotated[list[str] | None, typer.Option("--parameter", "-p", help="NAME=VALUE, repeatable.")] = None,
    fresh: Annotated[bool, typer.Option(help="Start over instead of resuming a batch that was cut short.")] = False,
    solutions: Annotated[bool, typer.Option(help="Fill the reference answers into the exercises.")] = False,
    strict: Annotated[bool, typer.Option(help="An unsolved or wrong exercise fails its notebook.")] = False,
):
    """Execute notebooks headlessly and write artifacts/report.html.

    Ends with 1 when a notebook failed. A batch that was cut short is taken up where it stopped.

    Example: labkit run 00 01 --profile lab -p seed=1
    """
    from labkit.report import write_report
    from labkit.runner import run_batch

    try:
        result = run_batch(
            notebooks or None,
            profile=profile,
            parameters=dict(split_parameter(text) for text in parameter or []),
            fresh=fresh,
            solutions=solutions,
            strict=strict,
        )
    except KeyboardInterrupt:
        typer.echo("\nStopped. The same command goes on where this one was cut short.")
        raise typer.Exit(130) from None
    typer.echo("Writing the report ...")
    typer.echo(f"Report: {shown(write_report())}")
    raise typer.Exit(0 if result.ok else 1)


def split_parameter(text):
    """("seed", 1) of "seed=1"; the value is read as JSON where it is JSON, else as text."""
    import json

    name, equals, value = text.partition("=")
    if not equals:
        raise LabError(f"The parameter {text!r} has no value.", expected="NAME=VALUE", found=text, fix="-p seed=1")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@app.command("list")
def list_notebooks():
    """List the lessons, what each asks, and its exercises.

    Example: labkit list
    """
    from labkit.syllabus import lessons

    for lesson in lessons():
        typer.echo(f"{lesson.name}\n    {lesson.question}")
        for task in lesson.exercises:
            typer.echo(f"    exercise {task.id}: difficulty {task.difficulty} of 3, {task.minutes} min")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context):
    """Open JupyterLab on the notebooks; further options go to JupyterLab.

    Example: labkit lab --port 9999
    """
    from labkit.jupyter import serve

    raise typer.Exit(serve(context.args))


@app.command()
def report():
    """Write artifacts/report.html from what the ledger holds.

    Example: labkit report
    """
    from labkit.report import write_report

    typer.echo(shown(write_report()))


@app.command()
def bench(
    model: Annotated[str, typer.Argument(help="A network of the course, such as cnn-large.")],
    engine: Annotated[str, typer.Option(help="eager or inductor.")] = "eager",
    batch: Annotated[list[int] | None, typer.Option(help="Images a call, repeatable; 1 when none is given.")] = None,
    precision: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    seconds: Annotated[float, typer.Option(help="Time for each batch size.")] = 3.0,
):
    """Measure a network's latency and throughput; the rows go to the ledger.

    Example: labkit bench cnn-large --engine inductor --batch 1 --batch 64 --precision bf16
    """
    from labkit.bench import bench as measured
    from labkit.measure import Plan

    sizes = batch or [1]
    rows = measured(model, sizes, engine=engine, precision=precision, plan=Plan(seconds=seconds))
    for number, size in enumerate(sizes, start=1):
        typer.echo(f"{number}/{len(sizes)} {model} {engine} {precision}, batch {size} ...")
        typer.echo(f"    {next(rows).summary()}")


@data_app.command("list")
def data_list():
    """List the data sets: what is here, and how to get the rest.

    Example: labkit data list
    """
    from labkit.data import status

    for row in status():
        where = f"{row.disk_bytes / 1e6:,.0f} MB in {shown(row.path)}" if row.present else f"not here; next: {row.how}"
        typer.echo(f"{'ok' if row.present else '- '} {row.name:16} {where}")


@data_app.command("get")
def data_get(
    name: str,
    source: Annotated[Path | None, typer.Option("--from", help="An archive you already have.")] = None,
    sha256: Annotated[
        str | None, typer.Option(help="Hash of an archive that is meant to differ: a part of it.")
    ] = None,
):
    """Fetch a data set: download, check its hash, unpack it into data/NAME.

    Example: labkit data get cifar10
    """
    from labkit.data import fetch

    typer.echo(f"{name} is in {shown(fetch(name, source=source, sha256=sha256))}")


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
    from labkit.recorded import record

    typer.echo(shown(record(hardware)))


def shown(path):
    """A path relative to the current folder where that is shorter."""
    path = Path(path).resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def main():
    """Run the command; a problem the reader can act on is printed without a traceback."""
    try:
        app()
    except LabError as error:
        typer.echo(f"labkit: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
