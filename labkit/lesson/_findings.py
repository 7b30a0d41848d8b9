"""Say what a run shows: `claim` tests a sentence, `conclude` chooses one, `answer` is the last."""

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
    """Test a sentence of the lesson against the numbers of this run, and show the verdict.

    The verdict is that the sentence holds, that it fails, or that this run cannot decide. It is
    stored in the ledger. The card shows it in one line; the reason for the bound is behind a fold.
    If the sentence does not hold, a second line warns that the text below may not fit this run.

    claim_id           unique in the lesson; the entry in `claims.toml` has the same id
    sentence           the claim in words, with its bound
    value              the number that is tested: a number, an `Interval`, a `Ratio` (whose interval
                       is widened by its noise floor), or None if it could not be measured. An
                       interval of too few samples decides nothing
    at_least, at_most  the sentence holds if the whole interval lies within these bounds
    above, below       the same, but the bound itself is excluded
    unit               unit of the value, for the card
    reason             why there is no value, or why the value cannot decide. Give the latter only
                       where noise could change the verdict
    Raises             LessonError for a claim without any bound
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
    """A sentence on a run, and the number that supports it, as a card shows them.

    low, high  interval of `value`; that of a `Ratio` is widened by its noise floor
    basis      kind of interval and number of samples, such as "t, n = 3", or None
    reason     why there is no number, or why it cannot decide; None if it can
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
    """Show the sentence that is true of this run, chosen from several possible sentences.

    There are two ways to call this function. With `name` and `baseline` the sentences compare the
    two. With `above` and `below` you write the sentences yourself.

    value           the difference `name` minus `baseline`: one number per seed (an array (seeds,))
                    or an `Interval`. Or how many times as much `name` has: a `Ratio`, or an
                    `Interval` with the unit "x". A plain number has no interval and is compared as
                    it is
    name, baseline  the two things compared: "LARS", "plain SGD"
    unit            unit of the value
    better          "higher" or "lower": which values speak for `name`
    words           (word if the value speaks for `name`, word if it speaks against `name`), such as
                    ("faster", "slower")
    above           your sentence for an interval that lies wholly above `bound`
    below           your sentence for an interval that lies wholly below `bound`
    unclear         your sentence for an interval that contains `bound`, and for too few samples
    bound           number that the value is compared with, if you write the sentences. With `name`
                    and `baseline` the bound is always 0 for a difference and 1 for a ratio
    Raises          LessonError unless `name` and `baseline`, or `above` and `below`, are given

    Example: conclude(lars - sgd, "LARS", "plain SGD", unit="points") says "LARS is better than
    plain SGD by 0.43 points (95 % interval from 0.31 to 0.55; t, n = 12)."
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
    """Return the 95 % `Interval` of the mean of an array (seeds,); any other value unchanged."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return mean_interval(value)
    return value


def _side(evidence, bound):
    """Return 1 if the whole interval lies above the bound, -1 if it lies below, else 0.

    0 is also returned if nothing was measured, or if there is a reason to doubt the evidence.

    evidence  a `verdicts.Evidence`
    """
    if evidence.value is None or evidence.doubt:
        return 0
    if evidence.low > bound:
        return 1
    return -1 if evidence.high < bound else 0


def _compared(evidence, name, baseline, words, unit):
    """Return the `Finding` that compares two names.

    If the interval contains "no difference" (0, or the ratio 1), the sentence says that no
    difference can be told. Otherwise it says which of the two words holds, and by how much.

    evidence  a `verdicts.Evidence`
    words     (word if `name` has the larger value, word if `name` has the smaller value)
    unit      "x": the value is a ratio; else the value is a difference in this unit
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
    """End the lesson with its one answer: a sentence to repeat aloud, its number, cause and limits.

    value      the number: a number, an `Interval`, a `Ratio`, or None, as for `claim`
    because    the cause, which an experiment of this lesson has shown
    holds_for  networks, sizes and machines for which the sentence is true
    not_for    networks, sizes and machines for which the sentence is not true
    unit       unit of the value; None for a `Ratio` means "x as fast"
    picture    the picture to remember, for the card and the report: a figure, or the name of the
               function of `labkit.plots` that drew it, such as "ladder". Of several pictures by
               this function the last one is taken
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
