"""Answers to the exercises of lesson 01: wrong ones that must be rejected, right ones written
differently.
"""

import heapq

import numpy as np

from labkit.lesson.exercises.l01_deployment_fundamentals import (
    cost_per_million,
    one_queue,
    without_chance,
)


def in_turn(arrivals, services, *, idle=True, total=True):
    """Response times in a loop; without `idle` the server never rests, without `total` only the
    wait counts.
    """
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


def by_cumulated_gaps(arrivals, services):
    count = len(arrivals)
    gap = (arrivals[-1] - arrivals[0]) / (count - 1)
    return [arrivals[0] + gap * np.arange(count), np.ones(count) * services.sum() / count]


def by_list_comprehensions(arrivals, services):
    count = len(arrivals)
    first, last = float(arrivals[0]), float(arrivals[-1])
    even = [first + (last - first) * number / (count - 1) for number in range(count)]
    return np.array(even), np.array([np.mean(services)] * count)


def control(even=None, constant=None):
    """The control with one of its two arrays made differently."""

    def answer(arrivals, services):
        right_even, right_constant = without_chance(arrivals, services)
        return (
            even(arrivals) if even else right_even,
            constant(services) if constant else right_constant,
        )

    return answer


def in_a_heap(arrivals, services, machines):
    free = [0.0] * machines
    times = np.empty(len(arrivals))
    for number, (arrival, service) in enumerate(zip(arrivals, services, strict=True)):
        end = max(heapq.heappop(free), arrival) + service
        heapq.heappush(free, end)
        times[number] = end - arrival
    return times


def machines_in_a_queue(
    choose=lambda free, number: int(np.argmin(free)),
    begin=max,
    counted=lambda begin, end, arrival: end - arrival,
):
    """One queue, with another machine chosen, another begin, or another time counted."""

    def answer(arrivals, services, machines):
        free = np.zeros(machines)
        times = []
        for number, (arrival, service) in enumerate(zip(arrivals, services, strict=True)):
            machine = choose(free, number)
            start = begin(free[machine], arrival)
            free[machine] = start + service
            times.append(counted(start, free[machine], arrival))
        return np.array(times)

    return answer


def one_fast_machine(arrivals, services, machines):
    return in_turn(arrivals, services / machines)


def sorted_by_service(arrivals, services, machines):
    return one_queue(arrivals, np.sort(services), machines)


def price(
    statistic=lambda responses: np.quantile(responses, 0.99),
    *,
    keeps=lambda value, limit: value <= limit,
    first=1,
    dollars=lambda machines, arrivals, usd_per_hour: (
        machines * usd_per_hour * 1e6 * arrivals[-1] / len(arrivals) / 3600
    ),
    last=lambda most: most,
    nothing=(None, np.inf),
):
    """The decision with one of its parts made differently."""

    def answer(serve, arrivals, services, limit, usd_per_hour, most=50):
        for machines in range(first, last(most) + 1):
            if keeps(statistic(serve(arrivals, services, machines)), limit):
                return machines, dollars(machines, arrivals, usd_per_hour)
        return nothing

    return answer


def paid_only_when_busy(serve, arrivals, services, limit, usd_per_hour, most=50):
    machines, usd = cost_per_million(serve, arrivals, services, limit, usd_per_hour, most)
    if machines is None:
        return machines, usd
    return machines, 1e6 * services.mean() / 3600 * usd_per_hour


def machines_alone(*order):
    return cost_per_million(*order)[0]


def dollars_first(*order):
    return cost_per_million(*order)[::-1]


def from_the_most_down(serve, arrivals, services, limit, usd_per_hour, most=50):
    fewest = None
    for machines in range(most, 0, -1):
        if np.percentile(serve(arrivals, services, machines), 99) > limit:
            break
        fewest = machines
    if fewest is None:
        return None, float("inf")
    per_second = len(arrivals) / arrivals[-1]
    return fewest, 1_000_000 / per_second * fewest * usd_per_hour / 3600


def with_a_while(serve, arrivals, services, limit, usd_per_hour, most=50):
    machines = 1
    while np.quantile(serve(arrivals, services, machines), 0.99) > limit:
        machines += 1
        if machines > most:
            return [None, np.inf]
    rate = len(arrivals) / arrivals[-1]
    return [machines, machines * usd_per_hour * (1e6 / rate) / 3600]


def sorts_its_input(serve, arrivals, services, *order):
    services += 0.001
    return cost_per_million(serve, arrivals, services - 0.001, *order)


