"""Exercises of lesson 01: response times, a control, one queue for several machines, the price."""

import numpy as np

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten, untouched


def response_times(arrivals, services):
    times, free = [], 0.0
    for arrival, service in zip(arrivals, services, strict=True):
        free = max(free, arrival) + service
        times.append(free - arrival)
    return np.array(times)


QUEUES = {  # arrivals and services, in seconds
    "three that do not meet": ([0.0, 5.0, 9.0], [2.0, 1.0, 3.5]),
    "three at once, a long one first": ([1.0, 1.0, 1.0], [2.5, 0.5, 1.25]),
    "one that waits, then a pause, then another": ([0.5, 1.0, 7.0, 7.5], [1.25, 1.75, 0.25, 2.0]),
    "arrivals at whole seconds, integers": ([0, 1, 2, 9], [1.5, 0.25, 1.5, 0.75]),
    "services of whole seconds, integers": ([0.25, 1.5, 1.75, 7.0], [2, 1, 3, 1]),
}


def queues():
    """Yield (what it is, arrivals, services) of all cases."""
    for case, (arrivals, services) in QUEUES.items():
        yield case, np.array(arrivals), np.array(services)
    random = np.random.default_rng(0)
    many = random.exponential(1.0, 500).cumsum()
    yield "five hundred at random", many, random.exponential(0.8, 500)


def expect_times(found, wanted, case, what="response time of request"):
    """Raise `Wrong` unless `found` is a numpy array of these times."""
    cut = isinstance(found, np.ndarray) and found.dtype.kind in "iu"
    expect(
        not cut,
        f"{case}: expected {wanted}, found integers, {shorten(found)}. Times have fractions.",
    )
    is_array = isinstance(found, np.ndarray) and found.dtype.kind == "f"
    expect(
        is_array,
        f"{case}: expected a numpy array, np.array(times), of {len(wanted)} seconds; found "
        f"{shorten(found)}.",
    )
    expect(
        found.shape == wanted.shape,
        f"{case}: expected {len(wanted)} times, found shape {found.shape}.",
    )
    worst = int(np.argmax(np.abs(found - wanted)))
    expect_close(found[worst], wanted[worst], f"{case}: {what} {worst}", tolerance=1e-6)


def verify_response_times(answer):
    answer = untouched(answer)
    for case, arrivals, services in queues():
        expect_times(answer(arrivals, services), response_times(arrivals, services), case)


def without_chance(arrivals, services):
    even = np.linspace(arrivals[0], arrivals[-1], len(arrivals))
    constant = np.full(len(services), services.mean())
    return even, constant


def verify_without_chance(answer):
    answer = untouched(answer)
    for case, arrivals, services in queues():
        found = answer(arrivals, services)
        pair = isinstance(found, (tuple, list)) and len(found) == 2
        expect(pair, f"{case}: return two arrays, even and constant; found {shorten(found)}.")
        wanted = without_chance(arrivals, services)
        expect_times(found[0], wanted[0], case, "evenly spaced arrival")
        expect_times(found[1], wanted[1], case, "constant service time")


def one_queue(arrivals, services, machines):
    free, times = [0.0] * machines, []
    for arrival, service in zip(arrivals, services, strict=True):
        begin = max(min(free), arrival)
        free[free.index(min(free))] = begin + service
        times.append(begin + service - arrival)
    return np.array(times)


def verify_one_queue(answer):
    answer = untouched(answer)
    for case, arrivals, services in queues():
        for machines in (1, 2, 3, 7):
            wanted = one_queue(arrivals, services, machines)
            expect_times(
                answer(arrivals, services, machines), wanted, f"{case}, {machines} machine(s)"
            )
    # Three requests a second of one second each: two machines never end, three always do.
    arrivals, services = np.arange(300) / 3, np.full(300, 0.99)
    for machines in (2, 3):
        wanted = one_queue(arrivals, services, machines)
        expect_times(
            answer(arrivals, services, machines), wanted, f"evenly spaced, {machines} machines"
        )


def cost_per_million(serve, arrivals, services, limit, usd_per_hour, most=50):
    for machines in range(1, most + 1):
        responses = serve(arrivals, services, machines)
        if np.quantile(responses, 0.99) <= limit:
            hours = 1e6 * arrivals[-1] / len(arrivals) / 3600
            return machines, machines * usd_per_hour * hours
    return None, np.inf


