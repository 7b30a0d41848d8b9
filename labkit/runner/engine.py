"""Run lessons with papermill: `papermill --engine labkit in.ipynb out.ipynb -p profile quick`.

Papermill injects the parameters, notes the times of the cells and writes the notebook. This engine
adds a deadline for each cell and for the whole notebook, and counts the cells that are done.

It also requires a proof of completion: a run counts only when its last cell wrote the completion
record to the ledger. Papermill by itself would take `sys.exit(0)` for a success.

Papermill imports this module at the end of its own import. So a module that imports this one has to
import papermill first.
"""

import os
import time
import uuid

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine
from papermill.exceptions import PapermillException
from traitlets.config import Config

from labkit import ledger
from labkit.ledger.rows import Completion
from labkit.runner.pictures import name_pictures
from labkit.runner.sources import defaults_of
from labkit.runner.tasks import LIMITS


class LessonFailed(PapermillException):
    """The error for a run of a notebook that does not count. Its message says why, in one line."""


class LessonEngine(NBClientEngine):
    """Papermill's engine with deadlines. A run counts only with a completion record.

    The last cell of the notebook writes this record to the ledger. The engine takes these options
    of `papermill.execute_notebook`, besides papermill's own:

    run_key            the key of this run in the ledger; None: a new one
    solutions          whether to fill the reference answers into the cells tagged `exercise`
    note_progress      function (code cells done, code cells in all), called before the first cell
                       and after each
    execution_timeout  most seconds for one cell; None means the profile's
    kernel             {name: value}: traits of the kernel manager
    """

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man,
        kernel_name,
        *,
        start_timeout,
        execution_timeout=None,
        run_key=None,
        solutions=False,
        note_progress=None,
        kernel=None,
        **options,
    ):
        """Execute a notebook. Papermill calls this.

        nb_man  papermill's notebook manager, whose `nb` is changed in place
        Raises  LessonFailed where the run does not count
        """
        _require_known_parameters(nb_man.nb)
        if solutions:
            _fill_exercises(nb_man.nb.cells)
        run = _LessonRun(nb_man.nb, run_key, cell_s=execution_timeout, note_progress=note_progress)
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
            log_output=options.get("log_output", False),
            stdout_file=options.get("stdout_file"),
            stderr_file=options.get("stderr_file"),
        )
        try:
            run.execute()
            name_pictures(nb_man.nb.cells)
        except LessonFailed:
            if run.cell:  # else papermill marks the cell, and all after it, as completed
                nb_man.cell_exception(run.cell)
            raise


def _require_known_parameters(nb):
    """Raise LessonFailed where papermill was given a parameter that the notebook does not have.

    Papermill itself would only warn.
    """
    parameters = defaults_of(nb.cells)
    unknown = [
        name for name in nb.metadata.papermill.get("parameters") or {} if name not in parameters
    ]
    if unknown and not parameters:
        raise LessonFailed(
            "no cell has the tag `parameters`: an editor may have dropped it, so "
            "that none can be set"
        )
    if unknown:
        raise LessonFailed(
            f"the notebook has no parameter {unknown[0]!r}; there are {', '.join(parameters)}"
        )


def _fill_exercises(cells):
    """Put the reference answers into the cells tagged `exercise`, in place."""
    # imported here: only some runs fill in answers, and the import is slow
    from labkit.lesson import exercises

    for cell in cells:
        if "exercise" in cell.metadata.tags:
            cell.source = exercises.fill(cell.source)
            cell.metadata.tags.append("solution")


class _LessonRun:
    """One run of a notebook: its deadlines, the number of cells done, and why it does not count.

    nb             the notebook
    run_key        the key of this run in the ledger; None: a new one
    cell_s         most seconds for one cell; None: those of the profile
    note_progress  function (code cells done, code cells in all), or None
    """

    def __init__(self, nb, run_key, *, cell_s, note_progress):
        parameters = nb.metadata.papermill.get("parameters") or {}
        limits = LIMITS.get(parameters.get("profile"), LIMITS["lab"])
        self.cell_s = cell_s or limits.cell_s
        self.notebook_s = limits.notebook_s
        self.deadline = time.monotonic() + self.notebook_s
        self.note_progress = note_progress
        self.run_key = run_key or f"papermill-{uuid.uuid4().hex[:12]}"
        nb.metadata.setdefault("labkit", {})["run_key"] = self.run_key
        # paths are removed: an executed notebook may name no folder of this machine
        for name in ("input_path", "output_path"):
            nb.metadata.papermill.pop(name, None)
        self.total = sum(
            cell.cell_type == "code" and bool(cell.source.strip()) for cell in nb.cells
        )
        self.started = 0
        self.done = 0
        self.client = None
        self.cell = None  # the cell that runs
        self.kernel = None  # the process of the kernel
        self.error = None

    def execute(self):
        """Run all cells.

        Raises  LessonFailed when a cell fails or is too slow, when the kernel dies, or when the
                last cell did not write the completion record
        """
        self._note_progress()
        environment = os.environ | {"LABKIT_RUN_KEY": self.run_key, "LABKIT_HEADLESS": "1"}
        try:
            self.client.execute(env=environment)
        except CellTimeoutError:
            if time.monotonic() > self.deadline:
                self.error = f"the notebook ran longer than its deadline of {self.notebook_s:g} s"
            else:
                self.error = f"the cell ran longer than its deadline of {self.cell_s:g} s"
        except DeadKernelError:
            self.error = f"the kernel {_end_in_words(self.kernel)}"
        if self.error:
            raise LessonFailed(f"{self.error}, in code cell {self.started} of {self.total}")
        self._require_record()

    def _require_record(self):
        """Raise LessonFailed unless the last cell wrote the completion record to the ledger."""
        records = ledger.find(Completion, run_key=self.run_key)
        if not records:
            raise LessonFailed(
                "the notebook ended without its completion record: does its last cell call recap()?"
            )
        position = records[0].cell_count
        if position != self.total:
            raise LessonFailed(
                f"the completion record was written in code cell {position}, not in the last one "
                f"({self.total}): "
                "recap() belongs into the last cell"
            )

    def seconds_left(self, cell):
        """Return the seconds that the next cell may take, at least 0.1."""
        return max(min(self.cell_s, self.deadline - time.monotonic()), 0.1)

    def cell_starts(self, cell, cell_index):
        self.cell = cell
        self.kernel = self.client.km.provisioner.process
        self.started += 1

    def cell_failed(self, cell, cell_index, execute_reply):
        reply = execute_reply["content"]
        self.error = f"{reply['ename']}: {reply['evalue']}".splitlines()[0].strip()

    def cell_ended(self, cell, cell_index, execute_reply):
        if execute_reply and execute_reply["content"]["status"] == "ok":
            self.done += 1
            self._note_progress()

    def _note_progress(self):
        if self.note_progress:
            self.note_progress(self.done, self.total)


def _end_in_words(process):
    """Return how a kernel's process ended: "was killed by signal 9", "ended with exit status 1".

    Returns "died" where the exit status is not known.
    """
    code = None if process is None else process.poll()
    if code is None:
        return "died"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
