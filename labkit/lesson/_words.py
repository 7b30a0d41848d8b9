"""The words of a lesson: start, predict, reveal, claim, keep, decide, answer, recap.

They never block: in JupyterLab a prediction is a widget, elsewhere it stays without an answer. What they record goes
to the ledger, so that the report can show it.
"""

import os
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from labkit import device, ledger
from labkit.errors import LessonError
from labkit.ledger.rows import PROFILES, Answer, Claim, Completion, Decision, LessonAnswer, Prediction, Run
from labkit.lesson import cards, claims, verdicts
from labkit.lesson._run import Lesson, begin, current
from labkit.lesson.progress import progress

_one_at_a_time = threading.RLock()  # a click may arrive in another thread while a cell reveals the result


def start(notebook: str, profile: str = "lab", seed: int = 0) -> Lesson:
    """Begin a lesson: check the profile, seed everything, and open a run in the ledger. Returns the `Lesson`.

    notebook  the notebook's name without .ipynb
    profile   "quick" (a first look), "lab" (what a student runs) or "paper" (the scale of the published work)
    seed      0 to 2**32 - 1
    """
    if profile not in PROFILES or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise LessonError(
            "This profile or this seed cannot be used.",
            expected=f"{' or '.join(PROFILES)}, and a seed from 0 to 4294967295",
            found=f"{profile!r} and {seed!r}",
            fix="change the first code cell, the one with profile and seed; or say `-p profile quick` to papermill",
        )
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
        batch_key=os.environ.get("LABKIT_BATCH_KEY"),
    )
    ledger.add(machine, run)
    cards.show("started", run, machine)
    return lesson


def predict(
    prediction_id: str, question: str, options: Sequence[str] | None = None, *, unit: str | None = None, default: Any
) -> None:
    """Ask the reader what they expect, before they see it.

    options  the answers to choose from; without them the answer is a number in `unit`
    default  the first value of the number field; it is no answer of the reader, and so it gets no verdict
    """
    with _one_at_a_time:
        row = Prediction(
            run_key=current().run_key,
            prediction_id=prediction_id,
            question=question,
            unit=unit,
            answer=_as_text(default),
            source="default",
        )
        earlier = _stored_prediction(prediction_id)
        if earlier and earlier.source == "reader":  # the cell is run again
            row = replace(row, answer=earlier.answer, source="reader")
        ledger.add(row)
    clicks = cards.interactive()
    cards.show("asked", row, None if clicks else options)
    if clicks:
        from labkit.lesson import widgets

        widgets.show_question(row, options, lambda answer: _record_answer(prediction_id, answer))


def _record_answer(prediction_id, answer):
    """Keep the reader's answer; one given after the result was shown is marked as such. Returns the row."""
    with _one_at_a_time:
        row = _stored_prediction(prediction_id)
        shown = row.verdict is not None
        row = replace(row, answer=_as_text(answer), source="reader, afterwards" if shown else "reader")
        if shown:
            row = replace(row, verdict=verdicts.of_prediction(row))
        ledger.add(row)
        return row


def reveal(
    prediction_id: str, result: Any, *, rests_on: str | None = None, reason: str | None = None, word: str = "measured"
) -> None:
    """Show what was measured beside what the reader expected.

    result    an option; a number, a `Ratio` or an `Interval` (an answer inside it is not called off); None when this
              run cannot tell
    rests_on  the `Ratio` or `Interval` an option was read from: with too few samples the option is shown, but open
    reason    why there is no result
    word      what the result is, where it is not "measured"
    """
    found = verdicts.weigh(result)
    if found.value is None:
        text, reason = None, reason or found.doubt
    else:
        text, reason = _as_text(found.value), found.doubt or (rests_on and verdicts.weigh(rests_on).doubt)
    with _one_at_a_time:
        row = _stored_prediction(prediction_id)
        if row is None:
            raise LessonError(f"Nothing was predicted under {prediction_id!r}.", fix="run the predict(...) cell first")
        row = replace(row, result=text, low=found.low, high=found.high, reason=reason)
        row = replace(row, verdict=verdicts.of_prediction(row))
        ledger.add(row)
    cards.show("revealed", row, word)


