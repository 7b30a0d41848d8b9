"""Collect for the report the newest run of each lesson, tables of rows, pictures of deployments."""

import base64
import io
import re
from collections import defaultdict
from dataclasses import asdict

from labkit import device, ledger
from labkit.format import shown
from labkit.ledger.rows import Machine, Run

# {title: (table of measured rows, its columns)}; a column without any value is left out. Long
# tables are folded in the page.
MEASURED = {
    "Deployments": ("deployments", "model dataset engine precision device threads batch accuracy "
                                   "latency_p50_ms "
                    "latency_p95_ms throughput_per_s size_bytes memory_bytes cost_per_million_usd"),
    "Trainings": ("trainings", "study variant model dataset device threads batch images data_s "
                               "forward_s backward_s "
                  "optimizer_s total_s accuracy memory_bytes"),
    "Ratios": ("ratios", "name arm baseline device threads batch turns median low high beside "
                         "floor pairs verdict"),
    "Latencies": ("latencies", "name device threads batch p50_ms low_ms high_ms p95_ms p99_ms "
                               "throughput_per_s "
                  "bytes_per_s"),
    "Memory": ("memories", "name device batch peak_bytes tensor_bytes saved_bytes"),
}  # fmt: skip
UNITS = (  # (how a column's name ends, the factor to its unit, the unit)
    ("bytes_per_s", 1, "B/s"), ("_per_s", 1, None), ("_bytes", 1, "B"), ("_ms", 1e-3, "s"),
    ("_s", 1, "s"), ("accuracy", 100, "%"),
)  # fmt: skip
NOISY = "noisy: other work ran at the same time, or the times spread widely"
HERE = "this machine"


def newest(row_class, label_of):
    """Return rows of the newest run of each lesson: [(notebook, label, rows)], in lesson order.

    Only runs that have rows of this class count. A label divides the runs of a lesson into groups,
    and the newest run of each group is returned.

    row_class  class of the rows, such as `LessonAnswer`
    label_of   function (`Run`) -> label. With `starter_of`, for example, a lesson has at least two
               groups: runs by hand and runs by the runner
    """
    rows_of_run = defaultdict(list)
    for row in ledger.find(row_class):
        rows_of_run[row.run_key].append(row)
    newest_rows = {}
    for run in sorted(ledger.find(Run), key=lambda run: run.started_utc):
        if rows_of_run[run.run_key]:
            newest_rows[run.notebook, label_of(run)] = rows_of_run[run.run_key]
    return [
        (notebook, label, newest_rows[notebook, label]) for notebook, label in sorted(newest_rows)
    ]


def reporter_of(run):
    """Return who reported a run, as the end of a phrase: ", as reported by NAME".

    The text is "" for a run that was made with this ledger.
    """
    return f", as reported by {run.reported_by}" if run.reported_by else ""


def starter_of(run):
    """Return how a run was started, "by the runner" or "by hand", and who reported it."""
    return ("by the runner" if run.batch_key else "by hand") + reporter_of(run)


def sections():
    """Return all tables as the template needs them: [{"title": text, "grids": list of grids}].

    There is a grid (`_grid`) for each hardware. Grids of other machines than this one are left out
    if they have no numbers.
    """
    tables = []
    for title, (table, column_names) in MEASURED.items():
        columns = column_names.split()
        grids = []
        for hardware, rows in _rows_by_hardware(table).items():
            if rows:
                grids.append(_grid(hardware, rows, ["lesson", *columns]))
        for hardware, rows in ledger.recorded_rows(table).items():
            grids.append(_grid(hardware, rows, ["experiment", "network", *columns]))
        tables.append(
            {
                "title": title,
                "grids": [grid for grid in grids if grid["place"] == HERE or _has_number(grid)],
            }
        )
    return tables


def _has_number(grid):
    """Return True if a grid has a column of numbers."""
    return any(is_numeric for _, is_numeric in grid["heads"])


def _rows_by_hardware(table):
    """Return the rows of a table from the newest runs, by machine: {name of the machine: rows}.

    This machine comes first. The other ones are machines of a cluster, and machines of people who
    reported their runs.

    table  name of a table of the ledger
    """
    this_title = device.describe().title
    other_machines = {
        row.machine_key: row.title for row in ledger.find(Machine) if row.title != this_title
    }

    def hardware_of(run):
        return other_machines.get(run.machine_key, HERE) + reporter_of(run)

    rows_by_hardware = {HERE: []}
    for _, hardware, rows in newest(ledger.tables()[table], hardware_of):
        rows_by_hardware.setdefault(hardware, []).extend(rows)
    return rows_by_hardware


