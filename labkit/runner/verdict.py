"""Whether a run counts, and what becomes of its output.

Papermill's word is not enough: it calls `sys.exit(0)` a success and marks cells completed that never ran. A run
counts when papermill raised nothing and the last cell wrote the completion record.
"""

import json
from contextlib import suppress

from labkit import files, ledger
from labkit.ledger.rows import Completion


def flaw(run_key, outcome):
    """Why this run does not count as passed, or None.

    outcome  `labkit.runner.pool.Outcome`
    """
    if outcome.error is not None:
        return outcome.error
    found = ledger.find(Completion, run_key=run_key)
    if not found:
        return "the notebook ended without its completion record: does its last cell call recap()?"
    if found[0].cell_count != outcome.cells_total:
        return (
            f"the completion record was written in code cell {found[0].cell_count}, "
            f"not in the last one ({outcome.cells_total}): recap() belongs into the last cell"
        )
    return None


def is_finished(attempt, folder):
    """Whether an earlier attempt passed and its output still lies in `folder`: it need not run again.

    The output is published only after the run was found flawless, and it carries the key of its run.
    """
    return page_key(folder / f"{attempt.notebook}.ipynb") == attempt.run_key and bool(
        ledger.find(Completion, run_key=attempt.run_key)
    )


def page_key(path):
    """The run key an executed notebook carries, or None."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return json.loads(path.read_text(encoding="utf-8"))["metadata"]["labkit"]["run_key"]
    return None


def publish_passed(work, folder, name):
    """Put the executed notebook in its place, and take away what an earlier failure left. Returns its path."""
    target = folder / f"{name}.ipynb"
    files.publish(work, target)
    failed_path(folder, name).unlink(missing_ok=True)
    return target


def publish_failed(work, folder, name, *, reason):
    """Put what there is of a failed run beside the good ones, the reason on top. Returns its path, or None."""
    target = failed_path(folder, name)
    try:
        page = json.loads(work.read_text(encoding="utf-8"))
        note = {"cell_type": "markdown", "id": "why-it-failed", "metadata": {"tags": ["papermill-error-cell-tag"]}}
        page["cells"].insert(0, {**note, "source": f"**This run does not count:** {reason}"})
    except (OSError, ValueError, KeyError):
        target.unlink(missing_ok=True)
        return None
    files.write_json(target, page)
    return target


def failed_path(folder, name):
    return folder / f"{name}.failed.ipynb"
