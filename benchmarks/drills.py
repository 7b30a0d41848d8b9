"""Drills for the runner: small workbooks that are killed or left early, and what to look for
afterwards.

The tests run them a few times, `benchmarks/run.py` many times.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from labkit import ledger
from labkit.ledger.rows import Attempt, Batch, Memory

COURSE = Path(__file__).resolve().parents[1]
PARAMETERS = 'profile = "lab"\nseed = 0'
# What recap() does: the record of the last cell. The number of the present cell is the length of
# the input history.
RECORD = """
import os
from labkit import ledger
from labkit.ledger.rows import Completion

key, count = os.environ["LABKIT_RUN_KEY"], len(get_ipython().history_manager.input_hist_raw) - 1
done = {"notebook": "drill", "seconds": 0.1, "finished_utc": "2026-01-01T00:00:00"}
ledger.add(Completion(run_key=key, cell_count=count, **done))
"""
# Says that it ran, writes a row, and only then says that the row is safe.
WORK = """
import os, pathlib, time
from labkit import ledger
from labkit.ledger.rows import Memory

def say(file, text):
    with open(pathlib.Path(os.environ["LABKIT_ROOT"], file), "a", encoding="utf-8") as said:
        said.write(text + "\\n")

key = os.environ["LABKIT_RUN_KEY"]
say("runtime.txt", os.environ["JUPYTER_RUNTIME_DIR"])  # a connection file there holds the key of this kernel
say("started.txt", key)
for number in range(10):
    ledger.add(Memory(run_key=key, name=f"step-{number}", device="cpu", threads=1, peak_bytes=number))
    say("acknowledged.txt", f"{key} step-{number}")
    time.sleep(0.05)
"""
ENDLESS = "while True:\n    try:\n        pass\n    except BaseException:\n        pass"
# Ways to leave a notebook before its end; none may count as passed. {name: (cells, what the reason
# must say)}
EARLY_EXITS = {
    "sys-exit": (["import sys", "sys.exit(0)", RECORD], "SystemExit"),
    "quit": (["quit()", "import time; time.sleep(5)", RECORD], "kernel"),
    "os-exit": (["import os; os._exit(0)", RECORD], "exit status 0"),
    "killed-kernel": (
        ["import os, signal; os.kill(os.getpid(), signal.SIGKILL)", RECORD],
        "signal 9",
    ),
    "exec": (["import os; os.execv('/bin/true', ['true'])", RECORD], "kernel"),
    "killed-worker": (
        ["import os, signal; os.kill(os.getppid(), signal.SIGKILL)", RECORD],
        "worker",
    ),
    "endless-loop": ([ENDLESS, RECORD], "deadline"),
    "exception": (["1 / 0", RECORD], "ZeroDivisionError"),
    "recap-too-early": ([RECORD, "1", "2"], "completion record"),
    "recap-then-exit": ([RECORD, "import sys; sys.exit(0)", "2"], "SystemExit"),
    "no-recap": (["1", "2"], "completion record"),
    "swallowed": (
        ["import sys\ntry:\n    sys.exit(0)\nexcept SystemExit:\n    pass"],
        "completion record",
    ),
    "empty": ([], "completion record"),
}


def write_workbook(folder, notebooks, *, measures=()):
    """Write notebooks below `folder`/notebooks, each with a `parameters` cell before its own cells.

    notebooks  {name: [source of a code cell, or (source, tags), ...]}
    measures   names of those that must run alone
    """
    place = Path(folder) / "notebooks"
    place.mkdir(parents=True, exist_ok=True)
    exercises = place / "exercises"  # where the checks of the course's exercises are looked for
    if not exercises.exists():
        exercises.symlink_to(COURSE / "notebooks" / "exercises")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for name, sources in notebooks.items():
        cells = []
        for number, cell in enumerate([(PARAMETERS, ["parameters"]), *sources]):
            source, tags = cell if isinstance(cell, tuple) else (cell, [])
            about = {
                "cell_type": "code",
                "id": f"cell-{number}",
                "execution_count": None,
                "outputs": [],
            }
            cells.append({**about, "metadata": {"tags": tags}, "source": source})
        page = {"nbformat": 4, "nbformat_minor": 5, "cells": cells}
        page["metadata"] = {"labkit": {"measures": name in measures}, "kernelspec": kernel}
        (place / f"{name}.ipynb").write_text(json.dumps(page), encoding="utf-8")


def start_batch(folder, **settings):
    """Start a batch on the workbook in `folder` as a process of its own, in its own process group.

    It minds Ctrl-C, also where this process does not: what a script starts in the background is
    born deaf to it.
    """
    code = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += (
        f"from labkit.runner import run_batch\nsys.exit(0 if run_batch(**{settings!r}).ok else 1)"
    )
    how = {"env": environment(folder), "stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with (Path(folder) / "batch.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdout=log, start_new_session=True, **how
        )


def environment(folder):
    """The environment of a drill: its own folders, and a copy of labkit that stays as it is
    while it runs.
    """
    copy = Path(folder) / "source"
    if not copy.exists():
        # Bytecode goes along, without what another Python has just half written.
        shutil.copytree(
            Path(ledger.__file__).parent.parent,
            copy / "labkit",
            ignore=shutil.ignore_patterns("*.pyc.*"),
        )
    own = {
        "LABKIT_ROOT": str(folder),
        "LABKIT_ARTIFACTS": str(Path(folder) / "artifacts"),
        "PYTHONPATH": str(copy),
    }
    return {**os.environ, **own}


def ledger_of(folder):
    return Path(folder) / "artifacts" / "ledger.sqlite"


def alive_after(folder, seconds=5.0):
    """How many processes of the workbook, its kernels and their children live after `seconds`;
    early when none does.
    """
    deadline = time.monotonic() + seconds
    while (left := marked("LABKIT_ROOT", str(folder))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return len(left)


def marked(name, value):
    """Living processes whose environment says `name=value`, and all their descendants; never the
    caller.
    """
    processes = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                processes |= {process, *process.children(recursive=True)}
    return [process for process in processes if process.pid != os.getpid()]


def wait_for(condition, seconds=400):
    """Wait until `condition()` is true; an AssertionError when it does not become so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.05)


