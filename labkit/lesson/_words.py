"""Begin and end a lesson, and store what it measured: `start`, `keep`, `recap` and others.

No function here waits for the reader. In JupyterLab a question is a widget, which the reader may
answer while cells run; elsewhere it stays unanswered. What the functions store goes to the ledger,
so that the report can show it.
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

    In a notebook the card lists, behind a fold, the names of labkit that the lesson imports, with
    links to their source. From here on `from mine import network, inputs, labels` imports the
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
    """Record the reader's decision, with the numbers that support it.

    A second call in the same run replaces the first.

    text     a few sentences: what the reader would do
    because  {quantity in words, with its unit: value}; a value is a number, an `Interval`, a
             `Ratio` or None, as for `claim`
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
    """Store measured rows in the ledger as part of this run, and return them.

    measured    rows such as `Latency`
    name        name for the rows that have none, so that two measurements of one kind stay apart
    experiment  slug of the published experiment that the rows belong to, such as
                "convnext-training"; None: this lesson's
    network     name of the network that was measured, such as "convnext-homebrew"
    returns     the stored row if there is one, else a tuple of the stored rows
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
    """Store a result on the reader's own network: a row of the report's table "Your network".

    Call it in a cell of its own, below the section "Yours". The other cells of that section do not
    import labkit. A second call replaces the first.

    sentence  what the number is: "share of the gap won back by your schedule"
    value     a number, a `Ratio`, an `Interval`, or None, as for `claim`
    unit      unit of the value; None for a `Ratio` means "x as fast"
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
    """Show questions on what the lesson should have taught, each with its answer behind a fold.

    Hide the source of the cell, which shows the answers: metadata {"jupyter": {"source_hidden":
    true}}.

    questions  (question, answer) pairs; text between backticks is shown as code
    """
    cards.show("questions", list(questions))


def recap() -> None:
    """Close the lesson: show the results of predictions, claims and exercises, and record the end.

    Call it in the last cell, after `answer`. The runner counts a notebook as passed only if its
    last cell recorded the end. If `answer` was not called, the card says so. In a run by hand a
    second card shows the reader's progress in the course.
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
    """Return the number of code cells that this kernel has executed, with the present one.

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
