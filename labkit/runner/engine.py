"""Papermill's engine for lessons: `papermill --engine labkit in.ipynb out.ipynb -p profile quick`.

Papermill injects the parameters, notes the times of the cells and writes the notebook. This engine adds a deadline for
each cell and for the whole notebook, the number of cells done, and the proof: a run counts only when its last cell
wrote the completion record. Papermill alone takes `sys.exit(0)` for a success.

Papermill imports this module at the end of its own import. A module that imports this one imports papermill first.
"""

import json
import os
import time
import uuid
from functools import partial
from pathlib import Path

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine
from papermill.exceptions import PapermillException
from traitlets.config import Config

from labkit import ledger
from labkit.ledger.rows import Completion
from labkit.lesson import exercises
from labkit.lesson.pages import name_pictures
from labkit.runner.process import how_it_ended
from labkit.runner.tasks import PROFILES


class LessonFailed(PapermillException):
    """Why a notebook did not come to its end, in one line."""


class LessonEngine(NBClientEngine):
    """Papermill's engine with deadlines, and with the completion record as the only proof.

    It takes these options of `papermill.execute_notebook`, beside papermill's own:

    solutions          fill the reference answers into the cells tagged `exercise`
    tell               called with {"total", "started", "done"}, numbers of code cells, whenever one of them changes
    execution_timeout  most seconds for one cell; None means the profile's
    kernel             traits of the kernel manager
    """

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, *, start_timeout, kernel=None, solutions=False, **options):
        for cell in nb_man.nb.cells:
            if solutions and "exercise" in cell.metadata.tags:
                cell.source = exercises.fill(cell.source)
                cell.metadata.tags.append("solution")
        run = _LessonRun(nb_man.nb, options)
        nb_man.save = partial(_save, nb_man)
        run.client = PapermillNotebookClient(
            nb_man,
            kernel_name=kernel_name,
            startup_timeout=start_timeout,
            config=Config({"KernelManager": kernel or {}}),
            force_raise_errors=True,
            timeout_func=run.seconds_left,
            on_cell_execute=run.cell_starts,
            on_cell_executed=run.cell_ended,
            on_cell_error=run.cell_failed,
            **{name: options.get(name) for name in ("log_output", "stdout_file", "stderr_file")},
        )
        try:
            run.execute()
            name_pictures(nb_man.nb.cells)
        except LessonFailed:
            if run.cell:  # papermill marks it, and all after it, as completed
                nb_man.cell_exception(run.cell)
            raise


class _LessonRun:
    """How far one run of a notebook is, and why it does not count."""

    def __init__(self, nb, options):
        parameters = nb.metadata.papermill.get("parameters") or {}
        cell_s, self.notebook_s, _ = PROFILES.get(parameters.get("profile"), PROFILES["lab"])
        self.cell_s = options.get("execution_timeout") or cell_s
        self.ends = time.monotonic() + self.notebook_s
        self.tell = options.get("tell") or (lambda state: None)
        self.key = os.environ.get("LABKIT_RUN_KEY") or f"papermill-{uuid.uuid4().hex[:12]}"
        nb.metadata.setdefault("labkit", {})["run_key"] = self.key
        for place in ("input_path", "output_path"):  # an executed notebook names no folder of this machine
            nb.metadata.papermill.pop(place, None)
        total = sum(cell.cell_type == "code" and bool(cell.source.strip()) for cell in nb.cells)
        self.state = {"total": total, "started": 0, "done": 0}
        self.client = self.cell = self.kernel = self.error = None

    def execute(self):
        """Run all cells; LessonFailed when one fails, or when the last one did not write the completion record."""
        environment = os.environ | {"LABKIT_RUN_KEY": self.key, "LABKIT_HEADLESS": "1"}
        try:
            self.client.execute(env=environment)
        except CellTimeoutError:
            whole = time.monotonic() > self.ends
            limit_s = self.notebook_s if whole else self.cell_s
            self.error = f"the {'notebook' if whole else 'cell'} ran longer than its deadline of {limit_s:g} s"
        except DeadKernelError:
            self.error = f"the kernel {how_it_ended(self.kernel)}"
        if self.error:
            raise LessonFailed(f"{self.error}, in code cell {self.state['started']} of {self.state['total']}")
        self._require_record()

    def _require_record(self):
        found = ledger.find(Completion, run_key=self.key)
        if not found:
            raise LessonFailed("the notebook ended without its completion record: does its last cell call recap()?")
        place, last = found[0].cell_count, self.state["total"]
        if place != last:
            where = f"the completion record was written in code cell {place}, not in the last one ({last})"
            raise LessonFailed(f"{where}: recap() belongs into the last cell")

    def seconds_left(self, cell):
        """The deadline of the next cell."""
        return max(min(self.cell_s, self.ends - time.monotonic()), 0.1)

    def cell_starts(self, cell, cell_index):
        self.cell = cell
        self.kernel = self.client.km.provisioner.process
        self.state["started"] += 1
        self.tell(self.state)

    def cell_failed(self, cell, cell_index, execute_reply):
        reply = execute_reply["content"]
        self.error = f"{reply['ename']}: {reply['evalue']}".splitlines()[0].strip()

    def cell_ended(self, cell, cell_index, execute_reply):
        if execute_reply and execute_reply["content"]["status"] == "ok":
            self.state["done"] += 1
            self.tell(self.state)


def _save(nb_man):
    """Save the notebook whole. Papermill's own `save` checks it again, which takes longer than most cells."""
    path = nb_man.output_path
    if path:
        part = Path(f"{path}.part")
        part.write_text(json.dumps(nb_man.nb))
        part.replace(path)
    nb_man.last_save_time = nb_man.now()
