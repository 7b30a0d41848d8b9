"""Exercises of lesson 19: the medal of some figures, what a network forgets, what each technique adds."""

import itertools
import random

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten, untouched


def best_medal(found, levels):
    for level in levels:
        right = found["accuracy"] >= level["accuracy"]
        if right and all(found[name] <= level[name] for name in ("latency", "size")):
            return level["name"]
    return None


def verify_best_medal(answer):
    from labkit.ship.order import LEVELS  # here: what it imports takes time

    answer = untouched(answer)
    courses = [
        {"name": each.name, "accuracy": each.accuracy, "latency": each.latency, "size": each.size_bytes / 1e3}
        for each in LEVELS
    ]
    others = (("ruby", 0.9137, 0.71, 61.3), ("opal", 0.9219, 0.43, 88.7), ("jade", 0.8853, 0.97, 97.9),
              ("flint", 0.7441, 1.13, 91.3), ("clay", 0.6127, 2.3, 230.9))  # fmt: skip
    others = [dict(zip(("name", "accuracy", "latency", "size"), each, strict=True)) for each in others]
    for levels in (courses, others):
        limits = [[level[name] for level in levels] for name in ("accuracy", "latency", "size")]
        near = ([share * limit for limit in each for share in (0.999, 1, 1.001)] for each in limits)
        for accuracy, latency, size in itertools.product(*near):
            found = {"accuracy": accuracy, "latency": latency, "size": size}
            wanted, said = best_medal(found, levels), answer(found, levels)
            names = ", ".join(level["name"] for level in levels)
            what = f"{100 * accuracy:g} % right, {latency:g} of the reference's p95, {size:g} kB, levels {names}"
            expect(said == wanted, f"{what}: expected {wanted!r}, found {shorten(said)}.")


def forgets_more(kept, changed, reference_kept, reference_changed):
    drops = [
        (float(a) - float(b)) - (float(c) - float(d))
        for a, b, c, d in zip(kept, changed, reference_kept, reference_changed, strict=True)
    ]
    return sum(drops) / len(drops)


def verify_forgets_more(answer):
    answer, chance = untouched(answer), random.Random(0)
    fixed = {
        "a network that forgets nothing": ([True] * 4, [True] * 4, [True] * 4, [True] * 4),
        "one that knows the test images by heart": ([True] * 4, [False] * 4, [True] * 4, [True, True, True, False]),
        "one that forgets less than the reference": ([True, False], [True, False], [True, True], [True, False]),
    }
    drawn = {
        f"{count} pictures, drawn at random": tuple([chance.random() < share for _ in range(count)] for share in shares)
        for count, shares in ((53, (0.9, 0.4, 0.9, 0.8)), (37, (0.8, 0.8, 0.95, 0.7)), (1, (1, 0, 1, 1)))
    }
    for case, lists in (fixed | drawn).items():
        _expect_near(answer(*map(list, lists)), forgets_more(*lists), f"For {case}")


def _expect_near(found, wanted, what):
    """`expect_close`, where the answer may be 0 and rounding may leave a little of it."""
    if not (isinstance(found, (int, float)) and abs(found - wanted) < 1e-9):
        expect_close(found, wanted, what)


def without_each(techniques, score):
    everything = score(frozenset(techniques))
    return {each: everything - score(frozenset(techniques) - {each}) for each in techniques}


def verify_without_each(answer):
    answer = untouched(answer)
    # one that hurts, one that does nothing, and one whose name is the beginning of another
    worth = {"channels": 2.1374, "healing": -0.5129, "INT8 weights": 0.7341, "INT8": 3.0173, "sharing": 0.0}
    for count in (1, 2, 3, 4, 5):
        names = list(worth)[:count]

        def score(chosen):
            expect(
                isinstance(chosen, frozenset) and chosen <= set(worth),
                f"`score` wants a frozenset of techniques, found {shorten(chosen)}.",
            )
            both = 1.5137 if {"channels", "INT8"} <= chosen else 0  # the two together are worth more
            return 1 + both + sum(worth[name] for name in chosen)

        wanted, found = without_each(names, score), answer(list(names), score)
        right = isinstance(found, dict) and list(found) == names
        expect(right, f"Expected a dict with the keys {names}, in this order; found {shorten(found)}.")
        for name in names:
            _expect_near(found[name], wanted[name], f"What {name} adds to {names}")


EXERCISES = (
    Exercise(
        id="best-medal",
        task="The best medal that some figures earn.",
        difficulty=1,
        minutes=5,
        hint="Levels come from the hardest to the easiest. A figure exactly at a limit is still good enough.",
        reference=best_medal,
        verify=verify_best_medal,
    ),
    Exercise(
        id="forgets-more",
        task="How much more a network forgets than the reference, when pictures are changed.",
        difficulty=2,
        minutes=8,
        hint="Subtract twice: right on the original minus right on the copy, for both networks; then the difference.",
        reference=forgets_more,
        verify=verify_forgets_more,
    ),
    Exercise(
        id="without-each",
        task="What each technique adds, found by leaving it out.",
        difficulty=2,
        minutes=8,
        hint="Score everything once; then, for each technique, everything but this one.",
        reference=without_each,
        verify=verify_without_each,
    ),
)
