"""Executes notebooks in batches: `from labkit.runner import run_batch`.

A batch runs each notebook in a worker process of its own (`worker`), enforces deadlines from outside (`pool`),
believes only the completion record in the ledger (`verdict`), and leaves no process behind (`keeper`).
"""


def run_batch(notebooks=None, *, show=None, **settings):
    """Run notebooks, or continue the newest batch of the same settings and sources that has not wholly passed.

    notebooks  such as ["00", "01_deployment_fundamentals", "my/own.ipynb"]; None means all of the course
    show       None: progress on standard output; False: nothing
    settings   fields of `labkit.runner.settings.Settings`, such as profile="lab", parameters={"seed": 1}, fresh=True
    returns    `labkit.runner.batch.Result`; its `ok` says whether every notebook's last cell wrote its record
    errors     LabError for unknown notebooks, profiles or parameters, and when another batch is running
    """
    from labkit.runner import batch  # here, so that a worker and the keeper start without it
    from labkit.runner.settings import Settings

    return batch.run(notebooks, Settings(**settings), show=show)
