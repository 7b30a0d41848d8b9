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
    """Test a sentence of the text against this run, and show whether it holds, fails or stays open.

    The card has one line, with the reason for the bound behind a fold. Where the sentence does not
    hold, a second line warns of the text that follows. The verdict goes to the ledger.

    claim_id           unique in the lesson; the entry in `claims.toml` has the same id
    value              a number; a `Ratio`, whose interval is widened by its noise floor; an
                       `Interval`; None when it could not be measured. Too few samples decide
                       nothing
    at_least, at_most  the sentence holds where the whole interval lies within these bounds
    above, below       the same, but the bound itself is not allowed
    reason             why there is no value, or why this value proves nothing: give it only where
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
    """One sentence on a run, and the number that supports it, with the fields that a card shows."""

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
    """Show the one sentence, of several possible ones, that is true of this run.

    Give either `name` and `baseline`, and the sentence compares them; or `above` and `below`, two
    sentences of your own.

    value           what `name` has more than `baseline`, one number per seed (shape (seeds,)) or an
                    `Interval`; or a factor: a `Ratio`, or an `Interval` with the unit "x". A plain
                    number has no interval: only the number itself is compared with the bound
    name, baseline  what is compared: "LARS", "plain SGD"
    unit            of the value
    better          "higher" or "lower": which values speak for `name`
    words           two words, where the value speaks for `name` and where it speaks against `name`:
                    ("faster", "slower")
    above, below    the sentence where the whole interval lies above the bound, and the sentence
                    where it lies below
    unclear         the sentence of your own where the bound lies inside the interval, or there are
                    too few samples
    bound           what the value is compared with under `above` and `below`. With two names it is
                    always 0, or 1 for a factor

    Example: conclude(lars - sgd, "LARS", "plain SGD", unit="points") says "LARS is better than
    plain SGD by 0.43 points (95 % interval from 0.31 to 0.55; t, n = 12)."

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
    """Return the 95 % interval of the mean of an array (seeds,); any other value unchanged."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return mean_interval(value)
    return value


def _side(evidence, bound):
    """Return 1 where the whole interval lies above the bound, -1 where it lies below, else 0.

    It is 0, too, where nothing was measured or the evidence is doubtful.
    """
    if evidence.value is None or evidence.doubt:
        return 0
    if evidence.low > bound:
        return 1
    return -1 if evidence.high < bound else 0


def _compared(evidence, name, baseline, words, unit):
    """Return the `Finding` that compares two names: the sign of the difference becomes a word.

    words  (word where `name` has the larger value, word where `name` has the smaller value)
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

    value      as for `claim`: a number, a `Ratio` (in "x as fast" unless a unit is given), an
               `Interval`, or None
    because    the cause, which an experiment of this lesson has shown
    holds_for  networks, sizes and machines for which the sentence is true
    not_for    networks, sizes and machines for which the sentence is not true
    picture    the picture to remember, for the card and the report: the name of the function of
               `labkit.plots` that drew it, such as "ladder" (its last picture is taken), or a
               figure
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