def made_up_service(arrivals, services, machines):
    """Responses of a made-up service: a long tail that the machines share."""
    tail = np.linspace(0, 1, len(arrivals)) ** 40
    return services + 12 * tail / machines


# what: (requests, seconds that they take to arrive, limit, dollars per hour, machines at most)
ORDERS = {
    "a loose limit": (400, 80.0, 9.5, 0.25, 50),
    "a limit that takes some machines": (400, 80.0, 2.0, 0.25, 50),
    "a tight limit, another price": (400, 80.0, 1.2, 1.75, 50),
    "rare requests": (250, 5000.0, 2.0, 0.25, 50),
    "a limit below the time of one answer": (400, 80.0, 0.5, 0.25, 50),
    "as many machines as there are": (400, 80.0, 1.2, 0.25, 18),
    "one machine more than there are": (400, 80.0, 1.2, 0.25, 17),
}


def verify_cost_per_million(answer):
    for case, (count, seconds, limit, price, most) in ORDERS.items():
        arrivals = np.linspace(seconds / count, seconds, count)
        services = np.full(count, 0.75)
        compare_costs(answer, case, made_up_service, arrivals, services, limit, price, most)
    # Exactly at the limit is allowed; and the responses of a real queue.
    steady = np.arange(1, 201) * 1.0
    compare_costs(
        answer, "exactly at the limit", one_queue, steady, np.full(200, 0.5), 0.5, 0.5, 50
    )
    random = np.random.default_rng(3)
    arrivals, services = random.exponential(0.5, 900).cumsum(), random.exponential(1.0, 900)
    compare_costs(answer, "requests at random", one_queue, arrivals, services, 6.0, 0.5, 50)


def compare_costs(answer, case, serve, *order):
    found = untouched(answer)(serve, *order)
    pair = isinstance(found, (tuple, list)) and len(found) == 2
    expect(
        pair,
        f"{case}: return two things, the number of machines and the dollars; found "
        f"{shorten(found)}.",
    )
    machines, usd = cost_per_million(serve, *order)
    if machines is None:
        text = (
            f"{case}: no number of machines keeps the limit; expected None, np.inf, found "
            f"{shorten(found)}."
        )
        expect(found[0] is None and found[1] == np.inf, text)
        return
    expect(found[0] is not None, f"{case}: expected {machines} machines, found None.")
    expect_close(found[0], machines, f"{case}: the fewest machines")
    expect_close(found[1], usd, f"{case}: dollars for a million answers", tolerance=1e-6)


NUMPY = "import numpy as np"
EXERCISES = (
    Exercise(
        id="response-times",
        task="Write how long each request waits for its answer at a server that "
        "takes one at a time.",
        difficulty=2,
        importance=3,
        minutes=10,
        hint="A request is begun when it has arrived and the server is free. Remember when the "
        "server will be free.",
        reference=response_times,
        verify=verify_response_times,
        imports=NUMPY,
    ),
    Exercise(
        id="without-chance",
        task="Write the control: the same number of requests without the chance of their "
        "arrivals, and of their times.",
        difficulty=1,
        minutes=5,
        hint="np.linspace gives numbers at equal distances from the first to the last, np.full "
        "equal numbers.",
        reference=without_chance,
        verify=verify_without_chance,
        imports=NUMPY,
    ),
    Exercise(
        id="one-queue",
        task="Write the response times with one queue for several machines.",
        difficulty=2,
        importance=3,
        minutes=9,
        hint="Keep a list of the seconds at which each machine will be free. The next request "
        "goes to the smallest.",
        reference=one_queue,
        verify=verify_one_queue,
        imports=NUMPY,
    ),
    Exercise(
        id="cost-per-million",
        task="Write the decision: the fewest machines that keep the promise, and what a million "
        "answers cost there.",
        difficulty=2,
        importance=3,
        minutes=8,
        hint="Try one machine, two, three. The hours in which a million requests come: 1e6 / "
        "(requests per second) / "
        "3600. A rented machine is paid in all of them, busy or not.",
        reference=cost_per_million,
        verify=verify_cost_per_million,
        imports=NUMPY,
    ),
)
