"""Executes one notebook with papermill: the function that `labkit.runner.local` calls in a
process of its own.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from labkit import ledger
from labkit.device import fits_socket
from labkit.device.child import own_folder
from labkit.ledger.rows import Attempt
from labkit.runner.tasks import NotebookTask

KERNEL_START_LIMIT_S = 120
# a kernel clears up within moments; then Python takes seconds to forget all it imported
KERNEL_END_LIMIT_S = 1


@dataclass(frozen=True)
class Execution:
    """What became of a notebook.

    reason   why the run does not count, in one line; None where it passed
    page     the notebook as far as it ran, as JSON; None where there is none
    attempt  the `Attempt` as the ledger has it, with the number of cells
    """

    reason: str | None
    page: str | None
    attempt: Attempt


def execute(
    task: NotebookTask,
    attempt: Attempt,
    *,
    solutions: bool,
    cell_deadline_s: float | None,
    environment: dict[str, str],
) -> Execution:
    """Have papermill execute a notebook in its own folder, and note in the ledger how many cells
    are done.

    solutions        fill in the reference answers
    cell_deadline_s  most seconds for one cell; None means the profile's
    environment      variables for the kernel, beside those of this process
    """
    _set_environment(environment)
    # Papermill imports the engine as it is imported itself; imported first, the engine would meet a
    # half papermill.
    import papermill

    from labkit.runner.engine import LessonFailed

    latest = attempt

    def note_progress(done, total):
        nonlocal latest
        latest = replace(attempt, cells_done=done, cells_total=total)
        ledger.add(latest)

    # Papermill saves the notebook after each cell, so that a failed one shows how far it came.
    notebook = task.source.path.resolve()
    executed = own_folder() / "executed.ipynb"
    connection = own_folder() / "kernel.json"
    reason = None
    try:
        papermill.execute_notebook(
            _without_parameters(notebook),
            _without_parameters(executed),
            task.parameters,
            engine_name="labkit",
            kernel_name="python3",
            language="python",
            cwd=notebook.parent,
            progress_bar=False,
            start_timeout=KERNEL_START_LIMIT_S,
            execution_timeout=cell_deadline_s,
            run_key=attempt.run_key,
            solutions=solutions,
            note_progress=note_progress,
            kernel={
                "connection_file": str(connection),
                "shutdown_wait_time": KERNEL_END_LIMIT_S,
                "transport": _transport(connection),
            },
        )
    except LessonFailed as error:
        reason = str(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    page = executed.read_text(encoding="utf-8") if executed.exists() else None
    return Execution(reason, page, latest)


def _set_environment(environment):
    """Set the environment of this process, which the kernel inherits."""
    os.environ.update(environment)
    os.environ["JUPYTER_RUNTIME_DIR"] = str(own_folder())
    os.environ["IPYTHONDIR"] = str(own_folder() / "ipython")
    # The kernel of this Python, not one of the same name that the user has elsewhere.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    os.environ.pop("JUPYTER_PATH", None)


def _transport(connection: Path) -> str:
    """Return how a kernel is reached whose connection file has this path: by sockets that lie
    beside it, or by ports.

    No other program can take a socket's name. But the name may be too long: a cluster gives each of
    its jobs a temporary folder that lies deep.
    """
    longest = connection.with_name(f"{connection.stem}-ipc-00000")
    return "ipc" if fits_socket(longest) else "tcp"


def _without_parameters(path: Path) -> str:
    """Return a path in which papermill does not take braces for names of parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")
