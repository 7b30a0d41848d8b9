"""Begin and end a lesson, and keep what it measured: `start`, `keep`, `decide`, `recap` and others.

No function here waits for the reader: in JupyterLab a prediction is a widget, elsewhere it stays
without an answer. The rows go to the ledger, so that the report can show them.
"""

import random
import time
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from labkit import device, ledger
from labkit.errors import LessonError
from labkit.ledger.rows import (
    PROFILES,
    Answer,
    Claim,
    Completion,
    Decision,
    LessonAnswer,
    OwnResult,
    Prediction,
    Run,
)
from labkit.lesson import cards, mine, verdicts
from labkit.lesson._run import Lesson, begin, current
from labkit.lesson.helpers import helpers_of
from labkit.lesson.progress import progress


def start(notebook: str, profile: str = "lab", seed: int = 0) -> Lesson:
    """Begin a lesson: check the profile, seed all random numbers, and open a run in the ledger.

    In a notebook the card also lists, behind a fold, the names of labkit that the lesson imports,
    with links to the source. From here on `from mine import network, inputs, labels` finds the
    reader's own network.

    notebook  the notebook's name without .ipynb
    profile   "quick" (a first look), "lab" (what a student runs) or "paper" (the scale of the
              published work)
    seed      0 to 2**32 - 1
    returns   the `Lesson`
    Raises    LessonError for another profile or seed
    """
    if profile not in PROFILES or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise LessonError(
            "This profile or this seed cannot be used.",
            expected=f"{' or '.join(PROFILES)}, and a seed from 0 to 4294967295",
            found=f"{profile!r} and {seed!r}",
            fix="change the first code cell, the one with profile and seed; or say `-p profile "
            "quick` to papermill",
        )
    mine.make_importable()
    _seed_everything(seed)
    machine = device.describe()
    lesson = begin(notebook, profile, seed)
    run = Run(
        run_key=lesson.run_key,
        notebook=notebook,
        profile=profile,
        seed=seed,
        started_utc=ledger.now(),
        machine_key=machine.machine_key,
        commit=device.commit(),
        batch_key=lesson.batch_key,
    )
    ledger.add(machine, run)
    helpers = helpers_of(notebook) if cards.shell() else []
    cards.show("started", run, machine, helpers, cards.interactive())
    return lesson


def decide(text: str, *, because: dict[str, Any]) -> None:
    """Record the reader's decision, at most once per lesson, beside the numbers that support it.

    text     a few sentences: what the reader would do
    because  {quantity in words, with its unit: value}; a value as for `claim`
    """
    numbers = []
    for name, value in because.items():
        evidence = verdicts.weigh(value)
        number = SimpleNamespace(unit=None, reason=evidence.doubt, **evidence.numbers())
        card = cards.card("evidence", number)
        numbers.append(f"{name}: {cards.plain(card)}")
    row = Decision(run_key=current().run_key, text=text, because="; ".join(numbers))
    ledger.add(row)
    cards.show("decided", row)


def keep(
    *measured: Any, name: str = "", experiment: str | None = None, network: str | None = None
) -> Any:
    """Write measured rows to the ledger under this run, and return them.

    name        name for the rows that have none, so that two measurements of one kind stay apart
    experiment  the published experiment that the rows belong to, such as "convnext-training", if it
                is not this lesson's
    network     name of the network that was measured, such as "convnext-homebrew"
    returns     the row where there is one, else a tuple of rows
    """
    labels = {}
    if experiment:
        labels["experiment"] = experiment
    if network:
        labels["network"] = network
    rows = []
    for row in measured:
        fields = {"run_key": current().run_key, **labels}
        if getattr(row, "name", None) == "":
            fields["name"] = name
        rows.append(replace(row, **fields))
    ledger.add(*rows)
    return rows[0] if len(rows) == 1 else tuple(rows)


def keep_mine(sentence: str, value: Any, *, unit: str | None = None) -> None:
    """Store a result on the reader's own network: one row of the report's table "Your network".

    The call stands in a cell of its own below the section "Yours", whose cells import no labkit. A
    second call replaces the first.

    sentence  what the number is: "share of the gap won back by your schedule"
    value     as for `claim`: a number, a `Ratio`, an `Interval`, or None
    """
    evidence = verdicts.weigh(value)
    row = OwnResult(
        run_key=current().run_key,
        sentence=sentence,
        unit=unit or ("x as fast" if hasattr(value, "pairs") else None),
        reason=evidence.doubt,
        **evidence.numbers(),
        **mine.described()._asdict(),
    )
    ledger.add(row)
    cards.show("kept_mine", row)


def check_yourself(questions: Iterable[tuple[str, str]]) -> None:
    """Show questions on what the lesson should have taught, each answer behind a fold.

    questions  (question, answer) pairs; text between backticks is shown as code. Hide the cell's
               source, which shows the answers, too: metadata {"jupyter": {"source_hidden": true}}
    """
    cards.show("questions", list(questions))


def recap() -> None:
    """Close the lesson: show how predictions, claims and exercises came out, and record its end.

    Where a reader runs the lesson by hand, a second card shows the reader's progress in the course.

    Call it in the last cell, after `answer`: the runner counts a notebook as passed only when its
    last cell wrote this record. A lesson without an answer says that it has none.
    """
    lesson = current()
    kinds = (LessonAnswer, Prediction, Claim, Answer)
    cards.show("recap", *(ledger.find(kind, run_key=lesson.run_key) for kind in kinds))
    ledger.add(
        Completion(
            run_key=lesson.run_key,
            notebook=lesson.notebook,
            cell_count=_cell_count(),
            seconds=time.monotonic() - lesson.started,
            finished_utc=ledger.now(),
        )
    )
    if cards.interactive():
        cards.show("progress", progress(), False)


def _cell_count():
    """Return the number of code cells that this kernel has executed, the present one included.

    It is 0 outside a kernel.
    """
    shell = cards.shell()
    # The history, not shell.execution_count: IPython versions differ on whether that already counts
    # the present cell.
    return len(shell.user_ns["In"]) - 1 if shell else 0


def _seed_everything(seed):
    """Seed Python, NumPy and torch."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (libraries still draw from the global generator)
    torch.manual_seed(seed)
