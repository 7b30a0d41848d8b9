"""Answers to the exercises of lesson 01: wrong ones that must be rejected, right ones written differently."""

import numpy as np

from labkit.lesson.exercises.l01_deployment_fundamentals import pick_deployment


def pick_fastest(offers, max_p99_ms, max_size_mb, min_accuracy):
    fitting = [o for o in offers if o["p99_ms"] <= max_p99_ms and o["size_mb"] <= max_size_mb]
    fitting = [o for o in fitting if o["accuracy"] >= min_accuracy]
    return min(fitting, key=lambda offer: offer["p99_ms"])["name"] if fitting else None


def pick_most_accurate(offers, max_p99_ms, max_size_mb, min_accuracy):
    fitting = [o for o in offers if o["p99_ms"] <= max_p99_ms and o["size_mb"] <= max_size_mb]
    fitting = [o for o in fitting if o["accuracy"] >= min_accuracy]
    return max(fitting, key=lambda offer: offer["accuracy"])["name"] if fitting else None


def pick_first_that_fits(offers, max_p99_ms, max_size_mb, min_accuracy):
    for o in offers:
        if o["p99_ms"] <= max_p99_ms and o["size_mb"] <= max_size_mb and o["accuracy"] >= min_accuracy:
            return o["name"]
    return None


def pick_last_that_fits(offers, *budget):
    return pick_first_that_fits(offers[::-1], *budget)


def pick_the_offer_itself(offers, *budget):
    name = pick_deployment(offers, *budget)
    return next((offer for offer in offers if offer["name"] == name), None)


def pick_without_size(offers, max_p99_ms, max_size_mb, min_accuracy):
    return pick_deployment(offers, max_p99_ms, float("inf"), min_accuracy)


def pick_strictly_below(offers, max_p99_ms, max_size_mb, min_accuracy):
    fitting = [o for o in offers if o["p99_ms"] < max_p99_ms and o["size_mb"] < max_size_mb]
    fitting = [o for o in fitting if o["accuracy"] > min_accuracy]
    return min(fitting, key=lambda offer: offer["usd_per_month"])["name"] if fitting else None


def pick_cheapest_of_all(offers, max_p99_ms, max_size_mb, min_accuracy):
    return min(offers, key=lambda offer: offer["usd_per_month"])["name"]


def pick_in_a_loop(offers, max_p99_ms, max_size_mb, min_accuracy):
    best = None
    for offer in offers:
        if offer["p99_ms"] > max_p99_ms or offer["size_mb"] > max_size_mb or offer["accuracy"] < min_accuracy:
            continue
        if best is None or offer["usd_per_month"] < best["usd_per_month"]:
            best = offer
    return best and best["name"]


def pick_from_a_table(offers, max_p99_ms, max_size_mb, min_accuracy):
    import pandas as pd

    table = pd.DataFrame(offers)
    table = table[(table.p99_ms <= max_p99_ms) & (table.size_mb <= max_size_mb) & (table.accuracy >= min_accuracy)]
    return table.sort_values("usd_per_month")["name"].iloc[0] if len(table) else None


def sort_the_offers_themselves(offers, max_p99_ms, max_size_mb, min_accuracy):
    found = pick_deployment(offers, max_p99_ms, max_size_mb, min_accuracy)
    offers.sort(key=lambda offer: -offer["usd_per_month"])
    return found


def in_turn(arrivals, services, *, idle=True, total=True):
    """Response times in a loop; without `idle` the server never rests, without `total` only the wait counts."""
    free, times = arrivals[0] if len(arrivals) else 0.0, []
    for arrival, service in zip(arrivals, services, strict=True):
        begin = max(free, arrival) if idle else free
        free = begin + service
        times.append((free if total else begin) - arrival)
    return np.array(times)


def without_a_loop(arrivals, services):
    before = services.cumsum() - services
    return np.maximum.accumulate(arrivals - before) + services.cumsum() - arrivals


def looks_one_back(arrivals, services):
    before = np.concatenate([[-np.inf], (arrivals + services)[:-1]])
    return np.maximum(before - arrivals, 0) + services


def shortest_first(arrivals, services):
    order = np.lexsort((services, arrivals))
    times = np.empty_like(arrivals)
    times[order] = in_turn(arrivals[order], services[order])
    return times


def an_array_like_the_arrivals(arrivals, services):
    times = np.zeros_like(arrivals)
    times[:] = in_turn(arrivals, services)
    return times


def an_array_like_the_services(arrivals, services):
    times = np.empty_like(services)
    times[:] = in_turn(arrivals, services)
    return times


def at_most_a_thousand(offers, max_p99_ms, max_size_mb, min_accuracy):
    best, least = None, 1000
    for o in offers:
        fits = o["p99_ms"] <= max_p99_ms and o["size_mb"] <= max_size_mb and o["accuracy"] >= min_accuracy
        if fits and o["usd_per_month"] < least:
            best, least = o["name"], o["usd_per_month"]
    return best


class AnyName(str):
    """Equal to every text."""

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


WRONG = {
    "response-times": {
        "nobody waits": lambda arrivals, services: services.copy(),
        "only the wait": lambda arrivals, services: in_turn(arrivals, services, total=False),
        "the server never rests": lambda arrivals, services: in_turn(arrivals, services, idle=False),
        "waits for the one before, as if that had not waited": looks_one_back,
        "all take the mean": lambda arrivals, services: in_turn(arrivals, np.full(len(services), services.mean())),
        "all take as long as the first": lambda arrivals, services: in_turn(arrivals, services * 0 + services[0]),
        "the shortest first": shortest_first,
        "when it is answered": lambda arrivals, services: in_turn(arrivals, services) + arrivals,
        "whole seconds, where the arrivals are": an_array_like_the_arrivals,
        "whole seconds, where the services are": an_array_like_the_services,
        "a list": lambda arrivals, services: in_turn(arrivals, services).tolist(),
        "the mean": lambda arrivals, services: np.mean(in_turn(arrivals, services)),
    },
    "pick-deployment": {
        "sorts the offers it was given": sort_the_offers_themselves,
        "takes the fastest": pick_fastest,
        "takes the most accurate": pick_most_accurate,
        "takes the first that fits": pick_first_that_fits,
        "takes the last that fits": pick_last_that_fits,
        "returns the offer, not its name": pick_the_offer_itself,
        "forgets the size": pick_without_size,
        "is strict at the limit": pick_strictly_below,
        "ignores the budget": pick_cheapest_of_all,
        "says what equals any name": lambda offers, *budget: AnyName(),
    },
}


def whole_milliseconds(offers, *budget):
    return pick_deployment([offer | {"p99_ms": int(offer["p99_ms"])} for offer in offers], *budget)


WRONG["pick-deployment"] |= {
    "whole milliseconds": whole_milliseconds,
    "takes nothing above 1,000 dollars": at_most_a_thousand,
    "without what is free": lambda offers, *budget: pick_deployment(
        [offer for offer in offers if offer["usd_per_month"]], *budget
    ),
}

RIGHT = {
    "response-times": {"in a loop": in_turn, "without a loop": without_a_loop},
    "pick-deployment": {
        "in a loop": pick_in_a_loop,
        "from a table": pick_from_a_table,
    },
}