def torn_files(folder):
    """Executed notebooks that are not whole."""
    return [path for path in Path(folder).rglob("executed/[!.]*/*.ipynb") if not _whole(path)]


def _whole(path):
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["cells"])
    except (ValueError, KeyError):
        return False


def lost_rows(folder):
    """Rows that a notebook was told are safe and that the ledger does not have."""
    stored = {f"{row.run_key} {row.name}" for row in ledger.find(Memory, path=ledger_of(folder))}
    return sorted(lines(folder, "acknowledged.txt") - stored)


def lines(folder, name):
    path = Path(folder) / name
    return set(path.read_text(encoding="utf-8").split("\n")[:-1]) if path.exists() else set()


def newest_batch(folder):
    """The `Batch` that started last, or None."""
    return max(
        ledger.find(Batch, path=ledger_of(folder)), key=lambda row: row.started_utc, default=None
    )


def attempts(folder):
    """The `Attempt` rows of the newest batch."""
    batch = newest_batch(folder)
    return ledger.find(Attempt, path=ledger_of(folder), batch_key=batch.batch_key) if batch else []


def finished(folder):
    """{notebook: run key} of what the newest batch has behind it: a passed attempt, or a
    published output.
    """
    keys = {row.notebook: row.run_key for row in attempts(folder) if row.status == "passed"}
    started = {row.run_key for row in attempts(folder)}
    for path in (Path(folder) / "artifacts" / "executed" / "quick").glob("*_drill.ipynb"):
        key = json.loads(path.read_text(encoding="utf-8"))["metadata"]["labkit"]["run_key"]
        if key in started:
            keys[path.stem] = key
    return keys


class KillDrill:
    """Kills batches at random moments and counts what that broke.

    folder   an empty folder for the workbook
    rng      `random.Random`
    """

    def __init__(self, folder, rng=None, *, notebooks=4):
        self.folder, self.rng = Path(folder), rng or random.Random(0)
        (self.folder / "artifacts").mkdir(parents=True)
        write_workbook(folder, {f"{n:02}_drill": [WORK, "x = 1", RECORD] for n in range(notebooks)})
        self.count = dict.fromkeys(
            ("kills", "resumed", "torn", "lost", "kept", "rerun", "alive"), 0
        )

    def run(self, kills, *, within_s=10.0):
        """Kill `kills` times, each batch one to three times, then let it end. Returns the counts.

        within_s  a kill comes this long after the start, or earlier
        """
        while self.count["kills"] < kills:
            first = self.count["kills"]
            for number in range(min(kills - first, self.rng.randint(1, 3))):
                self.go_on(self.rng.uniform(0.3, within_s), fresh=number == 0)
            if self.go_on(None) == 0:
                self.count["resumed"] += self.count["kills"] - first
        return self.count

    def go_on(self, kill_after_s, *, fresh=False):
        """Start or continue a batch, kill it (or its whole group) unless None, and look at what
        it left behind.
        """
        newest = newest_batch(self.folder)
        continued = not fresh and newest and newest.status != "passed"
        before = finished(self.folder) if continued else {}
        batch = start_batch(self.folder, fresh=fresh)
        try:
            batch.wait(timeout=kill_after_s)
        except subprocess.TimeoutExpired:
            (os.kill if self.rng.random() < 0.5 else os.killpg)(batch.pid, signal.SIGKILL)
        self.count["kills"] += batch.wait() == -signal.SIGKILL
        self.count["alive"] += alive_after(self.folder)
        again = reran(before, finished(self.folder), started=lines(self.folder, "started.txt"))
        self.count["rerun"] += len(again)
        self.count["kept"] += len(before) - len(again)
        self.count["torn"] += len(torn_files(self.folder))
        self.count["lost"] += len(lost_rows(self.folder))
        return batch.returncode


def reran(before, after, *, started):
    """Names of notebooks that were finished `before` and have another run `after`, or started again
    in between.

    before, after  {notebook: run key}; a run key ends in the number of the attempt
    started        run keys the notebooks themselves wrote down
    """
    newest = {}
    for key in sorted(started, key=_number):
        newest[key.rpartition("/")[0]] = key
    return [
        name
        for name, key in before.items()
        if after.get(name) != key or newest.get(key.rpartition("/")[0], key) != key
    ]


def _number(run_key):
    return int(run_key.rpartition("/")[2])
