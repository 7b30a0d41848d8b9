"""Ask the reader for predictions (`predict`), and compare them with the results (`reveal`)."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from labkit import ledger
from labkit.errors import LessonError
from labkit.ledger.rows import Prediction
from labkit.lesson import cards, verdicts
from labkit.lesson._run import current

# a click may arrive in another thread while a cell reveals the result
_one_at_a_time = threading.RLock()


def predict(
    prediction_id: str,
    question: str,
    options: Sequence[str] | None = None,
    *,
    unit: str | None = None,
    default: Any,
) -> None:
    """Ask the reader for a prediction, before the result is shown.

    prediction_id  unique in the lesson; `reveal` has the same id
    options        answers to choose from; None: the answer is a number in `unit`
    default        value that is shown until the reader answers: an option, or the first value of
                   the number field. It is not the reader's answer, so it gets no verdict
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
        # The cell is run again: the reader's answer stays.
        if earlier and earlier.source == "reader":
            row = replace(row, answer=earlier.answer, source="reader")
        ledger.add(row)
    if not cards.interactive():
        cards.show("asked", row, options)
    else:
        cards.show("asked", row, None)
        from labkit.lesson import widgets

        widgets.show_question(row, options, lambda answer: _record_answer(prediction_id, answer))


def _record_answer(prediction_id, answer):
    """Store the reader's answer, and return its `Prediction` row.

    An answer that is given after the result was shown gets the source "reader, afterwards".
    """
    with _one_at_a_time:
        row = _stored_prediction(prediction_id)
        if row.verdict is None:
            row = replace(row, answer=_as_text(answer), source="reader")
        else:
            row = replace(row, answer=_as_text(answer), source="reader, afterwards")
            row = replace(row, verdict=verdicts.of_prediction(row))
        ledger.add(row)
        return row


def reveal(
    prediction_id: str,
    result: Any,
    *,
    tempting: Mapping[Any, str] | None = None,
    rests_on: Any = None,
    reason: str | None = None,
    word: str = "measured",
) -> None:
    """Show the result beside the reader's prediction, with the verdict on the prediction.

    prediction_id  the id that `predict` was called with
    result         an option, a number, a `Ratio` or an `Interval`. A prediction inside the interval
                   is not called wrong. None: this run cannot tell
    tempting       {wrong answer: why one might give it}; an answer is an option or a number. If the
                   reader gave one of these answers, only its reason is shown, else all are shown
    rests_on       the `Ratio` or `Interval` from which the option `result` was derived. If it has
                   too few samples, the verdict is "open"
    reason         why there is no result
    word           how the result came about, such as "counted" or "simulated"
    Raises         LessonError where `predict` was not called with this id
    """
    evidence = verdicts.weigh(result)
    text = None
    if evidence.value is None:
        reason = reason or evidence.doubt
    else:
        text = _as_text(evidence.value)
        reason = evidence.doubt or (rests_on and verdicts.weigh(rests_on).doubt)
    with _one_at_a_time:
        row = _stored_prediction(prediction_id)
        if row is None:
            raise LessonError(
                f"Nothing was predicted under {prediction_id!r}.",
                fix="run the predict(...) cell first",
            )
        row = replace(row, result=text, low=evidence.low, high=evidence.high, reason=reason)
        row = replace(row, verdict=verdicts.of_prediction(row))
        ledger.add(row)
    cards.show("revealed", row, word, _temptations(row, tempting or {}))


def _temptations(row, tempting):
    """Return the wrong answers to explain, as a list of (answer, why one might give it).

    If the reader's own answer is among them, the list holds only this one. An answer that counts as
    close to the result is not wrong, and is left out.

    row       the `Prediction` with its result
    tempting  {wrong answer: why one might give it}
    """
    if row.result is None:
        return []
    wrong = []
    for answer, why in tempting.items():
        if not _same_answer(_as_text(answer), row.result):
            wrong.append((_as_text(answer), why))
    of_reader = [
        (answer, why)
        for answer, why in wrong
        if row.source == "reader" and _same_answer(answer, row.answer)
    ]
    return of_reader or wrong


def _same_answer(answer, reference):
    """Return whether two answers are the same option, or numbers within a factor of `CLOSE`."""
    if answer == reference:
        return True
    try:
        ratio = float(answer) / float(reference)
    except (ValueError, ZeroDivisionError):
        return False
    return 1 / verdicts.CLOSE < ratio < verdicts.CLOSE


def _stored_prediction(prediction_id):
    """Return this run's `Prediction` row of that id, or None."""
    rows = ledger.find(Prediction, run_key=current().run_key, prediction_id=prediction_id)
    return rows[0] if rows else None


def _as_text(value):
    """Return an answer as text: an option unchanged, a number with six significant digits."""
    if isinstance(value, str):
        return value
    return f"{float(value):.6g}"