def claim(
    claim_id: str, sentence: str, value: Any, *, holds_if: str, unit: str | None = None, reason: str | None = None
) -> None:
    """State a sentence of the text, and whether this run bears it out: holds, fails, or inconclusive.

    value     a number; a `Ratio`, weighed with its interval widened by its floor; an `Interval`; None when it could not
              be measured. Too few samples decide nothing
    holds_if  called with the number, or with low and high; true when the sentence holds
    reason    why there is no value, or why this one proves nothing: give it only where noise could change the verdict
    """
    evidence = verdicts.weigh(value)
    verdict, reason = verdicts.of_claim(evidence, holds_if, reason)
    row = Claim(
        run_key=current().run_key,
        claim_id=claim_id,
        sentence=sentence,
        verdict=verdict,
        unit=unit,
        reason=reason,
        **evidence.numbers(),
    )
    ledger.add(row)
    cards.show("claimed", row, claims.entry(current().notebook, claim_id))


def answer(sentence: str, value: Any, *, because: str, holds_for: str, not_for: str, unit: str | None = None) -> None:
    """End the lesson with its one answer: a sentence to repeat aloud, its number, the cause, and how far it carries.

    value      as for `claim`: a number, a `Ratio` (in "x as fast" unless a unit is given), an `Interval`, or None
    because    the cause, which an experiment of this lesson has shown
    holds_for  networks, sizes and machines for which the sentence is true
    not_for    those for which it is not
    """
    evidence = verdicts.weigh(value)
    row = LessonAnswer(
        run_key=current().run_key,
        sentence=sentence,
        because=because,
        holds_for=holds_for,
        not_for=not_for,
        unit=unit or ("x as fast" if hasattr(value, "pairs") else None),
        reason=evidence.doubt,
        **evidence.numbers(),
    )
    ledger.add(row)
    cards.show("found", row)


def decide(text: str, *, because: dict[str, Any]) -> None:
    """Write down what you would do, once per lesson at most, beside the numbers that it rests on.

    text     a few sentences, in your own words
    because  {what a number is, with its unit: a value as for `claim`}
    """
    numbers = []
    for name, value in because.items():
        evidence = verdicts.weigh(value)
        shown = SimpleNamespace(unit=None, reason=evidence.doubt, **evidence.numbers())
        numbers.append(f"{name}: {cards.plain(cards.card('evidence', shown))}")
    row = Decision(run_key=current().run_key, text=text, because="; ".join(numbers))
    ledger.add(row)
    cards.show("decided", row)


def keep(*measured: Any, name: str = "") -> Any:
    """Write measured rows to the ledger under this run, and return them (one row as itself, several as a tuple).

    name  given to rows that have none, so that two measurements of one kind stay apart
    """
    kept = []
    for row in measured:
        named = {"name": name} if getattr(row, "name", None) == "" else {}
        kept.append(replace(row, run_key=current().run_key, **named))
    ledger.add(*kept)
    return kept[0] if len(kept) == 1 else tuple(kept)


def recap() -> None:
    """Close the lesson: how predictions, claims and exercises came out, and the record that the run is complete.

    In a reader's hands it also says how far that reader is.

    Call it in the last cell, after `answer`: the runner counts a notebook as passed only when its last cell wrote this
    record. A lesson without an answer says that it has none.
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
    """The number of cells this kernel has executed, the present one included; 0 outside a kernel."""
    shell = cards.shell()
    # The history, not shell.execution_count: IPython versions differ on whether that already counts the present cell.
    return len(shell.user_ns["In"]) - 1 if shell else 0


def _stored_prediction(prediction_id):
    """This run's row of a prediction, or None."""
    found = ledger.find(Prediction, run_key=current().run_key, prediction_id=prediction_id)
    return found[0] if found else None


def _seed_everything(seed):
    """Seed Python, NumPy and torch."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (libraries still draw from the global generator)
    torch.manual_seed(seed)


def _as_text(value):
    """An option as it is; a number with six significant digits."""
    return value if isinstance(value, str) else f"{float(value):.6g}"
