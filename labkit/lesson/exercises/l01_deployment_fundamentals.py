"""Exercises of lesson 01: waiting in a queue, which deployment to take."""

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten, untouched


def response_times(arrivals, services):
    import numpy as np

    times, free = [], 0.0
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        free = max(free, arrival) + service
        times.append(free - arrival)
    return np.array(times)


def verify_response_times(answer):
    import numpy as np

    answer, random = untouched(answer), np.random.default_rng(0)
    cases = {
        "three that do not meet": ([0.0, 5.0, 9.0], [2.0, 1.0, 3.5]),
        "three at once, a long one first": ([1.0, 1.0, 1.0], [2.5, 0.5, 1.25]),
        "one that waits, then a pause, then another": ([0.5, 1.0, 7.0, 7.5], [1.25, 1.75, 0.25, 2.0]),
        "arrivals at whole seconds, integers": ([0, 1, 2, 9], [1.5, 0.25, 1.5, 0.75]),
        "services of whole seconds, integers": ([0.25, 1.5, 1.75, 7.0], [2, 1, 3, 1]),
        "five hundred at random": (random.exponential(1.0, 500).cumsum(), random.exponential(0.8, 500)),
    }
    for case, (arrivals, services) in cases.items():
        arrivals, services = np.array(arrivals), np.array(services)
        wanted = response_times(arrivals, services)
        found = answer(arrivals, services)
        cut = isinstance(found, np.ndarray) and found.dtype.kind in "iu"
        expect(not cut, f"{case}: expected {wanted}, found integers, {shorten(found)}. Times have fractions.")
        is_array = isinstance(found, np.ndarray) and found.dtype.kind == "f"
        expect(
            is_array,
            f"{case}: expected a numpy array, np.array(times), of {len(wanted)} seconds; found {shorten(found)}.",
        )
        expect(found.shape == wanted.shape, f"{case}: expected {len(wanted)} times, found shape {found.shape}.")
        worst = int(np.argmax(np.abs(found - wanted)))
        expect_close(found[worst], wanted[worst], f"{case}: response time of request {worst}", tolerance=1e-6)


# Made-up deployments as (name, accuracy, p99 in ms, size in MB, dollars per month).
OFFERS = (
    ("tiny", 0.80, 0.5, 0.1, 20),
    ("small", 0.86, 1.0, 1.0, 50),
    ("batched", 0.91, 40.0, 20.0, 0),  # on a machine that is there anyway
    ("late", 0.876, 5.4, 6.0, 45),
    ("bulky", 0.885, 12.5, 10.6, 30),
    ("middle", 0.90, 4.0, 5.0, 200),
    ("large", 0.93, 9.0, 80.0, 900),
    ("rented", 0.97, 30.0, 400.0, 25_000),
)


def pick_deployment(offers, max_p99_ms, max_size_mb, min_accuracy):
    fitting = [
        offer
        for offer in offers
        if offer["p99_ms"] <= max_p99_ms and offer["size_mb"] <= max_size_mb and offer["accuracy"] >= min_accuracy
    ]
    return min(fitting, key=lambda offer: offer["usd_per_month"])["name"] if fitting else None


def verify_pick(answer):
    answer = untouched(answer)
    offers = [dict(zip(("name", "accuracy", "p99_ms", "size_mb", "usd_per_month"), row, strict=True)) for row in OFFERS]
    cases = {
        "an app that must answer within 5 ms": ((5, 50, 0.85), "small"),
        "a nightly job that may take its time": ((100, 50, 0.89), "batched"),
        "a device with 10 MB of room": ((100, 10, 0.88), "middle"),
        "exactly at the limits": ((9.0, 80.0, 0.93), "large"),
        "high accuracy within 5 ms": ((5, 50, 0.90), "middle"),
        "an accuracy that only the dearest reaches": ((50, 500, 0.95), "rented"),
        "more than any can do": ((1, 50, 0.95), None),
    }
    for case, (budget, wanted) in cases.items():
        for order in (offers, offers[::-1]):  # the first that fits must not be the cheapest by chance
            found = answer([dict(offer) for offer in order], *budget)
            expect(not isinstance(found, dict), f"{case}: return the offer's name, not the offer {shorten(found)}.")
            nothing = "None, as no offer fits" if wanted is None else repr(wanted)
            right = found is None if wanted is None else str(found) == wanted
            expect(right, f"{case}, budget {budget}: expected {nothing}; found {shorten(found)}.")


EXERCISES = (
    Exercise(
        id="response-times",
        task="Write how long each request waits for its answer at a server that takes one at a time.",
        difficulty=2,
        minutes=10,
        hint="A request is begun when it has arrived and the server is free. Remember when the server will be free.",
        reference=response_times,
        verify=verify_response_times,
    ),
    Exercise(
        id="pick-deployment",
        task="Write the rule that picks the cheapest deployment within a budget of latency, size and accuracy.",
        difficulty=1,
        minutes=5,
        hint="First drop what breaks a limit (at the limit is allowed); then take the cheapest of the rest, if any.",
        reference=pick_deployment,
        verify=verify_pick,
    ),
)
