"""The leaderboard: rows of the ledger, compared within one kind of machine, and joined from a class's files."""

import html
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

from labkit import device, ledger
from labkit.errors import LabError
from labkit.files import artifacts, write_text
from labkit.ledger import check_types
from labkit.ledger.rows import Machine, Scored
from labkit.ship.order import LEVELS, medal_of
from labkit.ship.submission import plain

LARGEST, MOST_ROWS = 2_000_000, 5_000  # of a file of somebody else
_MEDALS = [level.name for level in LEVELS]
_RANGES = {"accuracy": 1, "latency": 1e3, "points": 1e4}  # most that a figure can be


def kind_of(machine):
    """A machine as one line that says what its latencies can be compared with."""
    if machine is None:
        return "a machine that is not known"
    isa = (machine.cpu_isa or "").split()
    where = plain(machine.gpu or machine.cpu or "CPU")
    return f"{where}, {machine.logical_cores} cores, {plain(isa[-1]) if isa else 'no vector instructions known'}"


class Standing(NamedTuple):
    """The newest row of a name that has a score, and how often it was tried, refused tries included."""

    row: Scored
    tries: int


def board(*, everything=False):
    """{kind of machine: a `Standing` per name, the best first}. Only this machine's kind, or all.

    The newest try counts, not the best: of many tries the best one is luck. The medal is that of today's limits.
    """
    machines = {row.machine_key: row for row in ledger.find(Machine)}
    here, found = kind_of(device.describe()), {}
    for row in ledger.find(Scored):  # oldest first
        kind = kind_of(machines.get(row.machine_key))
        if everything or kind == here:
            found.setdefault(kind, {}).setdefault((row.name, row.reported_by), []).append(row)
    standings = {kind: _standings(names.values()) for kind, names in found.items()}
    return {kind: each for kind, each in standings.items() if each}


def _standings(names):
    """A `Standing` for each list of rows of one name, oldest first; none where nothing has a score."""
    scored = [(rows, [row for row in rows if row.points is not None]) for rows in names]
    found = [Standing(_today(valid[-1]), len(rows)) for rows, valid in scored if valid]
    return sorted(found, key=lambda each: _rank(each.row), reverse=True)


def _today(row):
    """The row with the medal that its figures earn by today's limits; what was too noisy to judge stays so."""
    if row.noisy and row.medal is None:
        return row
    return replace(row, medal=medal_of(row.accuracy, row.latency, row.size_bytes))


def _rank(row):
    medal = len(_MEDALS) - _MEDALS.index(row.medal) if row.medal in _MEDALS else 0
    return medal, row.points or 0


def best():
    """The best of the newest rows that were scored here, whose file is still there; LabError when there is none."""
    names = {row.name for row in ledger.find(Scored, reported_by=None)}
    for row, _ in _standings([ledger.find(Scored, reported_by=None, name=name) for name in names]):
        if row.medal and file_of(row).is_file():
            return row
    raise LabError("No submission of this machine has a medal yet.", fix="labkit submit FILE --engine onnxruntime")


def file_of(row):
    """Where the ONNX file of a row lies, if it was scored here."""
    return artifacts() / "ship" / f"{row.sha256}.onnx"


def as_html(boards):
    """The leaderboard as HTML tables; whatever a name holds, it is text there."""
    parts = [f"<b>{html.escape(kind)}</b>{_table(rows).to_html(index=False)}" for kind, rows in boards.items()]
    return "\n".join(parts) or "<p>No submission has been scored here yet.</p>"


def as_text(boards):
    """The leaderboard as lines for a terminal."""
    parts = [f"{kind}\n{_table(rows).to_string(index=False)}" for kind, rows in boards.items()]
    return "\n".join(parts) or "No submission has been scored here yet."


