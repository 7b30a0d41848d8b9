"""Execute notebooks in batches: `from labkit.runner import run_batch`.

A batch is a set of notebooks that are run with the same settings (`batch`). Each notebook, with one
seed, is a task (`tasks`). A task runs in a process of its own (`local`, or on a cluster `cluster`),
in which papermill executes the notebook (`execute`). A run counts only if the notebook's last cell
has written its completion record to the ledger (`engine`).

No process is left running at the end (`labkit.device.child`). An executed notebook is written whole
or not at all.
"""

from typing import Any


def run_batch(notebooks: Any = None, *, show: bool = True, **settings: Any) -> Any:
    """Run notebooks as a batch, or continue the newest batch of the same settings and sources.

    A batch is continued if some of its notebooks have not passed. Those that have passed are not
    run again.

    notebooks  such as ["00", "01_deployment_fundamentals", "my/own.ipynb"]; None means all of the
               course
    show       whether to print progress on standard output
    settings   fields of `labkit.runner.tasks.BatchSettings`, such as profile="lab",
               parameters={"seed": 1}, fresh=True
    returns    a `labkit.runner.batch.Result`; its `ok` says whether every notebook passed
    errors     LabError for unknown notebooks, profiles or parameters, when another batch is
               running, and when the ledger may not be written; OSError when the disk is full
    """
    # imported here: a process that executes a notebook imports this package, and needs neither
    from labkit.runner import batch, tasks

    return batch.run(notebooks, tasks.BatchSettings(**settings), show=show)
