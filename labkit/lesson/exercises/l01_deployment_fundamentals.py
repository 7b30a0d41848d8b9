"""Exercises of lesson 01: what a prediction costs, which deployments are worth a look, and which to take."""

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten


def cost_per_million(usd_per_hour, images_per_second):
    return usd_per_hour / 3600 / images_per_second * 1e6


def verify_cost(answer):
    for (price, rate), wanted in {(0.36, 100): 1.0, (3.6, 1000): 1.0, (1.0, 1000): 1e6 / 3.6e6}.items():
        expect_close(answer(price, rate), wanted, f"cost_per_million({price}, {rate})")


# name: (accuracy, latency in ms); "b" is beaten by "a" on both counts, "e" ties "a" in accuracy but is slower
POINTS = {"a": (0.90, 2.0), "b": (0.88, 3.0), "c": (0.80, 1.0), "d": (0.95, 9.0), "e": (0.90, 2.5)}


def pareto_front(points):
    return {
        name
        for name, (accuracy, latency) in points.items()
        if not any(
            other_accuracy >= accuracy
            and other_latency <= latency
            and (other_accuracy, other_latency) != (accuracy, latency)
            for other_accuracy, other_latency in points.values()
        )
    }


def verify_front(answer):
    cases = {
        "five deployments": (POINTS, {"a", "c", "d"}),
        "one deployment": ({"only": (0.5, 1.0)}, {"only"}),
        "two alike": ({"x": (0.9, 1.0), "y": (0.9, 1.0)}, {"x", "y"}),
        "three in a row": ({"p": (0.7, 1.0), "q": (0.8, 2.0), "r": (0.9, 3.0)}, {"p", "q", "r"}),
    }
    for case, (points, wanted) in cases.items():
        found = answer(dict(points))
        try:
            found = set(found)
        except TypeError:
            raise Wrong(f"{case}: expected a set of names, found {shorten(found)}.") from None
        extra, missing = sorted(map(str, found - wanted)), sorted(wanted - found)
        expect(not extra, f"{case}: {extra} are beaten by another one, or were not among the points.")
        expect(not missing, f"{case}: {missing} are beaten by none, yet are not in your answer.")


# Made-up deployments as (name, accuracy, p95 in ms, size in MB, dollars per million); checked together with others.
OFFERS = (
    ("tiny", 0.80, 0.5, 0.1, 0.02),
    ("small", 0.86, 1.0, 1.0, 0.05),
    ("batched", 0.91, 40.0, 20.0, 0.04),
    ("middle", 0.90, 4.0, 5.0, 0.20),
    ("large", 0.93, 9.0, 80.0, 0.90),
)


def pick_deployment(offers, max_p95_ms, max_size_mb, min_accuracy):
    fitting = [
        offer
        for offer in offers
        if offer["p95_ms"] <= max_p95_ms and offer["size_mb"] <= max_size_mb and offer["accuracy"] >= min_accuracy
    ]
    return min(fitting, key=lambda offer: offer["usd_per_million"])["name"] if fitting else None


def verify_pick(answer):
    offers = [
        dict(zip(("name", "accuracy", "p95_ms", "size_mb", "usd_per_million"), row, strict=True)) for row in OFFERS
    ]
    cases = {
        "an app that must answer within 5 ms": ((5, 50, 0.85), "small"),
        "a nightly job that may take its time": ((100, 50, 0.88), "batched"),
        "a device with 10 MB of room": ((100, 10, 0.88), "middle"),
        "exactly at the limits": ((9.0, 80.0, 0.93), "large"),
        "high accuracy within 5 ms": ((5, 50, 0.90), "middle"),
        "more than any can do": ((1, 50, 0.95), None),
    }
    for case, (budget, wanted) in cases.items():
        found = answer([dict(offer) for offer in offers], *budget)
        found = found.get("name") if isinstance(found, dict) else found
        nothing = "None, as no offer fits" if wanted is None else repr(wanted)
        expect(found == wanted, f"{case}, budget {budget}: expected {nothing}; found {shorten(found)}.")


def pick_fastest(offers, max_p95_ms, max_size_mb, min_accuracy):
    fitting = [o for o in offers if o["p95_ms"] <= max_p95_ms and o["size_mb"] <= max_size_mb]
    fitting = [o for o in fitting if o["accuracy"] >= min_accuracy]
    return min(fitting, key=lambda offer: offer["p95_ms"])["name"] if fitting else None


def pick_most_accurate(offers, max_p95_ms, max_size_mb, min_accuracy):
    fitting = [o for o in offers if o["p95_ms"] <= max_p95_ms and o["size_mb"] <= max_size_mb]
    fitting = [o for o in fitting if o["accuracy"] >= min_accuracy]
    return max(fitting, key=lambda offer: offer["accuracy"])["name"] if fitting else None


def pick_without_size(offers, max_p95_ms, max_size_mb, min_accuracy):
    return pick_deployment(offers, max_p95_ms, float("inf"), min_accuracy)


def pick_strictly_below(offers, max_p95_ms, max_size_mb, min_accuracy):
    fitting = [o for o in offers if o["p95_ms"] < max_p95_ms and o["size_mb"] < max_size_mb]
    fitting = [o for o in fitting if o["accuracy"] > min_accuracy]
    return min(fitting, key=lambda offer: offer["usd_per_million"])["name"] if fitting else None


def pick_cheapest_of_all(offers, max_p95_ms, max_size_mb, min_accuracy):
    return min(offers, key=lambda offer: offer["usd_per_million"])["name"]


EXERCISES = (
    Exercise(
        id="cost-per-million",
        task="Write what a million predictions cost on a machine rented by the hour.",
        difficulty=1,
        minutes=4,
        hint="How many seconds does a million predictions take, and what does one second cost?",
        reference=cost_per_million,
        verify=verify_cost,
        wrong={
            "forgets that the price is per hour": lambda price, rate: price / rate * 1e6,
            "takes an hour for 60 seconds": lambda price, rate: price / 60 / rate * 1e6,
            "costs more when faster": lambda price, rate: price / 3600 * rate * 1e6,
            "gives the cost of one": lambda price, rate: price / 3600 / rate,
        },
    ),
    Exercise(
        id="pareto-front",
        task="Write which deployments no other one beats in both accuracy and latency.",
        difficulty=2,
        minutes=10,
        hint="A point falls out when another one is at least as accurate and at most as slow, and not equal to it.",
        reference=pareto_front,
        verify=verify_front,
        wrong={
            "keeps only the most accurate": lambda points: {max(points, key=lambda name: points[name][0])},
            "keeps only the fastest": lambda points: {min(points, key=lambda name: points[name][1])},
            "keeps ties that are slower": lambda points: {
                n for n, (a, t) in points.items() if not any(b > a and u < t for b, u in points.values())
            },
            "wants to win on both counts": lambda points: {
                n for n, (a, t) in points.items() if all(a >= b and t <= u for b, u in points.values())
            },
            "keeps all": lambda points: set(points),
        },
    ),
    Exercise(
        id="pick-deployment",
        task="Write the rule that picks the cheapest deployment within a budget of latency, size and accuracy.",
        difficulty=2,
        minutes=10,
        hint="First drop what breaks a limit (at the limit is allowed); then take the cheapest of the rest, if any.",
        reference=pick_deployment,
        verify=verify_pick,
        wrong={
            "takes the fastest": pick_fastest,
            "takes the most accurate": pick_most_accurate,
            "forgets the size": pick_without_size,
            "is strict at the limit": pick_strictly_below,
            "ignores the budget": pick_cheapest_of_all,
        },
    ),
)
