"""Copy runs from the ledger into recorded results: one JSON file for each experiment and machine.

Recorded results are kept with the course, so that a reader can see what other hardware measured.
"""

import json
import re
from pathlib import Path

from labkit import device
from labkit.errors import LabError
from labkit.files import artifacts, write_text
from labkit.ledger._recorded import stored_pages
from labkit.ledger._store import find, now, row_class
from labkit.ledger.rows import EDITION, PROFILES, Completion, Machine, Measured, Run
from labkit.ledger.slugs import slug

TABLES = ("machines", "runs", "claims", "lesson_answers", "deployments", "trainings", "ratios", "latencies",
          "memories")  # fmt: skip


def record(
    hardware: str | None = None,
    *,
    profile: str = "lab",
    folder: str | Path | None = None,
    experiment: str | None = None,
) -> dict[Path, str | None]:
    """Write the newest completed run of each lesson and experiment as recorded results.

    Recorded results are JSON files that come with the course: what one experiment measured on one
    machine, under the machine's name.

    hardware    how a reader would name this machine, such as "RTX 4090, Ryzen 7950X"; None: the
                name that the machine gives itself
    profile     "quick", "lab" or "paper": only runs of this profile are taken
    folder      where to write HARDWARE/EXPERIMENT.json; None: `recorded` in the folder of
                artifacts, which LABKIT_ARTIFACTS may name
    experiment  only this experiment or lesson, by its slug; None: all that were run
    returns     {path: None if the file was written, else the reason why it was not}
    Raises      LabError where no file could be written

    A run is not recorded if files of the course had been changed without a commit. An existing file
    is not replaced by a run that lacks a table of the file, or by a run of a smaller profile.
    """
    # The newest runs of this kind of machine.
    machine = device.describe()
    hardware = hardware or machine.title
    newest = _newest_runs(machine, profile)
    if experiment:
        newest = {name: run for name, run in newest.items() if name == experiment}

    # A page for each, unless its file holds more.
    hardware_folder = Path(folder or artifacts() / "recorded") / _folder_name(hardware, machine)
    reasons = {}
    for name, run in newest.items():
        page = _new_page(run, hardware, name)
        path = _path(hardware_folder, name)
        reasons[path] = _reason_against_writing(path, page)
        if reasons[path] is None:
            write_page(path, page)
    if all(reasons.values()):
        raise LabError(
            "Nothing was recorded.",
            expected=f"a completed run of the profile {profile} and of a commit without changes, "
            "which holds at least "
            "what the file holds",
            found="; ".join(f"{path.stem}: {why}" for path, why in reasons.items())
            or "none on this machine",
            fix=f"commit, and `labkit run --profile {profile}`; to replace a file all the same, "
            "delete it first",
        )
    return reasons


def _newest_runs(machine, profile):
    """Return {slug: `Run`}: the newest completed run of each lesson and experiment.

    Only runs of this profile count, on this machine or another one of the same kind
    (`Machine.kind`). Runs that others reported do not count.
    """
    ours = {row.machine_key for row in find(Machine) if row.kind == machine.kind}
    runs = completed(profile=profile, edition=EDITION, reported_by=None)
    return {slug(run.notebook, run.edition): run for run in runs if run.machine_key in ours}


def completed(**criteria):
    """Return the runs that went to their end and match the criteria, the oldest first.

    criteria  field=value, as for `find`
    """
    completed_keys = {row.run_key for row in find(Completion)}
    runs = [run for run in find(Run, **criteria) if run.run_key in completed_keys]
    return sorted(runs, key=lambda run: run.started_utc)


def _new_page(run, hardware, experiment):
    """Return the results of a run as a page, the dict that `page_of` describes.

    run         the `Run`
    hardware    name of the machine, for readers
    experiment  the slug of the lesson or experiment
    """
    (machine,) = find(Machine, machine_key=run.machine_key)
    rows = {name: _rows(row_class(name), {run.run_key, run.machine_key}) for name in TABLES}
    return page_of(
        machine,
        rows,
        hardware=hardware,
        profile=run.profile,
        commit=run.commit,
        experiment=experiment,
    )


