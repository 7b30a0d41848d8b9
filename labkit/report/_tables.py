"""Of each lesson the newest run; the tables of measured rows, by hardware, and the pictures of deployments."""

import base64
import io
import re
from collections import defaultdict
from dataclasses import asdict

from labkit import device, ledger
from labkit.ledger.rows import Machine, Run
from labkit.ledger.shown import shown

# The tables of measured rows and their columns; a column without any value is left out. Long ones are folded.
MEASURED = {
    "Deployments": ("deployments", "model dataset engine precision device threads batch accuracy latency_p50_ms "
                    "latency_p95_ms throughput_per_s size_bytes memory_bytes cost_per_million_usd"),
    "Trainings": ("trainings", "study variant model dataset device threads batch images data_s forward_s backward_s "
                  "optimizer_s total_s accuracy memory_bytes"),
    "Ratios": ("ratios", "name arm baseline device threads batch median low high floor pairs verdict"),
    "Latencies": ("latencies", "name device threads batch p50_ms low_ms high_ms p95_ms p99_ms throughput_per_s"),
    "Memory": ("memories", "name device batch peak_bytes tensor_bytes saved_bytes"),
    "Ceilings": ("ceilings", "name device threads bytes_per_s ops_per_s"),
}  # fmt: skip
UNITS = (  # (how a column's name ends, the factor to its unit, the unit)
    ("ops_per_s", 1, "op/s"), ("bytes_per_s", 1, "B/s"), ("_per_s", 1, None), ("_bytes", 1, "B"), ("_ms", 1e-3, "s"),
    ("_s", 1, "s"), ("accuracy", 100, "%"),
)  # fmt: skip
NOISY = "noisy: other work ran at the same time, or the times spread widely"


def newest(kind, apart):
    """[(notebook, what sets its run apart, rows)] in the order of the lessons: of each, the newest run with such rows.

    apart  words for a `Run`: of runs that differ in them, the newest of each is shown. With `how`, no answer of a
           reader is hidden by a later run without one
    """
    rows, last = defaultdict(list), {}
    for row in ledger.find(kind):
        rows[row.run_key].append(row)
    for run in sorted(ledger.find(Run), key=lambda run: run.started_utc):
        if rows[run.run_key]:
            last[run.notebook, apart(run)] = rows[run.run_key]
    return [(*about, last[about]) for about in sorted(last)]


def whose(run):
    return f", as reported by {run.reported_by}" if run.reported_by else ""


def how(run):
    return ("by the runner" if run.batch_key else "by hand") + whose(run)


def sections():
    """All tables as the template needs them: rows by hardware; of others than this machine only with a number."""
    found = []
    for title, (table, columns) in MEASURED.items():
        grids = [_grid(place, rows, columns.split()) for place, rows in _places(table).items() if rows]
        told = [each for each in grids if each["place"] == "this machine" or any(number for _, number in each["heads"])]
        found.append({"title": title, "grids": told})
    return found


def _places(table):
    """{place: its rows of a table}: this machine first, then others that a cluster had, then the recorded ones."""
    here, own = device.describe().title, {"this machine": []}
    elsewhere = {row.machine_key: row.title for row in ledger.find(Machine) if row.title != here}

    def place_of(run):
        return elsewhere.get(run.machine_key, "this machine") + whose(run)

    for _, place, rows in newest(ledger.tables()[table], place_of):
        own.setdefault(place, []).extend(rows)
    return {**own, **ledger.recorded_rows(table)}


def panels():
    """[(lesson, batch and threads, the picture as a data URI, that in words, {number: deployment})] of this machine.

    One picture holds the rows of one run on the same threads with the same batch: only they are answers to the same
    images, taken at the same time. Of a run the largest such group is shown, of equal ones that of the smallest batch.
    """
    groups = defaultdict(list)
    for row in _places("deployments")["this machine"]:
        if row.accuracy and row.latency_p50_ms:
            groups[row.run_key, row.device, row.threads, row.batch].append(row)
    largest = {}
    for about, rows in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0][3] or 0)):
        if len(rows) > 1:
            largest.setdefault(about[0], rows)
    return [_panel(rows) for rows in sorted(largest.values(), key=lambda rows: _lesson(rows[0]))]


def _lesson(row):
    """The lesson that took this row, which stands in the key of its run."""
    found = re.search(r"\d\d_[a-z0-9_]+", row.run_key)
    return found[0] if found else ""


def _panel(rows):
    from labkit import plots

    buffer = io.BytesIO()
    plots.pareto(rows).savefig(buffer, format="svg", bbox_inches="tight")
    picture = "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
    settings = f"batch {rows[0].batch}, threads: {rows[0].threads}"
    return _lesson(rows[0]), settings, picture, plots.front_in_words(rows), plots.numbered(rows)


def _grid(place, rows, columns):
    """Rows as cells of text, with numbered remarks.

    Columns without a value are left out, and what is the same in all rows is said once, above them.
    """
    listed, shared = {}, []
    for name in ("lesson", *columns):
        found = [_lesson(row)[:2] or None if name == "lesson" else getattr(row, name) for row in rows]
        if len(rows) > 1 and len(set(found)) == 1 and found[0] is not None:
            shared.append(f"{_head(name)} {_cell(name, found[0])}")
        elif any(value is not None for value in found):
            listed[name] = found
    heads = [(_head(name), any(isinstance(value, int | float) for value in found)) for name, found in listed.items()]
    remarks, lines = {}, []  # {remark: its number}
    for number, row in enumerate(rows):
        notes = [str(remarks.setdefault(remark, len(remarks) + 1)) for remark in _remarks(asdict(row))]
        lines.append(([_cell(name, found[number]) for name, found in listed.items()], ", ".join(notes)))
    return {"place": place, "heads": heads, "lines": lines, "remarks": remarks, "shared": " · ".join(shared)}


def _remarks(row):
    """Why numbers of a row are missing or doubtful."""
    found = [row.get("noise") or NOISY] if row.get("noisy") else []
    for reasons in filter(None, (row.get("reason"), row.get("tail_reason"))):
        found += reasons.split("; ")
    return list(dict.fromkeys(found))


def _cell(name, value):
    """A value as text, in the unit that its column's name says."""
    if value is None or isinstance(value, str) or (name == "floor" and not value):  # 0: nothing ran against itself
        return value or "–"
    factor, unit = next((about for ending, *about in UNITS if name.endswith(ending)), (1, None))
    return shown(value * factor, unit, digits=4 if unit in ("%", None) else 3)


def _head(name):
    """A column's name for people, without the unit that its cells have."""
    return re.sub(r"_(bytes|ms|s|j)$", "", name.replace("_per_s", "_per_second")).replace("_", " ")
