"""What earlier batches did, as the ledger remembers it: which batch to continue, and what need not run again."""

import json
import uuid
from dataclasses import replace

from labkit import ledger
from labkit.files import artifacts
from labkit.ledger import rows
from labkit.runner import sources, verdict
from labkit.runner.settings import Settings


def begin(found, settings, parameters):
    """The batch to run, new or continued, and {name: Attempt} of what need not run again."""
    for stale in ledger.find(rows.Attempt, status="running"):  # the lock is ours, so whoever ran it is dead
        if not recover(stale):
            ledger.add(replace(stale, status="interrupted", reason="the batch was killed"))
    chosen = {"profile": settings.profile, "solutions": settings.solutions, "strict": settings.strict}
    known = {"notebooks": [source.name for source in found], "digest": sources.digest(found)}
    text = json.dumps({**chosen, "parameters": parameters, **known}, sort_keys=True)
    earlier = sorted(ledger.find(rows.Batch, settings=text), key=lambda row: row.started_utc)
    if earlier and earlier[-1].status != "passed" and not settings.fresh:
        passed = ledger.find(rows.Attempt, batch_key=earlier[-1].batch_key, status="passed")
        kept = {row.notebook: row for row in passed if verdict.is_finished(row, artifacts() / settings.folder())}
        return earlier[-1], kept
    started = ledger.now()
    batch = rows.Batch(batch_key=f"{started[:19]}-{uuid.uuid4().hex[:6]}", settings=text, started_utc=started)
    ledger.add(batch)
    return batch, {}


def recover(stale):
    """Set an attempt to passed when its batch was killed after publishing its output; returns whether it was."""
    settings = json.loads(ledger.find(rows.Batch, batch_key=stale.batch_key)[0].settings)
    folder = Settings(profile=settings["profile"], solutions=settings["solutions"]).folder()
    if not verdict.is_finished(stale, artifacts() / folder):
        return False
    record = ledger.find(rows.Completion, run_key=stale.run_key)[0]
    count, output = record.cell_count, f"{folder}/{stale.notebook}.ipynb"
    done = {"cells_done": count, "cells_total": count, "seconds": record.seconds, "finished_utc": record.finished_utc}
    ledger.add(replace(stale, status="passed", output=output, **done))
    return True