def page_of(machine, rows, *, hardware, profile, commit, experiment):
    """Return a page: what one experiment measured on one machine, as a dict that JSON can hold.

    Its keys are "hardware", "instructions" (the machine's most advanced instruction set), "date",
    "profile", "commit", "edition", "experiment", "network" and "tables", which is {table name: list
    of rows as dicts}.

    machine  the `Machine` row
    rows     {table name: rows}
    hardware, profile, commit, experiment  the values of these keys
    """
    tables = {}
    for name, of_table in rows.items():
        tables[name] = [_stored(row) for row in of_table]
    return {
        "hardware": hardware,
        "instructions": _strongest(machine),
        "date": now()[:10],
        "profile": profile,
        "commit": commit,
        "edition": EDITION,
        "experiment": experiment,
        "network": _network(rows),
        "tables": tables,
    }


def _network(rows):
    """Return the network that all measured rows name; None if they name several or none.

    rows  {table name: rows}
    """
    measured = [row for of_table in rows.values() for row in of_table if isinstance(row, Measured)]
    networks = {row.network for row in measured}
    return networks.pop() if len(networks) == 1 else None


def write_page(path, page):
    """Write a page, the dict that `page_of` returned, as a JSON file."""
    write_text(path, json.dumps(page, indent=0) + "\n")


def _path(folder, experiment):
    """Return the path of an experiment's file in a folder.

    The file is EXPERIMENT.json. If the folder still holds a file of this experiment that the third
    edition of the course named by the lesson's number, the path of that file is returned.
    """
    for path in sorted(folder.glob("[0-9][0-9]_*.json")):
        if [page["experiment"] for page in stored_pages(path)] == [experiment]:
            return path
    return folder / f"{experiment}.json"


def _reason_against_writing(path, page):
    """Return why a page may not be written to a path, as a text; None where it may be written.

    A page is not written if files of the course had been changed without a commit. It is not
    written over a file with several experiments, with a larger profile, or with a table that the
    page lacks.
    """
    if not page["commit"] or page["commit"].endswith("-dirty"):
        return f"its run is of the commit {page['commit']}: the course had changes of its own"
    if not path.exists():
        return None
    earlier, *further_pages = stored_pages(path)
    if further_pages:
        return "the file holds several experiments"
    if PROFILES.index(earlier["profile"]) > PROFILES.index(page["profile"]):
        return f"the file holds the profile {earlier['profile']}"
    lost = [
        name for name, rows in earlier["tables"].items() if rows and not page["tables"].get(name)
    ]
    return f"the file has {' and '.join(lost)}, the new run has none" if lost else None


def _folder_name(hardware, machine):
    """Return the name of a machine's folder, such as amd-epyc-2-cores-avx512_bf16.

    Two machines of the same kind share a folder, unless `hardware` names them differently.
    """
    plain = re.sub(r"\(.*?\)|@.*?(?=,|$)|\b(CPU|Processor)\b", " ", hardware)
    return (
        re.sub(r"[^a-z0-9_]+", "-", f"{plain} {_strongest(machine)}".lower()).strip("-")
        or "machine"
    )


def _strongest(machine):
    """Return the machine's most advanced instruction set, the last in `cpu_isa`, or ""."""
    return (machine.cpu_isa or "").replace(" fma", "").rpartition(" ")[2]


def _rows(kind, keys):
    """Return the rows of class `kind` of the runs and machines with these keys."""
    return [row for row in find(kind) if (getattr(row, "run_key", None) or row.machine_key) in keys]


def _stored(row):
    """Return a row as a dict for a page, without samples and without unknown values.

    `machine_key` and `commit` are kept in the row of the run only, and left out of each
    measurement. The picture of an answer is left out: its file is not recorded.
    """
    repeated = (
        ()
        if isinstance(row, (Machine, Run))
        else ("machine_key", "commit", "picture", "picture_words")
    )
    return {
        name: value
        for name, value in vars(row).items()
        if value is not None and name not in repeated and type(value) is not tuple
    }
