"""Results of other, named hardware: one small JSON file for each under artifacts/recorded/, without samples."""

import json
import math
import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from labkit import device
from labkit.errors import LabError
from labkit.files import root, write_text
from labkit.ledger._store import as_frame, check_types, find, row_class, tables
from labkit.ledger.rows import Completion, Machine, Run

# What is kept; where a file would grow too large, the last ones are left out first.
KEPT = ("machines", "runs", "deployments", "trainings", "ceilings", "ratios", "latencies", "memories", "energies",
        "claims")  # fmt: skip
LARGEST = 200_000  # bytes of one file
ORIGIN = ("hardware", "date", "commit", "versions", "tables")


def record(hardware=None, *, folder=None):
    """Write the newest completed run of each lesson on this machine as recorded results; returns the path.

    hardware  how a reader would name it, such as "RTX 4090, Ryzen 7950X"; None: as the machine names itself.
              The file is named by CPU or GPU, cores and instruction set
    """
    machine = device.describe()
    done = {row.run_key for row in find(Completion)}
    newest = {row.notebook: row.run_key for row in find(Run, machine_key=machine.machine_key) if row.run_key in done}
    if not newest:
        raise LabError("The ledger has no completed run of this machine to record.", fix="labkit run --profile lab")
    keys = {*newest.values(), machine.machine_key}
    page = {
        "hardware": hardware or machine.title,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": device.commit(),
        "versions": {"python": machine.python, "torch": machine.torch, "driver": machine.gpu_driver},
        "tables": {name: _values(row_class(name), keys) for name in KEPT},
    }
    while len(_text(page)) > LARGEST:
        page["tables"].popitem()
    path = _folder(folder) / f"{_file_name(machine)}.json"
    write_text(path, _text(page))
    return path


def recorded(table="deployments", *, most_different=None, folder=None):
    """Rows of a table that were measured on other, named hardware, as a DataFrame.

    Never mixed with the reader's own rows: the columns `hardware`, `recorded_on` and `recorded_commit` say whose they
    are. A file that cannot be read is left out; `left_out` names it.

    most_different  only of so many machines: those that differ most from this one
    """
    kind, pages = row_class(table), _read_all(folder)[0]
    if most_different is not None:
        here = device.describe()
        pages = sorted(pages, key=lambda page: -_difference(page["tables"]["machines"], here))[:most_different]
    found = [(row, page) for page in pages for row in page["tables"][table]]
    return as_frame(kind, [row for row, _ in found]).assign(
        hardware=[page["hardware"] for _, page in found],
        recorded_on=[page["date"] for _, page in found],
        recorded_commit=[page["commit"] for _, page in found],
    )


def recorded_rows(table, *, folder=None):
    """{"hardware, recorded date": the rows of a table measured there}, for the machines that have some."""
    places = {}
    for page in _read_all(folder)[0]:
        if rows := page["tables"][table]:
            places.setdefault(f"{page['hardware']}, recorded {page['date']}", []).extend(rows)
    return places


def left_out(folder=None):
    """{path of a recorded file that is not used: why}."""
    return _read_all(folder)[1]


def _folder(folder):
    return Path(folder or root() / "artifacts" / "recorded")


def _file_name(machine):
    """Such as amd-epyc-2-cores-avx512_bf16: the last instruction set is the one that says most."""
    model = re.sub(r"\(.*?\)|@.*|\b(CPU|Processor)\b", " ", machine.gpu or machine.cpu or "cpu")
    strongest = (machine.cpu_isa or "").replace(" fma", "").rpartition(" ")[2]
    return re.sub(r"[^a-z0-9_]+", "-", f"{model} {machine.logical_cores} cores {strongest}".lower()).strip("-")


def _values(kind, keys):
    """The rows of these runs, or of this machine, as dicts without samples and without what is unknown.

    What the row of the run says (machine, commit) is not said again in each of its measurements.
    """
    rows = [row for row in find(kind) if (getattr(row, "run_key", None) or row.machine_key) in keys]
    again = ("machine_key", "commit") if kind not in (Machine, Run) else ()
    return [
        {key: value for key, value in vars(row).items() if not (value is None or key in again or type(value) is tuple)}
        for row in rows
    ]


def _text(page):
    """The page as JSON in ASCII, one row a line."""
    tables = [f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in page["tables"].items()]
    about = ",\n".join(f'"{key}": {json.dumps(page[key])}' for key in ORIGIN if key != "tables")
    return f'{{\n{about},\n"tables": {{\n' + ",\n".join(tables) + "\n}\n}\n"


def _read_all(folder):
    """([page of each file, its rows as objects], {path: why a file is left out}).

    The files come from others, so any of them may be wrong in any way; none may stop a lesson or the report.
    """
    pages, wrong = [], {}
    for path in sorted(_folder(folder).glob("*.json")):
        try:
            pages.append(_read(path))
        except Exception as error:
            wrong[path] = " ".join(str(error).split())[:300] or type(error).__name__
    return pages, wrong


def _read(path):
    """One recorded file, its rows as objects of their classes."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        raise ValueError(f"not a file of at most {LARGEST // 1000} kB: record it again with `labkit ledger record`")
    page = json.loads(path.read_text(encoding="utf-8"))
    if missing := set(ORIGIN) - set(page):
        raise ValueError(f"does not say where its numbers come from: no {', '.join(sorted(missing))}")
    if not all(isinstance(page[key], str | None) for key in ("hardware", "date", "commit")) or not page["hardware"]:
        raise ValueError("hardware, date and commit are not text")
    lists = {name: page["tables"].get(name, []) for name in tables()}
    return page | {"tables": {name: [_row(row_class(name), values) for values in lists[name]] for name in lists}}


def _row(kind, values):
    """A row of that class; columns that it does not have, and samples, are ignored."""
    names = {field.name for field in fields(kind)}
    row = kind(**{name: value for name, value in values.items() if name in names and not isinstance(value, list)})
    check_types(row)
    return row


def _difference(machines, here):
    """How much a recorded machine differs from this one: 0 for nothing known, most for a GPU where there is none."""
    if not machines:
        return 0.0
    there, sets = machines[0], [set((machine.cpu_isa or "").split()) for machine in (machines[0], here)]
    gpu = 2.0 * (bool(there.gpu) != bool(here.gpu)) + (there.gpu != here.gpu)
    instructions = len(sets[0] ^ sets[1]) / max(len(sets[0] | sets[1]), 1)
    cores = abs(math.log2(max(there.logical_cores or 1, 1) / (here.logical_cores or 1)))
    return gpu + instructions + min(cores / 4, 1.0)
