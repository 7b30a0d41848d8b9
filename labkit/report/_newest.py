"""Of each lesson the newest run, and apart from it what others reported or what a reader did by hand."""

from collections import defaultdict

from labkit import ledger
from labkit.ledger.rows import Run


def newest(kind, apart):
    """[(notebook, what sets its run apart, rows)] in the order of the lessons: of each, the newest run with such rows.

    apart  words for a `Run`: of runs that differ in them, the newest of each is shown. With `how`, no answer of a
           reader is hidden by a later run without one
    """
    rows, last = defaultdict(list), {}
    for row in ledger.find(kind):
        rows[row.run_key].append(row)
    for run in sorted(ledger.find(Run), key=lambda run: run.started_utc):
        if rows[run.run_key]:
            last[run.notebook, apart(run)] = rows[run.run_key]
    return [(*about, last[about]) for about in sorted(last)]


def whose(run):
    return f", as reported by {run.reported_by}" if run.reported_by else ""


def how(run):
    return ("by the runner" if run.batch_key else "by hand") + whose(run)
