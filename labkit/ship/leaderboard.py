"""The leaderboards of lessons 10 and 19: the scores of the ledger, compared within one kind of machine.

A score counts where it was judged. One that came with `labkit ledger merge` stands below, as reported.
"""

import html
import uuid
from dataclasses import replace
from typing import Any, NamedTuple

from labkit import device, ledger
from labkit.errors import LabError
from labkit.ledger.rows import Machine, RaceScore, Scored
from labkit.ship.order import LEVELS, file_of, medal_of, plain
from labkit.ship.recipe import medal_of as medal_of_race

MEDALS = [None, *(level.name for level in reversed(LEVELS))]  # the best last


def kind_of(machine):
    """A machine as one line that says what its latencies can be compared with."""
    if machine is None:
        return "a machine that is not known"
    isa = (machine.cpu_isa or "no vector instructions known").split()
    where = plain(machine.gpu or machine.cpu or "CPU")
    return f"{where}, {machine.logical_cores} cores, {plain(isa[-1])}"


def keep(kind, found, *, run_key=None, **facts):
    """Write what a judge found, a `Score` or `Raced`, to the ledger as a row of a board; returns the row."""
    machine = device.describe()
    for name in ("points", "accuracy", "latency"):
        if interval := getattr(found, name, None):
            facts |= {name: interval.median, f"{name}_low": interval.low, f"{name}_high": interval.high}
    row = kind(
        run_key=run_key or f"{kind.TABLE}-{uuid.uuid4().hex[:12]}",
        name=found.name,
        medal=found.medal,
        machine_key=machine.machine_key,
        commit=device.commit(),
        measured_utc=ledger.now(),
        **facts,
    )
    ledger.add(machine, row)
    return row


class Standing(NamedTuple):
    """The newest row of a name that has a score, and how often it was tried, refused tries included."""

    row: Scored | RaceScore
    tries: int


def board(kind: type = Scored, *, everything: bool = False) -> dict[str, list[Standing]]:
    """{kind of machine: a `Standing` per name, the best first}. Only this machine's kind, or all.

    kind  `Scored`: files of lesson 19; `RaceScore`: recipes of lesson 10, a board for each target

    The newest try counts, not the best: of many tries the best one is luck. The medal is that of today's limits.
    """
    machines = {row.machine_key: row for row in ledger.find(Machine)}
    here = kind_of(device.describe())
    found: dict = {}
    for row in ledger.find(kind):  # oldest first
        where = kind_of(machines.get(row.machine_key))
        if everything or where == here:
            task = f"{100 * row.target:g} % on {plain(row.dataset)}: " if isinstance(row, RaceScore) else ""
            found.setdefault(task + where, []).append(row)
    standings = {kind: _standings(rows) for kind, rows in found.items()}
    return {kind: each for kind, each in standings.items() if each}


def _standings(rows):
    """A `Standing` for each name of the rows, oldest first; none for a name that has no score."""
    names = {}
    for row in rows:
        names.setdefault((row.name, row.reported_by), []).append(row)
    found = []
    for tries in names.values():
        scored = [row for row in tries if row.points is not None]
        if scored:
            found.append(Standing(_today(scored[-1]), len(tries)))
    return sorted(found, key=lambda each: _rank(each.row), reverse=True)


def _today(row):
    """The row with the medal that its figures earn by today's limits; what was too noisy to judge stays so."""
    if isinstance(row, RaceScore):
        return replace(row, medal=medal_of_race(row.points))
    if row.noisy and row.medal is None:
        return row
    return replace(row, medal=medal_of(row.accuracy, row.latency, row.size_bytes))


def _rank(row):
    return row.reported_by is None, MEDALS.index(row.medal), row.points


def best() -> Any:
    """The best of the newest rows that were scored here, whose file is still there; LabError when there is none."""
    for row, _ in _standings(ledger.find(Scored, reported_by=None)):
        if row.medal and file_of(row.sha256).is_file():
            return row
    raise LabError("No submission of this machine has a medal yet.", fix="labkit submit FILE --engine onnxruntime")


def as_html(boards: dict) -> str:
    """The leaderboard as HTML tables; whatever a name holds, it is text there."""
    parts = [f"<b>{html.escape(head)}</b>{table.to_html(index=False)}" for head, table in _tables(boards)]
    return "\n".join(parts) or "<p>No submission has been scored here yet.</p>"


def as_text(boards: dict) -> str:
    """The leaderboard as lines for a terminal."""
    parts = [f"{head}\n{table.to_string(index=False)}" for head, table in _tables(boards)]
    return "\n".join(parts) or "No submission has been scored here yet."


def _tables(boards):
    """The heading of each board, and its table."""
    for kind, rows in boards.items():
        yield (
            f"{'Trained to ' if isinstance(rows[0].row, RaceScore) else 'The order of lesson 19, on '}{kind}",
            _table(rows),
        )


def _table(rows):
    """A list of `Standing` as a DataFrame of texts."""
    import pandas as pd

    return pd.DataFrame(
        {
            "medal": row.medal or "-",
            "name": plain(row.name),
            "tries": tries,
            "score (95 %)": f"{row.points:.2f} [{row.points_low:.2f}, {row.points_high:.2f}]",
            "right": f"{100 * row.accuracy:.1f} %",
            **_own_columns(row),
            "commit": (row.commit or "-")[:8],
            "from": f"as reported by {plain(row.reported_by)}" if row.reported_by else "judged here",
        }
        for row, tries in rows
    )


def _own_columns(row):
    if isinstance(row, RaceScore):
        return {"seconds": f"{row.seconds:.2f}", "trainings": row.seeds}
    size, engine = f"{row.size_bytes / 1e3:,.0f}", f"{row.engine} {row.precision}"
    return {"p95 / reference": f"{row.latency:.2f}", "kB": size, "engine": engine}
