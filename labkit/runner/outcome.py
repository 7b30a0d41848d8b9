"""What becomes of the output of a run, and whether the ledger is still there."""

import json
import sqlite3
from contextlib import closing, suppress

from labkit import files, ledger
from labkit.files import artifacts
from labkit.ledger.rows import Attempt

COPY = "ledger.before-batch.sqlite"
BUSY_TIMEOUT_S = 60


def is_finished(attempt):
    """Whether an earlier attempt passed and its output is still there: it need not run again.

    The output is published only after the run was found to count, and it carries the key of its run.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        page = json.loads((artifacts() / attempt.output).read_text(encoding="utf-8"))
        return page["metadata"]["labkit"]["run_key"] == attempt.run_key
    return False


def publish(work, target, reason):
    """Put an executed notebook in its place; a failed one beside the good ones, the reason on top.

    returns  the path, or None when there is nothing to publish
    """
    failed = target.with_suffix(".failed.ipynb")
    target.parent.mkdir(parents=True, exist_ok=True)
    if reason is None:
        files.publish(work, target)
        failed.unlink(missing_ok=True)
        return target
    try:
        page = json.loads(work.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        failed.unlink(missing_ok=True)
        return None
    note = {"cell_type": "markdown", "id": "why-it-failed", "metadata": {"tags": ["papermill-error-cell-tag"]}}
    page["cells"].insert(0, {**note, "source": f"**This run does not count:** {reason}"})
    files.write_json(failed, page)
    return failed


def back_up_ledger():
    """Copy the ledger. A copy that is larger has what was deleted from the ledger since: it stays."""
    path, copy = artifacts() / "ledger.sqlite", artifacts() / COPY
    if copy.exists() and copy.stat().st_size > path.stat().st_size:
        return
    with files.atomic(copy) as temporary, _opened(path) as source, _opened(temporary) as target:
        source.backup(target)


def _opened(path):
    return closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S))


def ledger_flaw(attempt):
    """Why the ledger is no longer the one that this running attempt was noted in, or None."""
    if ledger.find(Attempt, run_key=attempt.run_key):
        return None
    return f"rows of the ledger were deleted; artifacts/{COPY} has those from before the batch"
