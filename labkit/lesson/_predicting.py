"""Ask for predictions before a result is known (`predict`), and compare them with it (`reveal`)."""

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

    options  the answers to choose from; None: the answer is a number in `unit`
    default  what is shown until the reader answers: of a number, the first value of the field. It
             is no answer of the reader, and so it gets no verdict
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

    An answer that comes after the result was shown is marked as "reader, afterwards".
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
    rests_on: str | None = None,
    reason: str | None = None,
    word: str = "measured",
) -> None:
    """Show the result beside the reader's prediction.

    result    an option; a number, a `Ratio` or an `Interval` (an answer inside the interval is not
              called off); None when this run cannot tell
    tempting  {wrong answer: why one might give it}, an option or a number. Where the reader gave
              one of these answers only that one is shown, else all are
    rests_on  the `Ratio` or `Interval` from which an option was derived: with too few samples the
              option is shown, and the verdict is "open"
    reason    why there is no result
    word      what the result is, if it is not "measured"
    Raises    LessonError where `predict` was not called with this id
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
    """Return [(wrong answer, why it tempts)] to show: the reader's own where listed, else all.

    Answers that count as close to the result are left out.
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
    """Return an option unchanged, and a number as text with six significant digits."""
    if isinstance(value, str):
        return value
    return f"{float(value):.6g}"
