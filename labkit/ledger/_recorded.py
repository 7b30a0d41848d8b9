"""Results of other, named hardware: one small JSON file for each under artifacts/recorded/, without samples."""

import functools
import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path

from labkit import device
from labkit.errors import LabError
from labkit.files import root, write_text
from labkit.ledger._store import as_frame, find, row_class, row_of, tables
from labkit.ledger.rows import Completion, Machine, Run

# What is kept; where a file would grow too large, the last ones are left out first.
KEPT = ("machines", "runs", "deployments", "trainings", "ceilings", "ratios", "latencies", "memories", "energies",
        "claims")  # fmt: skip
LARGEST = 200_000  # bytes of one file


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
    while len(text := json.dumps(page, indent=0)) > LARGEST:
        page["tables"].popitem()
    path = _folder(folder) / f"{_file_name(machine)}.json"
    write_text(path, text + "\n")
    return path


def recorded(table="deployments", *, most_different=None, folder=None):
    """Rows of a table that were measured on other, named hardware, as a DataFrame.

    Never mixed with the reader's own rows: the columns `hardware`, `recorded_on` and `recorded_commit` say whose they
    are.

    most_different  only of so many machines: those that differ most from this one
    """
    kind, pages = row_class(table), _pages(folder)
    if most_different is not None:
        here = device.describe()
        pages = sorted(pages, key=lambda page: _difference(page, here), reverse=True)[:most_different]
    found = [(row, page) for page in pages for row in page["tables"][table]]
    return as_frame(kind, [row for row, _ in found]).assign(
        hardware=[page["hardware"] for _, page in found],
        recorded_on=[page["date"] for _, page in found],
        recorded_commit=[page["commit"] for _, page in found],
    )


def recorded_rows(table, *, folder=None):
    """{"hardware, recorded date": the rows of a table measured there}, for the machines that have some."""
    places = {}
    for page in _pages(folder):
        if rows := page["tables"][table]:
            places.setdefault(f"{page['hardware']}, recorded {page['date']}", []).extend(rows)
    return places


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


def _pages(folder):
    """The recorded files as dicts whose "tables" have the rows as objects of their classes."""
    return [_page(path, path.stat().st_mtime_ns) for path in sorted(_folder(folder).glob("*.json"))]


@functools.cache
def _page(path, changed_ns):
    """One recorded file as it was at that time: it is read again only after it changed."""
    page = json.loads(path.read_text(encoding="utf-8"))
    for name, kind in tables().items():
        page["tables"][name] = [row_of(kind, row) for row in page["tables"].get(name, [])]
    return page


def _difference(page, here):
    """How much a recorded machine differs from this one: by its GPU first, then by its instructions and its cores."""
    (there,) = page["tables"]["machines"]
    own, other = (set((machine.cpu_isa or "").split()) for machine in (here, there))
    cores = abs(math.log2((there.logical_cores or 1) / (here.logical_cores or 1)))
    return there.gpu != here.gpu, len(own ^ other), cores
