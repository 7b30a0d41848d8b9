"""What becomes of the output of a run."""

import json
from contextlib import suppress

from labkit import files


def is_finished(attempt):
    """Whether an earlier attempt passed and its output is still there: it need not run again.

    The output is published only after the run was found to count, and it carries the key of its run.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        page = json.loads((files.artifacts() / attempt.output).read_text(encoding="utf-8"))
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
    note = {
        "cell_type": "markdown",
        "id": "why-it-failed",
        "metadata": {"tags": ["papermill-error-cell-tag"]},
        "source": f"**This run does not count:** {reason}",
    }
    files.write_text(failed, json.dumps(page | {"cells": [note, *page["cells"]]}))
    return failed