def _table(rows):
    """A list of `Standing` as a DataFrame of texts."""
    import pandas as pd

    return pd.DataFrame(
        {
            "medal": row.medal or "-",
            "name": row.name,
            "tries": tries,
            "score (95 %)": f"{row.points:.2f} [{row.points_low:.2f}, {row.points_high:.2f}]",
            "right": f"{100 * row.accuracy:.1f} %",
            "p95 / reference": f"{row.latency:.2f}",
            "kB": f"{row.size_bytes / 1e3:,.0f}",
            "engine": f"{row.engine} {row.precision}",
            "commit": (row.commit or "-")[:8],
            "from": f"{row.reported_by}: reported, not scored here" if row.reported_by else "here",
        }
        for row, tries in rows
    )


def share(path):
    """Write this machine's own rows as a file for somebody to merge; returns the path."""
    rows = [row for row in ledger.find(Scored, reported_by=None) if row.points is not None]
    keys = {row.machine_key for row in rows}
    machines = [row for row in ledger.find(Machine) if row.machine_key in keys]
    page = {"machines": [vars(row) for row in machines], "submissions": [vars(row) for row in rows]}
    write_text(path, json.dumps(page, indent=1) + "\n")
    return Path(path)


def merge(path):
    """Join somebody's file with this ledger; returns how many rows came, and how many were left out.

    Nothing in the file is executed or trusted: each row must fit its type, texts are cut to one short line, and each
    row keeps the name of the file it came from. Raises LabError for what is no such file.
    """
    path = Path(path)
    page = _read(path)
    rows, left = {Machine: [], Scored: []}, 0
    for kind, name in ((Machine, "machines"), (Scored, "submissions")):
        for values in page.get(name, ()):
            try:
                rows[kind].append(_row(kind, values, path))
            except (LabError, TypeError, ValueError, AttributeError, OverflowError):
                left += 1
    known = {row.machine_key for row in ledger.find(Machine)}
    own = {_merged(row.run_key) for row in ledger.find(Scored, reported_by=None)}
    scored = [row for row in rows[Scored] if row.run_key not in own]
    ledger.add(*(row for row in rows[Machine] if row.machine_key not in known), *scored)
    return len(scored), left


def _read(path):
    """The page in a file of somebody else."""
    expected = f"a file that `labkit leaderboard --share FILE` wrote, of at most {LARGEST / 1e6:g} MB"
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            raise ValueError(f"{path.stat().st_size:,} bytes" if path.is_file() else "no file")
        page = json.loads(path.read_text(encoding="utf-8"))
        lists = [page.get(name, []) for name in ("machines", "submissions")]
        if not all(isinstance(rows, list) and len(rows) <= MOST_ROWS for rows in lists):
            raise ValueError("no lists of rows")
    except (ValueError, AttributeError, OSError, RecursionError) as error:
        raise LabError("This is no leaderboard.", expected=expected, found=str(error)[:200]) from error
    return page


def _row(kind, values, path):
    """A row of somebody else, its texts cut short; raises where a figure cannot be."""
    names = {field.name for field in fields(kind)}
    kept = {name: plain(value) if isinstance(value, str) else value for name, value in values.items() if name in names}
    row = kind(**kept)
    check_types(row)
    if kind is Scored:
        _require_possible(row)
        row = replace(row, reported_by=plain(path.name), run_key=_merged(row.run_key))
    return row


def _merged(run_key):
    """The key that a row of somebody else gets here: none of theirs can take the place of one of ours."""
    return f"merged-{plain(run_key)}"


def _require_possible(row):
    """Raise ValueError for figures that no scoring gives."""
    for name, most in _RANGES.items():
        low, middle, high = (getattr(row, each) for each in (f"{name}_low", name, f"{name}_high"))
        if None in (low, middle, high) or not 0 <= low <= middle <= high <= most:
            raise ValueError(f"{name} is not possible")
    if row.medal not in (None, *_MEDALS) or not row.size_bytes or row.size_bytes < 0:
        raise ValueError("medal or size is not possible")
