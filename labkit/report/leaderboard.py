"""Make the leaderboards of lessons 11 and 20 from the scores of the ledger.

Lesson 20 asks for small and fast networks, lesson 11 for fast training recipes. There is a board
for each kind of machine. A score belongs to the machine on which it was judged. Scores that came
with `labkit ledger merge` stand below the others, as reported.
"""

import html
from dataclasses import replace
from typing import Any, NamedTuple

from labkit import device, ledger
from labkit.capstone.order import MEDALS, file_medal, one_line, recipe_medal, stored_file
from labkit.errors import LabError
from labkit.ledger.rows import Machine, RaceScore, Scored

# The names of the medals, the best last: a larger index is a better medal.
MEDAL_NAMES = [None, *(medal.name for medal in reversed(MEDALS))]


def kind_of(machine):
    """Return the kind of a machine as a line of text.

    Latencies may be compared between machines with the same line.

    machine  a `rows.Machine`; None for a machine that is not known
    """
    if machine is None:
        return "a machine that is not known"
    instructions = (machine.cpu_isa or "no vector instructions known").split()
    hardware = one_line(machine.gpu or machine.cpu or "CPU")
    return f"{hardware}, {machine.logical_cores} cores, {one_line(instructions[-1])}"


class Standing(NamedTuple):
    """The place of one name on a board.

    row    newest score of this name
    tries  number of entries under this name, refused ones included
    """

    row: Scored | RaceScore
    tries: int


def board(table: type = Scored, *, everything: bool = False) -> dict[str, list[Standing]]:
    """Return the leaderboards as {heading: list of `Standing`, the best first}.

    Each name has one place. Its newest score counts, not its best: the best of many tries is luck.
    The medals are given anew by today's limits, whatever the rows say.

    table       `Scored`: networks of lesson 20, one board for each kind of machine. `RaceScore`:
                training recipes of lesson 11, one board for each data set, target and kind of
                machine
    everything  True: boards of all kinds of machines; False: of this machine's kind only
    """
    machines = {row.machine_key: row for row in ledger.find(Machine)}
    this_kind = kind_of(device.describe())
    rows_of: dict[str, list] = {}
    for row in ledger.find(table):  # oldest first
        heading = kind = kind_of(machines.get(row.machine_key))
        if isinstance(row, RaceScore):
            heading = f"{100 * row.target:g} % on {one_line(row.dataset)}: {kind}"
        if everything or kind == this_kind:
            rows_of.setdefault(heading, []).append(row)
    boards = {}
    for heading, rows in rows_of.items():
        standings = _standings(rows)
        if standings:
            boards[heading] = standings
    return boards


def _standings(rows):
    """Return a `Standing` for each name with a score, the best first.

    A name in another parcel of `labkit ledger merge` is another name.

    rows  rows of one board, the oldest first
    """
    tries_of = {}
    for row in rows:
        tries_of.setdefault((row.name, row.reported_by), []).append(row)
    standings = []
    for tries in tries_of.values():
        scored = [row for row in tries if row.points is not None]
        if scored:
            standings.append(Standing(_with_todays_medal(scored[-1]), len(tries)))
    return sorted(standings, key=_rank, reverse=True)


def _with_todays_medal(row):
    """Return a row with the medal that its numbers earn by today's limits.

    A row of lesson 20 that was too noisy to judge stays without a medal.
    """
    if isinstance(row, RaceScore):
        return replace(row, medal=recipe_medal(row.points))
    if row.noisy and row.medal is None:
        return row
    return replace(row, medal=file_medal(row.accuracy, row.latency, row.size_bytes))


def _rank(standing):
    """Return the key that sorts a board; the best has the largest key.

    Scores that were judged here come before reported ones, then the medal decides, then the points.
    """
    row = standing.row
    return row.reported_by is None, MEDAL_NAMES.index(row.medal), row.points


def best() -> Any:
    """Return the best network of lesson 20 that was judged here, as a `rows.Scored`.

    Only a network with a medal counts, and only if its file is still stored. Of each name the
    newest score counts.

    Raises  LabError where there is none
    """
    for row, _ in _standings(ledger.find(Scored, reported_by=None)):
        if row.medal and stored_file(row.sha256).is_file():
            return row
    raise LabError(
        "No submission of this machine has a medal yet.",
        fix="labkit submit FILE --engine onnxruntime",
    )


def as_html(boards: dict) -> str:
    """Return leaderboards as HTML tables, in which names are shown as plain text.

    boards  what `board` returned
    """
    blocks = []
    for heading, table in _tables(boards):
        blocks.append(f"<b>{html.escape(heading)}</b>{table.to_html(index=False)}")
    return "\n".join(blocks) or "<p>No submission has been scored here yet.</p>"


def as_text(boards: dict) -> str:
    """Return leaderboards as lines for a terminal.

    boards  what `board` returned
    """
    blocks = []
    for heading, table in _tables(boards):
        blocks.append(f"{heading}\n{table.to_string(index=False)}")
    return "\n".join(blocks) or "No submission has been scored here yet."


def _tables(boards):
    """Yield (heading of a board, its table as a DataFrame)."""
    for heading, standings in boards.items():
        is_race = isinstance(standings[0].row, RaceScore)
        title = "Trained to " if is_race else "The order of lesson 20, on "
        yield title + heading, _table(standings)


def _table(standings):
    """Return a list of `Standing` as a DataFrame of texts."""
    import pandas as pd

    rows = []
    for row, tries in standings:
        # Columns of both tables; those between "right" and "commit" depend on the kind of score.
        columns = {
            "medal": row.medal or "-",
            "name": one_line(row.name),
            "tries": tries,
            "score (95 %)": f"{row.points:.2f} [{row.points_low:.2f}, {row.points_high:.2f}]",
            "right": f"{100 * row.accuracy:.1f} %",
        }
        if isinstance(row, RaceScore):
            columns["seconds"] = f"{row.seconds:.2f}"
            columns["trainings"] = row.seeds
        else:
            columns["p95 / reference, no floor"] = f"{row.latency:.2f}"
            columns["kB"] = f"{row.size_bytes / 1e3:,.0f}"
            columns["engine"] = f"{row.engine} {row.precision}"
        columns["commit"] = (row.commit or "-")[:8]
        columns["from"] = (
            f"as reported by {one_line(row.reported_by)}" if row.reported_by else "judged here"
        )
        rows.append(columns)
    return pd.DataFrame(rows)
