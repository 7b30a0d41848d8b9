"""Executes notebooks in batches: `from labkit.runner import run_batch`.

A batch (`batch`) has papermill execute each notebook (`local`), in a process of its own
(`execute`), with an engine that believes only the completion record in the ledger (`engine`). No
process is left behind (`labkit.device.child`), and executed notebooks are whole or not there at
all.
"""

from typing import Any


def run_batch(notebooks: Any = None, *, show: bool = True, **settings: Any) -> Any:
    """Run notebooks, or continue the newest batch of the same settings and sources that has not
    wholly passed.

    notebooks  such as ["00", "01_deployment_fundamentals", "my/own.ipynb"]; None means all of the
               course
    show       progress on standard output
    settings   fields of `labkit.runner.tasks.BatchSettings`, such as profile="lab",
               parameters={"seed": 1}, fresh=True
    returns    `labkit.runner.batch.Result`; its `ok` says whether every notebook's last cell wrote
               its record
    errors     LabError for unknown notebooks, profiles or parameters, when another batch is
               running, and when the ledger may not be written; OSError when the disk is full
    """
    # here, so that a process that executes a notebook starts without them
    from labkit.runner import batch, tasks

    return batch.run(notebooks, tasks.BatchSettings(**settings), show=show)
