"""What becomes of the output of a run, and whether the ledger still has the rows it had before."""

import json
import sqlite3
from contextlib import closing, suppress

from labkit import files, ledger
from labkit.files import artifacts
from labkit.ledger.rows import Completion

COPY = "ledger.before-batch.sqlite"
BUSY_TIMEOUT_S = 60


def is_finished(attempt):
    """Whether an earlier attempt passed and its output is still there: it need not run again.

    The output is published only after the run was found to count, and it carries the key of its run.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        page = json.loads((artifacts() / attempt.output).read_text(encoding="utf-8"))
        if page["metadata"]["labkit"]["run_key"] == attempt.run_key:
            return bool(ledger.find(Completion, run_key=attempt.run_key))
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


class RowGuard:
    """Notices when a notebook deletes rows of the ledger: a batch only ever adds some. It has a copy of the ledger."""

    def __init__(self):
        self.path, copy = artifacts() / "ledger.sqlite", artifacts() / COPY
        self.counts = _row_counts(self.path)
        if _fewer(_row_counts(copy), self.counts):  # the copy is all there is of what was deleted earlier: it stays
            return
        with files.atomic(copy) as temporary, _opened(self.path) as source, _opened(temporary) as target:
            source.backup(target)

    def lost(self):
        """Which rows are gone since the last call, as a reason, or None."""
        before, self.counts = self.counts, _row_counts(self.path)
        gone = _fewer(before, self.counts)
        return f"rows of the ledger were deleted ({', '.join(gone)}); artifacts/{COPY} still has them" if gone else None


def _opened(path):
    return closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S))


def _row_counts(path):
    """{table: number of rows} of a ledger; empty when it is not there or cannot be read."""
    if not path.exists():
        return {}
    try:
        with _opened(path) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}
    except sqlite3.Error:
        return {}


def _fewer(before, now):
    return [f"{name}: {count} to {now.get(name, 0)}" for name, count in before.items() if now.get(name, 0) < count]
