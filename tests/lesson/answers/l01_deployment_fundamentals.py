"""Answers to the exercises of lesson 01: wrong ones that must be rejected, right ones written differently."""

from labkit.lesson.exercises.l01_deployment_fundamentals import pick_deployment


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


WRONG = {
    "cost-per-million": {
        "forgets that the price is per hour": lambda price, rate: price / rate * 1e6,
        "takes an hour for 60 seconds": lambda price, rate: price / 60 / rate * 1e6,
        "costs more when faster": lambda price, rate: price / 3600 * rate * 1e6,
        "gives the cost of one": lambda price, rate: price / 3600 / rate,
    },
    "pareto-front": {
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
    "pick-deployment": {
        "takes the fastest": pick_fastest,
        "takes the most accurate": pick_most_accurate,
        "forgets the size": pick_without_size,
        "is strict at the limit": pick_strictly_below,
        "ignores the budget": pick_cheapest_of_all,
    },
}

RIGHT = {
    "cost-per-million": {},
    "pareto-front": {},
    "pick-deployment": {},
}