def panels():
    """Return the pictures of deployments on this machine, each with the texts beside it.

    returns  list of (lesson, settings in words, picture as a data URI, picture in words, {number:
             deployment})

    A picture holds rows of one run, on one device, with the same number of threads and the same
    batch size: only such rows were measured on the same images, at the same time. If a run has
    several such groups of rows, its largest group is shown; among equally large groups the one with
    the smallest batch.
    """
    groups = defaultdict(list)
    for row in _rows_by_hardware("deployments")[HERE]:
        if row.accuracy and row.latency_p50_ms:
            groups[row.run_key, row.device, row.threads, row.batch].append(row)

    def largest_first(group):
        (_, _, _, batch), rows = group
        return -len(rows), batch or 0

    largest = {}
    for (run_key, _, _, _), rows in sorted(groups.items(), key=largest_first):
        if len(rows) > 1:
            largest.setdefault(run_key, rows)
    return [_panel(rows) for rows in sorted(largest.values(), key=lambda rows: _lesson(rows[0]))]


def _lesson(row):
    """Return the lesson in which a row was measured, or "".

    The key of the row's run holds the name of the notebook.
    """
    match = re.search(r"\d\d_[a-z0-9_]+", row.run_key)
    return match[0] if match else ""


def _panel(rows):
    """Return the tuple that `panels` describes, for one group of deployments."""
    from labkit import plots

    buffer = io.BytesIO()
    plots.pareto(rows).savefig(buffer, format="svg", bbox_inches="tight")
    picture = "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
    settings = f"batch {rows[0].batch}, threads: {rows[0].threads}"
    return _lesson(rows[0]), settings, picture, plots.front_in_words(rows), plots.numbered(rows)


def _grid(hardware, rows, names):
    """Return rows of one machine as a table for the template.

    A column without a value is left out. A value that is the same in all rows is shown once, above
    the table.

    hardware  name of the machine
    rows      rows of one class
    names     names of the columns
    returns   {"place": name of the machine, "heads": [(heading, True for numbers)], "lines": [(list
              of cells as texts, numbers of the row's remarks as a text)], "remarks": {remark: its
              number}, "shared": the values above the table}
    """
    # Sort the columns into those that are listed and those with one value for all rows.
    columns = {}
    shared = []
    for name in names:
        column = [_value(row, name) for row in rows]
        if len(rows) > 1 and len(set(column)) == 1 and column[0] is not None:
            shared.append(f"{_head(name)} {_cell(name, column[0])}")
        elif any(value is not None for value in column):
            columns[name] = column

    # Write a line per row; equal remarks have one number.
    lines = []
    number_of_remark = {}
    for index, row in enumerate(rows):
        cells = [_cell(name, column[index]) for name, column in columns.items()]
        numbers = []
        for remark in _remarks(asdict(row)):
            numbers.append(str(number_of_remark.setdefault(remark, len(number_of_remark) + 1)))
        lines.append((cells, ", ".join(numbers)))
    return {
        "place": hardware,
        "heads": [(_head(name), _is_numeric(column)) for name, column in columns.items()],
        "lines": lines,
        "remarks": number_of_remark,
        "shared": " · ".join(shared),
    }


def _value(row, name):
    """Return the value of a row in a column.

    The column "lesson" is no field of the row; its value is the number of the lesson as a text.
    """
    if name == "lesson":
        return _lesson(row)[:2] or None
    return getattr(row, name)


def _is_numeric(column):
    """Return True if a column has a number."""
    return any(isinstance(value, int | float) for value in column)


def _remarks(row):
    """Return the reasons why numbers of a row are missing or doubtful, as a list of texts.

    row  the row as a dict
    """
    remarks = []
    if row.get("noisy"):
        remarks.append(row.get("noise") or NOISY)
    for reasons in (row.get("reason"), row.get("tail_reason")):
        if reasons:
            remarks += reasons.split("; ")
    return list(dict.fromkeys(remarks))


def _cell(name, value):
    """Return the value of a cell as text, with its unit.

    name  name of the column: its ending says the unit
    """
    if value is None or isinstance(value, str):
        return value or "–"
    if name == "floor" and not value:  # 0: nothing ran against itself
        return "–"
    factor, unit = _unit_of(name)
    digits = 4 if unit in ("%", None) else 3
    return shown(value * factor, unit, digits=digits)


def _unit_of(name):
    """Return (factor, unit) of a column: its values times the factor have this unit.

    name  name of the column: its ending says the unit. Without such an ending (1, None) is returned
    """
    for ending, factor, unit in UNITS:
        if name.endswith(ending):
            return factor, unit
    return 1, None


def _head(name):
    """Return the heading of a column: its name without the unit, which each cell shows."""
    return re.sub(r"_(bytes|ms|s|j)$", "", name.replace("_per_s", "_per_second")).replace("_", " ")
