"""Results of named other hardware: one JSON file each under artifacts/recorded/, written here, read by the ledger."""

import re
from datetime import UTC, datetime

from labkit import device, ledger
from labkit.errors import LabError
from labkit.files import root, write_json

TABLES = ("machines", "runs", "ceilings", "deployments", "claims", "latencies", "ratios", "trainings")


def record(hardware, *, folder=None):
    """Write the newest completed run of each lesson on this machine as recorded results; returns the path.

    hardware  how a reader would name it, such as "RTX 4090, Ryzen 7950X"
    """
    machine = device.describe()
    runs = newest_runs(machine.machine_key)
    if runs.empty:
        raise LabError(
            "There is nothing to record.",
            expected="a completed run on this machine",
            found="none in the ledger",
            fix="labkit run --profile lab",
        )
    frames = {name: ledger.load(name) for name in TABLES if name in ledger.tables()}
    keys = {"run_key": set(runs["run_key"]), "machine_key": {machine.machine_key}}
    page = {
        "hardware": hardware,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": device.commit(),
        "versions": {"python": machine.python, "torch": machine.torch, "driver": machine.gpu_driver},
        "tables": {name: records(frame, keys) for name, frame in frames.items()},
    }
    file_name = re.sub(r"[^a-z0-9]+", "-", hardware.lower()).strip("-")
    if not file_name:
        raise LabError(f"{hardware!r} does not name hardware.", expected="letters or digits", found=hardware)
    path = (folder or root() / "artifacts" / "recorded") / f"{file_name}.json"
    write_json(path, page)
    return path


def newest_runs(machine_key):
    """The newest completed run of each lesson on that machine."""
    runs = ledger.load("runs")
    done = runs["run_key"].isin(ledger.load("completions")["run_key"])
    return runs[done & (runs["machine_key"] == machine_key)].drop_duplicates("notebook", keep="last")


def records(frame, keys):
    """The rows of those runs (or of that machine) as JSON values; missing is null."""
    column = "run_key" if "run_key" in frame else "machine_key"
    chosen = frame[frame[column].isin(keys[column])].astype(object)
    return chosen.where(chosen.notna(), None).to_dict("records")
