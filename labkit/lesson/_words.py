"""The words around a lesson: start, keep, decide, check_yourself, recap.

They never block: in JupyterLab a prediction is a widget, elsewhere it stays without an answer. What
they record goes to the ledger, so that the report can show it.
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
    """Begin a lesson: check the profile, seed everything, and open a run in the ledger. Returns the
    `Lesson`.

    In a notebook it also lists, folded, what of labkit the lesson imports, with links to the
    source. From here on `from mine import network, inputs, labels` finds the reader's own network.

    notebook  the notebook's name without .ipynb
    profile   "quick" (a first look), "lab" (what a student runs) or "paper" (the scale of the
              published work)
    seed      0 to 2**32 - 1
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
    """Write down what you would do, once per lesson at most, beside the numbers that it rests on.

    text     a few sentences, in your own words
    because  {what a number is, with its unit: a value as for `claim`}
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
    """Write measured rows to the ledger under this run, and return them (one row as itself, several
    as a tuple).

    name        given to rows that have none, so that two measurements of one kind stay apart
    experiment  the published experiment that they belong to, such as "convnext-training", if it is
                not this lesson's
    network     its name, such as "convnext-homebrew"
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
    """Keep what this lesson found for the reader's own network: one row of the report's table "Your
    network".

    It stands in a cell of its own after "Yours", whose cells import no labkit. A second call
    replaces the first.

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
    """Ask what the lesson should have taught, with the answers behind folds.

    questions  (question, answer) pairs; what stands between backticks is code. Hide the cell's
               source, which has the answers, too: metadata {"jupyter": {"source_hidden": true}}
    """
    cards.show("questions", list(questions))


def recap() -> None:
    """Close the lesson: how predictions, claims and exercises came out, and the record that the run
    is complete.

    In a reader's hands it also says how far that reader is.

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
    """Return the number of cells this kernel has executed, the present one included; 0 outside a
    kernel.
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
