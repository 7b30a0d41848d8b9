"""The command for experiments that take longer than a lesson."""

from typing import Annotated

from typer import Argument, Option, echo

from labkit.cli.app import app, path_of
from labkit.errors import LabError


@app.command()
def experiment(
    name: Annotated[str | None, Argument(help="One of --list.")] = None,
    list_: Annotated[
        bool,
        Option(
            "--list",
            help="What can be measured here, and what is on record: experiment, "
            "hardware, date, profile, edition, rows.",
        ),
    ] = False,
    quick: Annotated[
        bool, Option(help="A small network and few settings, in about a minute: the profile quick.")
    ] = False,
    minutes: Annotated[
        float | None, Option(help="For what is timed; each experiment has its own default.")
    ] = None,
    seed: Annotated[int, Option(help="Of weights and inputs.")] = 0,
    record: Annotated[
        str | None,
        Option(
            help="A name for this machine; then the rows also go to artifacts/recorded, where "
            "lessons find them."
        ),
    ] = None,
):
    """Measure an experiment, or list what is on record.

    Each row goes to the ledger as soon as it is measured, and says network, batch and device. What
    this machine cannot do is a row with a reason.

    Example: labkit experiment convnext-training --minutes 30 --record "RTX 4090, Ryzen 7950X"
    """
    from labkit import experiments, ledger

    if list_:
        _list()
        return
    if name is None:
        raise LabError(
            "Which experiment?",
            expected=" or ".join(experiments.names()),
            fix="labkit experiment --list",
        )
    for row in experiments.run(name, quick=quick, minutes=minutes, seed=seed):
        echo(_line(row))
    if record:
        for path in ledger.record(record, profile="quick" if quick else "lab", experiment=name):
            echo(path_of(path))


def _list():
    """Print the experiments that can be measured here, and the recorded ones."""
    from labkit import experiments, ledger

    echo("Can be measured here:")
    for name in experiments.names():
        echo(f"  {name:18} {experiments.summary(name)}")
    echo("On record:")
    for row in ledger.on_record():
        rows = f"{row.rows} row{'s' if row.rows != 1 else ''}"
        echo(
            f"  {row.experiment:26} {row.hardware}, {row.date}, {row.profile}, edition "
            f"{row.edition}: {rows}"
        )


def _line(row):
    """Return a row of an experiment as one line: its name, and its figures or the reason for none.

    row  a row of the ledger, such as a `Training` or a `Latency`
    """
    from labkit.format import shown

    name = getattr(row, "name", None) or f"{row.study}: {row.variant}"
    columns = {
        "total_s": (1, "s"),
        "p50_ms": (1e-3, "s"),
        "median": (1, "x"),
        "saved_bytes": (1, "B"),
    }
    figures = []
    for column, (factor, unit) in columns.items():
        number = getattr(row, column, None)
        if number is not None:
            figures.append(shown(number * factor, unit))
    return f"{name}, batch {row.batch}: {', '.join(figures) or row.reason}"
