"""Executes notebooks in batches: see `labkit.runner.batch.run_batch`.

A batch runs each notebook in a worker process of its own (`worker`), enforces deadlines from outside (`pool`),
believes only the completion record in the ledger (`verdict`), and leaves no process behind (`keeper`).
"""
