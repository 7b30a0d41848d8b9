"""Results of other, named hardware: one small JSON file for each lesson under recorded/HARDWARE, without samples."""

import functools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import device
from labkit.errors import LabError
from labkit.files import artifacts, root, write_text
from labkit.ledger._store import as_frame, find, now, row_class, row_of, tables
from labkit.ledger.rows import EDITION, PROFILES, Completion, Machine, Run

if TYPE_CHECKING:
    import pandas

# {column of `recorded`: what a page calls it}
WHOSE = {"hardware": "hardware", "instructions": "instructions", "profile": "profile"}
WHOSE |= {"recorded_on": "date", "recorded_commit": "commit"}
KEPT = ("machines", "runs", "claims", "lesson_answers", "deployments", "trainings", "ceilings", "ratios", "latencies",
        "memories")  # fmt: skip


def record(
    hardware: str | None = None, *, profile: str = "lab", folder: str | Path | None = None
) -> dict[Path, str | None]:
    """Write the newest completed run of each lesson as recorded results: {path: None, or why it was left as it is}.

    hardware  how a reader would name this machine, such as "RTX 4090, Ryzen 7950X"; None: as it names itself
    profile   the profile whose runs are taken
    folder    where to; None: artifacts/recorded, or where LABKIT_ARTIFACTS says. A lesson is HARDWARE/LESSON.json

    Nothing is lost: a run of a commit with changes is not taken, and a file stays as it is where the new one would
    hold less. Raises LabError when nothing could be written.
    """
    machine = device.describe()
    hardware = hardware or machine.title
    newest = _newest_runs(machine, profile)
    place = Path(folder or artifacts() / "recorded") / _folder_name(hardware, machine)
    done = {}
    for run in newest.values():
        page = _new_page(run, hardware)
        path = place / f"{run.notebook}.json"
        done[path] = _why_not(path, page)
        if done[path] is None:
            write_page(path, page)
    if all(done.values()):
        raise LabError(
            "No lesson was recorded.",
            expected=f"a completed run of the profile {profile} and of a commit without changes, which holds at least "
            "what the file holds",
            found="; ".join(f"{path.stem}: {why}" for path, why in done.items()) or "none on this machine",
            fix=f"commit, and `labkit run --profile {profile}`; to replace a file all the same, delete it first",
        )
    return done


def _newest_runs(machine, profile):
    """{notebook: the newest completed run of a profile on machines of this kind}, ours alone."""
    ours = {row.machine_key for row in find(Machine) if row.kind == machine.kind}
    runs = completed(profile=profile, edition=EDITION, reported_by=None)
    return {run.notebook: run for run in runs if run.machine_key in ours}


def completed(**wanted):
    """The runs whose fields equal `wanted` and that went to their end, oldest first."""
    done = {row.run_key for row in find(Completion)}
    runs = [run for run in find(Run, **wanted) if run.run_key in done]
    return sorted(runs, key=lambda run: run.started_utc)


def _new_page(run, hardware):
    """What the file of a lesson holds."""
    (machine,) = find(Machine, machine_key=run.machine_key)
    rows = {name: _rows(row_class(name), {run.run_key, run.machine_key}) for name in KEPT}
    return page_of(machine, rows, hardware=hardware, profile=run.profile, commit=run.commit)


def page_of(machine, rows, *, hardware, profile, commit):
    """What a file of recorded results holds: what was measured, {table: rows}, and where."""
    return {
        "hardware": hardware,
        "instructions": _strongest(machine),
        "date": now()[:10],
        "profile": profile,
        "commit": commit,
        "tables": {name: [_known(row) for row in each] for name, each in rows.items()},
    }


def write_page(path, page):
    """Write what `page_of` gives as a file of recorded results."""
    write_text(path, json.dumps(page, indent=0) + "\n")


def _why_not(path, page):
    """Why a file is not written: the commit has changes, or the file that is there holds more; else None."""
    if not page["commit"] or page["commit"].endswith("-dirty"):
        return f"its run is of the commit {page['commit']}: the course had changes of its own"
    if not path.exists():
        return None
    there = json.loads(path.read_bytes())
    if PROFILES.index(there["profile"]) > PROFILES.index(page["profile"]):
        return f"the file holds the profile {there['profile']}"
    gone = [name for name, rows in there["tables"].items() if rows and not page["tables"].get(name)]
    return f"the file has {' and '.join(gone)}, the new run has none" if gone else None


def recorded(table: str, *, folder: str | Path | None = None) -> "pandas.DataFrame":
    """Rows of a table that were measured on other, named hardware, as a DataFrame.

    Never mixed with the reader's own rows: the columns `hardware`, `instructions` (the last of its instruction sets),
    `profile`, `recorded_on` and `recorded_commit` say whose they are.
    """
    kind = row_class(table)
    found = [(row, page) for page in _pages(folder) for row in page["tables"][table]]
    return as_frame(kind, [row for row, _ in found]).assign(
        **{column: [page.get(key) for _, page in found] for column, key in WHOSE.items()}
    )


def recorded_rows(table):
    """{"hardware, instructions, recorded date": the rows of a table measured there}, for machines that have some."""
    places = {}
    for page in _pages(None):
        if rows := page["tables"][table]:
            kind = ", ".join(filter(None, (page["hardware"], page.get("instructions"))))
            places.setdefault(f"{kind}, recorded {page['date']}", []).extend(rows)
    return places


def pages_of(machine, folder):
    """The tables of each recorded file of machines of one kind: {name of a table: its rows}."""
    every = (page["tables"] for page in _pages(folder))
    return [tables for tables in every if machine.kind in (row.kind for row in tables["machines"])]


def _folder_name(hardware, machine):
    """Such as amd-epyc-2-cores-avx512_bf16: two machines of one kind are kept apart by the names that people give."""
    plain = re.sub(r"\(.*?\)|@.*?(?=,|$)|\b(CPU|Processor)\b", " ", hardware)
    return re.sub(r"[^a-z0-9_]+", "-", f"{plain} {_strongest(machine)}".lower()).strip("-") or "machine"


def _strongest(machine):
    """The last of the machine's instruction sets: the one that says most."""
    return (machine.cpu_isa or "").replace(" fma", "").rpartition(" ")[2]


def _rows(kind, keys):
    """The rows of these runs, or of this machine."""
    return [row for row in find(kind) if (getattr(row, "run_key", None) or row.machine_key) in keys]


def _known(row):
    """A row as a dict without samples and without what is unknown.

    What the row of the run says (machine, commit) is not said again in each of its measurements.
    """
    again = () if isinstance(row, (Machine, Run)) else ("machine_key", "commit")
    return {
        name: value
        for name, value in vars(row).items()
        if value is not None and name not in again and type(value) is not tuple
    }


def _pages(folder):
    """The recorded files as dicts whose "tables" have the rows as objects of their classes."""
    folders = [Path(folder)] if folder else dict.fromkeys([root() / "artifacts" / "recorded", artifacts() / "recorded"])
    files = [path for each in folders for path in sorted(each.rglob("*.json"))]
    return [_page(path, path.stat().st_mtime_ns) for path in files]


@functools.cache
def _page(path, changed_ns):
    """One recorded file as it was at that time: it is read again only after it changed."""
    page = json.loads(path.read_bytes())
    for name, kind in tables().items():
        page["tables"][name] = [row_of(kind, row) for row in page["tables"].get(name, [])]
    return page
