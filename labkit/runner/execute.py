"""Execute one notebook with papermill, in a process that `labkit.runner.local` starts."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from labkit import ledger
from labkit.device import fits_socket
from labkit.device.child import own_folder
from labkit.errors import first_line
from labkit.ledger.rows import Attempt
from labkit.runner.tasks import NotebookTask

KERNEL_START_LIMIT_S = 120
# a kernel clears up within moments; then Python takes seconds to forget all it imported
KERNEL_END_LIMIT_S = 1


@dataclass(frozen=True)
class Execution:
    """The result of executing a notebook.

    reason   why the run does not count, in one line; None where it passed
    page     the executed notebook as JSON, up to the cell that failed; None where there is none
    attempt  the `Attempt` as it is in the ledger, with the number of cells done
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
    """Execute a notebook with papermill, and record in the ledger how many cells are done.

    Errors are not raised: the `Execution` has the reason.

    task             the notebook and its parameters
    attempt          the `Attempt` row of this start of the task
    solutions        whether to fill in the reference answers
    cell_deadline_s  most seconds for one cell; None means the profile's
    environment      {name: value} of variables that the kernel gets besides those of this process
    """
    _set_environment(environment)
    # Papermill imports the engine at the end of its own import. If the engine came first, it would
    # import a papermill that is only half there.
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
            _escaped(notebook),
            _escaped(executed),
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
        reason = first_line(error)
    page = executed.read_text(encoding="utf-8") if executed.exists() else None
    return Execution(reason, page, latest)


def _set_environment(environment):
    """Set variables of this process, which the kernel inherits: those given, and those of Jupyter.

    environment  {name: value}
    """
    os.environ.update(environment)
    os.environ["JUPYTER_RUNTIME_DIR"] = str(own_folder())
    os.environ["IPYTHONDIR"] = str(own_folder() / "ipython")
    # The kernel of this Python, not one of the same name that the user has elsewhere.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    os.environ.pop("JUPYTER_PATH", None)


def _transport(connection: Path) -> str:
    """Return the way by which the kernel is reached: "ipc" or "tcp".

    "ipc" are sockets, files beside the connection file. It is preferred, because another program
    may take a port of "tcp", but not the name of such a file. "tcp" is used where the path of a
    socket would be too long, as in the deep temporary folders of a cluster's jobs.

    connection  path of the kernel's connection file
    """
    longest = connection.with_name(f"{connection.stem}-ipc-00000")
    return "ipc" if fits_socket(longest) else "tcp"


def _escaped(path: Path) -> str:
    """Return a path with its braces doubled.

    Papermill would otherwise take text in braces for the name of a parameter.
    """
    return str(path).replace("{", "{{").replace("}", "}}")
