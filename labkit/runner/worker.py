"""Executes one notebook with nbclient, in a process of its own, and tells the batch about each cell.

Called as `python -m labkit.runner.worker JSON`. Every line on standard output is the state as JSON: `total`, `started`
and `done` count code cells; at the end `error` says why the notebook did not get to its end, or is null.
The notebook is saved to the work file before each cell and at the end; the batch publishes it.
"""

import ctypes
import json
import os
import re
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

START_TIMEOUT_S = 120
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def main(text):
    """Run one notebook.

    text  JSON: source, work (paths of the notebook and of the file to save to), run_key, parameters, solutions (true,
          false, or "both": each exercise as it is given, then solved), kernel (traits of the `KernelManager`), cell_s,
          notebook_s (most seconds for a cell, and for all)
    """
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")  # not inherited by the kernel
    os.dup2(2, 1)  # whatever prints from here on goes to the log
    if sys.platform == "linux":  # descendants whose parent died become children of this process: none slips away
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    run = _Run(json.loads(text), channel)
    try:
        error = run.execute()
    except Exception as problem:
        error = _first_line(type(problem).__name__, problem)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    run.tell(error="; ".join(filter(None, [error, run.unsaved])) or None)


class _Run:
    """One run of a notebook: counts its code cells, saves it, and tells how far it is."""

    def __init__(self, job, channel):
        self.job, self.channel, self.ends = job, channel, time.monotonic() + job["notebook_s"]
        self.state = {"total": None, "started": 0, "done": 0}
        self.nb = self.client = self.kernel = self.unsaved = None

    def tell(self, **news):
        self.state |= news
        print(json.dumps(self.state), file=self.channel, flush=True)

    def execute(self):
        """Run the notebook; returns why it did not get to its end, or None. Errors that are not a cell's are raised."""
        # jsonschema would build a grammar for international web addresses, half of a worker's start; none is checked.
        sys.modules.setdefault("rfc3987_syntax", None)
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
        from traitlets.config import Config

        self.nb = nbformat.v4.upgrade(nbformat.read(self.job["source"], as_version=4))
        self.nb.cells = list(_cells(self.nb.cells, self.job["parameters"], self.job["solutions"]))
        self.nb.metadata["labkit"] = {**self.nb.metadata.get("labkit", {}), "run_key": self.job["run_key"]}
        code = [cell for cell in self.nb.cells if cell.cell_type == "code" and cell.source.strip()]
        self.tell(total=sum("skip-execution" not in _tags(cell) for cell in code))
        settings = {"kernel_name": "python3", "startup_timeout": START_TIMEOUT_S, "timeout_func": self.seconds_left}
        settings |= {"force_raise_errors": True, "raise_on_iopub_timeout": True}
        settings |= {"on_cell_execute": self.cell_starts, "on_cell_executed": self.cell_ended}
        self.client = NotebookClient(self.nb, config=Config({"KernelManager": self.job["kernel"]}), **settings)
        try:
            self.client.execute()
            return None
        except CellExecutionError as error:
            why = _first_line(error.ename, COLOURS.sub("", error.evalue))
        except CellTimeoutError:
            whole = time.monotonic() > self.ends
            limit = self.job["notebook_s" if whole else "cell_s"]
            why = f"the {'notebook' if whole else 'cell'} ran longer than its deadline of {limit:g} s"
        except DeadKernelError:
            why = f"the kernel {how_it_ended(self.kernel)}"
        finally:
            self.save(nbformat.v4.writes_json)  # for people to read; between the cells what takes least time
        return f"{why}, in code cell {self.state['started']} of {self.state['total']}"

    def seconds_left(self, cell):
        """The deadline of the next cell."""
        return max(min(self.job["cell_s"], self.ends - time.monotonic()), 0.1)

    def cell_starts(self, cell, cell_index):
        self.save()
        self.kernel = self.client.km.provisioner.process
        self.tell(started=self.state["started"] + 1)

    def cell_ended(self, cell, cell_index, execute_reply):
        if execute_reply and execute_reply["content"]["status"] == "ok":
            if self.job["solutions"] == "both":
                _keep_first_verdicts(self.job["run_key"])
            self.tell(done=self.state["done"] + 1)

    def save(self, written=json.dumps):
        """Save the notebook whole; that this fails must not hide how the run ends."""
        part, self.unsaved = Path(self.job["work"] + ".part"), None
        try:
            part.write_text(written(self.nb), encoding="utf-8")
            part.replace(self.job["work"])
        except OSError as error:
            self.unsaved = f"the executed notebook could not be saved: {error}"


def _tags(cell):
    return cell.metadata.get("tags", [])


def _cells(cells, parameters, solutions):
    """The cells to run: the parameters set after their defaults, as papermill does, and exercises solved when asked."""
    from nbformat.v4 import new_code_cell

    for cell in cells:
        if "injected-parameters" in _tags(cell):  # of an earlier run
            continue
        solves = solutions and cell.cell_type == "code" and "exercise" in _tags(cell)
        if not solves or solutions == "both":
            yield cell
        if solves:
            from labkit.lesson import exercises

            yield new_code_cell(exercises.fill(cell.source), metadata={"tags": ["exercise", "solution"]})
        if "parameters" in _tags(cell):
            lines = ["# Parameters", *(f"{name} = {value!r}" for name, value in parameters.items())]
            yield new_code_cell("\n".join(lines), metadata={"tags": ["injected-parameters"]})


def _keep_first_verdicts(run_key):
    """Keep the first verdict on each exercise under a key of its own: a later one of this run takes its place."""
    from labkit import ledger
    from labkit.ledger.rows import Answer

    first = f"{run_key}/as-given"
    known = {row.exercise_id for row in ledger.find(Answer, run_key=first)}
    new = [row for row in ledger.find(Answer, run_key=run_key) if row.exercise_id not in known]
    ledger.add(*(replace(row, run_key=first) for row in new))


def how_it_ended(process):
    """How a process ended, in words; None is one that nobody knows."""
    code = None if process is None else process.poll()
    if code is None:
        return "died"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"


def _first_line(kind, message):
    return f"{kind}: {message}".strip().split("\n")[0]


if __name__ == "__main__":
    main(sys.argv[1])
