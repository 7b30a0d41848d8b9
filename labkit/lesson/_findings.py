"""What a run found: `claim` holds a sentence against it, `conclude` makes one of it, `answer`
ends the lesson.
"""

from typing import Any, NamedTuple

import numpy as np

from labkit import ledger
from labkit.errors import LessonError
from labkit.ledger.rows import Claim, LessonAnswer
from labkit.lesson import cards, claims, pictures, verdicts
from labkit.lesson._run import current
from labkit.measure.stats import mean_interval


def claim(
    claim_id: str,
    sentence: str,
    value: Any,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    unit: str | None = None,
    reason: str | None = None,
) -> None:
    """State a sentence of the text, and whether this run bears it out: holds, fails, or
    inconclusive.

    It is shown on one line, with the reason for its bound behind a fold. Where it does not hold, a
    second line says so of the sentence that follows in the text.

    value              a number; a `Ratio`, weighed with its interval widened by its floor; an
                       `Interval`; None when it could not be measured. Too few samples decide
                       nothing
    at_least, at_most  the sentence holds where the whole interval lies within these bounds
    above, below       the same, without the bound itself
    reason             why there is no value, or why this one proves nothing: give it only where
                       noise could change the verdict

    Raises  LessonError for a claim without any bound
    """
    bounds = verdicts.Bounds(at_least, at_most, above, below)
    if bounds == verdicts.Bounds():
        raise LessonError(
            f"The claim {claim_id!r} has no bound, so no number could refute it.",
            expected="at least one of at_least, at_most, above, below",
        )
    evidence = verdicts.weigh(value)
    verdict, reason = verdicts.of_claim(evidence, bounds, reason)
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


class Finding(NamedTuple):
    """What a run says: one sentence, and the number that it rests on, with the fields that a
    card shows.
    """

    sentence: str
    value: float | None
    low: float | None
    high: float | None
    unit: str | None
    basis: str | None
    reason: str | None


def conclude(
    value: Any,
    name: str | None = None,
    baseline: str | None = None,
    *,
    unit: str | None = None,
    better: str = "higher",
    words: tuple[str, str] = ("better", "worse"),
    above: str | None = None,
    below: str | None = None,
    unclear: str = "This run cannot tell.",
    bound: float = 0.0,
) -> None:
    """Say in one sentence what is true of this run: of two names, or one of your own sentences.

    value           that of the name minus that of the baseline, (seeds,) or an `Interval`; or a
                    factor: a `Ratio`, or an `Interval` with the unit "x". A plain number decides by
                    itself
    name, baseline  what is compared: "LARS", "plain SGD"
    unit            of the value
    better          "higher" or "lower": which values speak for the name
    words           what the name is where they do, and where they speak against it: ("faster",
                    "slower")
    above, below    instead of two names: the sentence where the whole interval lies above, or
                    below, the bound
    unclear         the sentence where the bound lies inside the interval, or there are too few
                    samples
    bound           of your own sentences. Two names are held against 0, and a factor against 1

    Example  conclude(lars - sgd, "LARS", "plain SGD", unit="points")
             LARS is better than plain SGD by 0.43 points (95 % interval from 0.31 to 0.55; t, n =
             12).
    Raises   LessonError where neither two names nor the two sentences are given
    """
    evidence = verdicts.weigh(_as_interval(value))
    factor = hasattr(value, "pairs") or unit == "x"
    unit = unit or ("x" if factor else None)
    if above is not None and below is not None:
        sentence_by_side = {1: above, -1: below, 0: unclear}
        sentence = sentence_by_side[_side(evidence, bound)]
        finding = Finding(
            sentence.rstrip("."), unit=unit, reason=evidence.doubt, **evidence.numbers()
        )
    elif name is not None and baseline is not None:
        words_by_value = words if better == "higher" else words[::-1]
        finding = _compared(evidence, name, baseline, words_by_value, unit)
    else:
        raise LessonError(
            "There is nothing to conclude with.",
            expected='two names, or the sentences above="..." and below="..."',
            found=f"name={name!r}, baseline={baseline!r}, above={above!r}, below={below!r}",
            fix='conclude(first - second, "LARS", "plain SGD", unit="points")',
        )
    cards.show("concluded", finding)


def _as_interval(value):
    """Return numbers of several seeds as the interval of their mean; anything else as it is."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return mean_interval(value)
    return value


def _side(evidence, bound):
    """Return 1 where the whole interval lies above the bound, -1 where it lies below, 0 where
    this run cannot tell.
    """
    if evidence.value is None or evidence.doubt:
        return 0
    if evidence.low > bound:
        return 1
    return -1 if evidence.high < bound else 0


def _compared(evidence, name, baseline, words, unit):
    """Return the `Finding` of two names: by how much the first one differs from the second, without
    a sign.

    words  what the first one is where the value is large, and where it is small
    """
    factor = unit == "x"
    no_difference = 1 if factor else 0
    side = _side(evidence, no_difference)
    if side == 0:
        sentence = f"No difference between {name} and {baseline} can be told"
        return Finding(sentence, unit=unit, reason=evidence.doubt, **evidence.numbers())

    # Say the size of the difference: -2 points are 2 points less, 0.5 times is a factor of 2.
    value = evidence.value
    low = evidence.low
    high = evidence.high
    if side < 0 and factor:
        value = 1 / evidence.value
        low = 1 / evidence.high
        high = 1 / evidence.low
    elif side < 0:
        value = -evidence.value
        low = -evidence.high
        high = -evidence.low
    size = f"a factor of {cards.number(value)}" if factor else cards.number(value, unit)
    word = words[0] if side > 0 else words[1]
    sentence = f"{name} is {word} than {baseline} by {size}"
    return Finding(sentence, value, low, high, unit, evidence.basis, evidence.doubt)


def answer(
    sentence: str,
    value: Any,
    *,
    because: str,
    holds_for: str,
    not_for: str,
    unit: str | None = None,
    picture: Any = None,
) -> None:
    """End the lesson with its one answer: a sentence to repeat aloud, its number, the cause, and
    how far it carries.

    value      as for `claim`: a number, a `Ratio` (in "x as fast" unless a unit is given), an
               `Interval`, or None
    because    the cause, which an experiment of this lesson has shown
    holds_for  networks, sizes and machines for which the sentence is true
    not_for    those for which it is not
    picture    the one to remember: the name of the call of `labkit.plots` that drew it, such as
               "ladder" (the last one that it drew), or a figure. It stands in the card and in the
               report
    """
    evidence = verdicts.weigh(value)
    stored = pictures.StoredPicture(None, None)
    if picture is not None:
        stored = pictures.keep(picture, current().run_key)
    row = LessonAnswer(
        run_key=current().run_key,
        sentence=sentence,
        because=because,
        holds_for=holds_for,
        not_for=not_for,
        unit=unit or ("x as fast" if hasattr(value, "pairs") else None),
        reason=evidence.doubt,
        picture=stored.file,
        picture_words=stored.words,
        **evidence.numbers(),
    )
    ledger.add(row)
    cards.show("found", row, pictures.as_uri(row.picture))
