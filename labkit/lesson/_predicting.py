"""Predictions: `predict` asks before the result is known, `reveal` shows the result beside what
was expected.
"""

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
    """Ask the reader what they expect, before they see it.

    options  the answers to choose from; without them the answer is a number in `unit`
    default  the first value of the number field; it is no answer of the reader, and so it gets no
             verdict
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
    if not cards.interactive():
        cards.show("asked", row, options)
    else:
        cards.show("asked", row, None)
        from labkit.lesson import widgets

        widgets.show_question(row, options, lambda answer: _record_answer(prediction_id, answer))


def _record_answer(prediction_id, answer):
    """Keep the reader's answer; one given after the result was shown is marked as such.

    Returns the row.
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
    """Show what was measured beside what the reader expected.

    result    an option; a number, a `Ratio` or an `Interval` (an answer inside it is not called
              off); None when this run cannot tell
    tempting  {wrong answer: why one thinks so}, an option or a number; shown is the one that the
              reader gave, else all
    rests_on  the `Ratio` or `Interval` an option was read from: with too few samples the option is
              shown, but open
    reason    why there is no result
    word      what the result is, where it is not "measured"
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
    """Return [(wrong answer, why it tempts)]: the reader's where it is one of them, else all but
    the result.
    """
    if row.result is None:
        return []
    wrong = []
    for answer, why in tempting.items():
        if not _alike(_as_text(answer), row.result):
            wrong.append((_as_text(answer), why))
    of_reader = [
        (answer, why)
        for answer, why in wrong
        if row.source == "reader" and _alike(answer, row.answer)
    ]
    return of_reader or wrong


def _alike(answer, reference):
    """Return whether two answers as text are the same option, or numbers that count as close."""
    if answer == reference:
        return True
    try:
        ratio = float(answer) / float(reference)
    except (ValueError, ZeroDivisionError):
        return False
    return 1 / verdicts.CLOSE < ratio < verdicts.CLOSE


def _stored_prediction(prediction_id):
    """Return this run's row of a prediction, or None."""
    rows = ledger.find(Prediction, run_key=current().run_key, prediction_id=prediction_id)
    return rows[0] if rows else None


def _as_text(value):
    """Return an option as it is, a number with six significant digits."""
    if isinstance(value, str):
        return value
    return f"{float(value):.6g}"