WRONG = {
    "response-times": {
        "nobody waits": lambda arrivals, services: services.copy(),
        "only the wait": lambda arrivals, services: in_turn(arrivals, services, total=False),
        "the server never rests": lambda arrivals, services: in_turn(
            arrivals, services, idle=False
        ),
        "waits for the one before, as if that had not waited": looks_one_back,
        "all take the mean": lambda arrivals, services: in_turn(
            arrivals, np.full(len(services), services.mean())
        ),
        "all take as long as the first": lambda arrivals, services: in_turn(
            arrivals, services * 0 + services[0]
        ),
        "the shortest first": shortest_first,
        "when it is answered": lambda arrivals, services: in_turn(arrivals, services) + arrivals,
        "whole seconds, where the arrivals are": an_array_like_the_arrivals,
        "whole seconds, where the services are": an_array_like_the_services,
        "a list": lambda arrivals, services: in_turn(arrivals, services).tolist(),
        "the mean": lambda arrivals, services: np.mean(in_turn(arrivals, services)),
    },
    "without-chance": {
        "the arrivals as they are": control(even=lambda arrivals: arrivals.astype(float)),
        "from second 0": control(even=lambda arrivals: np.linspace(0, arrivals[-1], len(arrivals))),
        "without the last": control(
            even=lambda arrivals: np.linspace(
                arrivals[0], arrivals[-1], len(arrivals), endpoint=False
            )
        ),
        "one gap too many": control(
            even=lambda arrivals: np.linspace(arrivals[0], arrivals[-1], len(arrivals) + 1)
        ),
        "the gaps": control(even=lambda arrivals: np.full(len(arrivals), np.diff(arrivals).mean())),
        "whole seconds": control(
            even=lambda arrivals: np.linspace(arrivals[0], arrivals[-1], len(arrivals)).astype(int)
        ),
        "the times as they are": control(constant=lambda services: services.astype(float)),
        "the median of the times": control(
            constant=lambda services: np.full(len(services), np.median(services))
        ),
        "the first time": control(
            constant=lambda services: np.full(len(services), float(services[0]))
        ),
        "one number": control(constant=np.mean),
        "the two exchanged": lambda *requests: without_chance(*requests)[::-1],
        "the arrivals alone": lambda *requests: without_chance(*requests)[0],
    },
    "one-queue": {
        "one machine": lambda arrivals, services, machines: in_turn(arrivals, services),
        "one machine more": lambda arrivals, services, machines: one_queue(
            arrivals, services, machines + 1
        ),
        "in turn, busy or not": machines_in_a_queue(lambda free, number: number % len(free)),
        "the machine that is free last": machines_in_a_queue(
            lambda free, number: int(np.argmax(free))
        ),
        "always the first machine": machines_in_a_queue(lambda free, number: 0),
        "begins before it has arrived": machines_in_a_queue(begin=lambda free, arrival: free),
        "begins at once, busy or not": machines_in_a_queue(begin=lambda free, arrival: arrival),
        "only the wait": machines_in_a_queue(counted=lambda begin, end, arrival: begin - arrival),
        "without the wait": machines_in_a_queue(counted=lambda begin, end, arrival: end - begin),
        "when it is answered": machines_in_a_queue(counted=lambda begin, end, arrival: end),
        "one machine that is so many times as fast": one_fast_machine,
        "the shortest first": sorted_by_service,
        "a list": lambda *order: one_queue(*order).tolist(),
    },
    "cost-per-million": {
        "the mean in place of the p99": price(np.mean),
        "the median": price(np.median),
        "the slowest": price(np.max),
        "the 95th percentile": price(lambda responses: np.quantile(responses, 0.95)),
        "strict at the limit": price(keeps=lambda value, limit: value < limit),
        "begins with two machines": price(first=2),
        "one machine too few is tried": price(last=lambda most: most - 1),
        "one machine too many is tried": price(last=lambda most: most + 1),
        "the last one is taken where none keeps the limit": price(nothing=(50, 0.5)),
        "costs nothing where none keeps the limit": price(nothing=(None, 0)),
        "one machine is paid": price(
            dollars=lambda m, arrivals, usd: usd * 1e6 * arrivals[-1] / len(arrivals) / 3600
        ),
        "a thousand answers": price(
            dollars=lambda m, arrivals, usd: m * usd * 1e3 * arrivals[-1] / len(arrivals) / 3600
        ),
        "dollars per minute": price(
            dollars=lambda m, arrivals, usd: m * usd * 1e6 * arrivals[-1] / len(arrivals) / 60
        ),
        "the simulated day": price(dollars=lambda m, arrivals, usd: m * usd * arrivals[-1] / 3600),
        "paid only when busy": paid_only_when_busy,
        "the machines alone": machines_alone,
        "the two exchanged": dollars_first,
        "changes its input": sorts_its_input,
    },
}

RIGHT = {
    "response-times": {"in a loop": in_turn, "without a loop": without_a_loop},
    "without-chance": {"by gaps": by_cumulated_gaps, "by lists": by_list_comprehensions},
    "one-queue": {"in a heap": in_a_heap, "by argmin": machines_in_a_queue()},
    "cost-per-million": {"from the most down": from_the_most_down, "with a while": with_a_while},
}
