"""Executes one notebook with papermill, in a process of its own, and tells the batch about each cell.

Called as `python -m labkit.runner.worker JSON`. Every line on standard output is a JSON message:
`{"total": n}`, `{"started": i}`, `{"done": i}` (code cells, counted from 1), and at the end `{"error": text or null}`.
The notebook is saved to the work file before each cell and at the end; the batch publishes it.
"""

import json
import os
import re
import sys
from pathlib import Path

from labkit.runner.keeper import adopt_orphans, reap_children

START_TIMEOUT_S = 120
SKIP_TAG = "skip-execution"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Reporter:
    """Counts the code cells of a run and sends a message for each step.

    channel  text file the messages go to
    """

    def __init__(self, channel):
        self.channel, self.total, self.started, self.done = channel, 0, 0, 0
        self.cell = self.client = self.kernel = None

    def send(self, **message):
        self.channel.write(json.dumps(message) + "\n")
        self.channel.flush()

    def begin(self, nb):
        self.total = sum(runs(cell) for cell in nb.cells)
        self.send(total=self.total)

    def cell_started(self, cell, cell_index):
        self.cell, self.started, self.kernel = cell, self.started + 1, self.client.km.provisioner.process
        self.send(started=self.started)

    def cell_done(self, cell, cell_index, execute_reply):
        if execute_reply and execute_reply["content"]["status"] == "ok":
            self.done += 1
            self.send(done=self.done)

    def place(self):
        return f"code cell {self.started} of {self.total}"


def runs(cell):
    """Whether papermill executes this cell."""
    return cell.cell_type == "code" and bool(cell.source.strip()) and SKIP_TAG not in cell.metadata.get("tags", [])


def main(text):
    """Run the job described by the JSON text: see `labkit.runner.pool.Job`."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")  # not inherited by the kernel
    os.dup2(2, 1)  # whatever prints from here on goes to the log
    adopt_orphans()
    job, reporter = json.loads(text), Reporter(channel)
    try:
        error = execute(job, reporter)
    except Exception as problem:
        error = f"{first_line(type(problem).__name__, problem)}, in {reporter.place()}"
    reap_children()
    reporter.send(error=error)


def execute(job, reporter):
    """Run the notebook; returns why it did not get to its end, or None. Errors that are not a cell's are raised."""
    # jsonschema would build a grammar for international web addresses here, half of a worker's start; none is checked.
    sys.modules.setdefault("rfc3987_syntax", None)
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    nb = nbformat.read(job["source"], as_version=4)
    if job["solutions"]:
        fill(nb)
    register_engine(job, reporter)
    try:
        options = {"engine_name": "labkit", "kernel_name": "python3", "language": "python", "progress_bar": False}
        nb = papermill.execute_notebook(nb, None, parameters=job["parameters"], **options)
    except PapermillExecutionError as error:
        return f"{first_line(error.ename, COLOURS.sub('', error.evalue))}, in {reporter.place()}"
    except DeadKernelError:
        return f"the kernel {how_it_died(reporter.kernel)} in {reporter.place()}"
    left = [output for cell in nb.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    return f"{left[0].ename}({left[0].evalue}) ended the run early, in {reporter.place()}" if left else None


def register_engine(job, reporter):
    """Teach papermill the engine "labkit": its own client, with a manager that saves whole files and tells no lies."""
    from papermill.clientwrap import PapermillNotebookClient
    from papermill.engines import Engine, papermill_engines
    from papermill.log import logger
    from traitlets.config import Config

    hooks = {"on_cell_execute": reporter.cell_started, "on_cell_executed": reporter.cell_done}
    # Without a prefix of its own each kernel would take the socket `kernel-ipc-1` in the current folder.
    transport = Config({"KernelManager": {"transport": "ipc", "ip": job["sockets"]}} if job["sockets"] else {})

    class LabEngine(Engine):
        @classmethod
        def execute_notebook(cls, nb, kernel_name, **kwargs):
            manager = manager_class()(nb, job, reporter)
            settings = {"kernel_name": kernel_name, "startup_timeout": START_TIMEOUT_S, "timeout": None}
            reporter.client = PapermillNotebookClient(manager, log=logger, config=transport, **settings, **hooks)
            manager.notebook_start()
            try:
                reporter.client.execute()
            finally:
                manager.notebook_complete()
            return manager.nb

    papermill_engines.register("labkit", LabEngine)


def manager_class():
    """Papermill's manager of a running notebook, with whole files and true states (made here: papermill is slow)."""
    from nbformat.v4 import writes_json
    from papermill.engines import NotebookExecutionManager

    class Manager(NotebookExecutionManager):
        def __init__(self, nb, job, reporter):
            super().__init__(nb, progress_bar=False)
            self.job, self.reporter = job, reporter

        def save(self, **kwargs):
            part = Path(self.job["work"] + ".part")
            part.write_text(writes_json(self.nb), encoding="utf-8")
            part.replace(self.job["work"])
            self.last_save_time = self.now()

        def notebook_start(self, **kwargs):
            self.nb.metadata.papermill.update(input_path=self.job["label"], output_path=None)  # not this machine's
            self.nb.metadata["labkit"] = {**self.nb.metadata.get("labkit", {}), "run_key": self.job["run_key"]}
            self.reporter.begin(self.nb)
            super().notebook_start(**kwargs)

        def notebook_complete(self, **kwargs):
            never_ran = [cell for cell in self.nb.cells if cell.metadata.papermill["status"] == self.PENDING]
            super().notebook_complete(**kwargs)
            for cell in never_ran:  # papermill calls these completed
                cell.metadata.papermill["status"] = self.PENDING
            if self.reporter.done < self.reporter.started:  # and the one in which the kernel died
                self.reporter.cell.metadata.papermill["status"] = self.FAILED
            self.save()

    return Manager


def how_it_died(process):
    """How the kernel process ended, in words."""
    code = None if process is None else process.poll()
    if code is None:
        return "died"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"


def fill(nb):
    """Put the reference answers into the cells tagged `exercise`."""
    from labkit.lesson import exercises

    for cell in nb.cells:
        if cell.cell_type == "code" and "exercise" in cell.metadata.get("tags", []):
            cell.source = exercises.fill(cell.source)


def first_line(kind, message):
    return f"{kind}: {message}".strip().split("\n")[0]


if __name__ == "__main__":
    main(sys.argv[1])
