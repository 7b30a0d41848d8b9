"""What comes back from a worker of a cluster: the `Attempt`, and as bytes the executed notebook and the rows.

A parcel is a dict: attempt (fields of an `Attempt`), files {name: bytes} and sha256 {name: hex digest}, both of
"notebook" and "rows" (a SQLite file), as far as there are such.
"""

import hashlib
from dataclasses import replace

from labkit import files, ledger
from labkit.files import artifacts
from labkit.ledger.rows import Attempt, Completion, Machine


def packed(attempt, content):
    """A parcel of the fields of an ended `Attempt` and {name: bytes}."""
    hashes = {name: hashlib.sha256(part).hexdigest() for name, part in content.items()}
    return {"attempt": attempt, "files": content, "sha256": hashes}


def failed(attempt, reason, *, seconds=0.0, host=None):
    """The parcel of a task that did not get to an end of its own; `attempt` as it was sent, as a dict."""
    ended = {"status": "failed", "reason": reason, "output": None, "seconds": seconds, "cells_done": 0, "host": host}
    return packed(attempt | ended, {})


def store(sent, parcel, work):
    """Write a parcel: first the notebook, then all rows and the attempt in one transaction; returns the `Attempt`."""
    content = parcel["files"]
    damaged = [name for name in content if hashlib.sha256(content[name]).hexdigest() != parcel["sha256"][name]]
    attempt = replace(Attempt(**parcel["attempt"]), finished_utc=ledger.now())
    if damaged:
        content, reason = {}, f"what came back is damaged: {', '.join(damaged)}"
        attempt = replace(attempt, status="failed", reason=reason, output=None)
    rows = _rows(content["rows"], attempt.run_key, work / "rows.sqlite") if "rows" in content else []
    if attempt.status == "passed" and not any(isinstance(row, Completion) for row in rows):
        attempt = replace(attempt, status="failed", reason="its completion record did not come back")
    if "notebook" in content:
        target = artifacts() / sent.output
        failed = target.with_suffix(".failed.ipynb")
        with files.atomic(target if attempt.status == "passed" else failed) as temporary:
            temporary.write_bytes(content["notebook"])
        if attempt.status == "passed":
            failed.unlink(missing_ok=True)
    ledger.add(*rows, attempt)
    return attempt


def _rows(content, run_key, path):
    """The rows of this run, and its machine; `path` is where the worker's ledger may lie meanwhile."""
    path.write_bytes(content)
    try:
        kinds = [kind for kind in ledger.tables().values() if kind is not Attempt]
        rows = [row for kind in kinds for row in ledger.find(kind, path=path)]
        return [row for row in rows if isinstance(row, Machine) or _of(row, run_key)]
    finally:
        for left in path.parent.glob(f"{path.name}*"):
            left.unlink()


def _of(row, run_key):
    own = getattr(row, "run_key", "")
    return own == run_key or own.startswith(f"{run_key}/")
