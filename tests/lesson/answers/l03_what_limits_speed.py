"""Answers to the exercises of lesson 03: wrong ones that must be rejected, right ones written
differently.
"""

import itertools
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from labkit.lesson.exercises.l03_what_limits_speed import (
    layer_task,
    memory_or_cache,
    seconds_per_call,
)


def seconds_of(operations, bytes_moved, calls, machine):
    return (
        operations / machine["arithmetic"],
        bytes_moved / machine["memory"],
        calls * machine["overhead"],
    )


NAMES = ("arithmetic", "memory", "overhead")


def sorted_pairs(*task):
    return sorted(zip(seconds_of(*task), NAMES, strict=True))[-1]


def by_cases(operations, bytes_moved, calls, machine):
    arithmetic, memory, overhead = seconds_of(operations, bytes_moved, calls, machine)
    if overhead >= max(arithmetic, memory):
        return overhead, "overhead"
    return (memory, "memory") if memory > arithmetic else (arithmetic, "arithmetic")


def pick(*task, choose=max, among=3):
    seconds = seconds_of(*task)[:among]
    found = choose(seconds)
    return found, NAMES[seconds.index(found)]


def one_call(operations, bytes_moved, calls, machine):
    return pick(operations, bytes_moved, 1, machine)


def each_call_is_long(operations, bytes_moved, calls, machine):
    seconds, limit = pick(operations, bytes_moved, calls, machine)
    return (calls * machine["overhead"], "overhead") if calls > 100 else (seconds, limit)


def corner_at(corner):
    def least(operations, bytes_moved, calls, machine):
        arithmetic, memory, overhead = seconds_of(operations, bytes_moved, calls, machine)
        if overhead > max(arithmetic, memory):
            return overhead, "overhead"
        return (
            (arithmetic, "arithmetic") if operations / bytes_moved > corner else (memory, "memory")
        )

    return least


def scales_the_machine(operations, bytes_moved, calls, machine):
    machine["overhead"] *= calls
    return pick(operations, bytes_moved, 1, machine)


WRONG = {
    "image-bytes": {
        "gives text": lambda images, height, width, size: str(images * height * width * size),
        "forgets the bytes of a value": lambda images, height, width, bytes_per_value: (
            images * height * width
        ),
        "counts bits": lambda images, height, width, bytes_per_value: (
            images * height * width * bytes_per_value * 8
        ),
        "counts one image": lambda images, height, width, bytes_per_value: (
            height * width * bytes_per_value
        ),
        "uses the height twice": lambda images, height, width, bytes_per_value: (
            images * height * height * bytes_per_value
        ),
    },
    "least-seconds": {
        "adds the three": lambda *task: (sum(seconds_of(*task)), pick(*task)[1]),
        "adds the overhead": lambda *task: (
            pick(*task, among=2)[0] + seconds_of(*task)[2],
            pick(*task)[1],
        ),
        "takes the smallest": lambda *task: pick(*task, choose=min),
        "looks at arithmetic only": lambda *task: pick(*task, among=1),
        "forgets the overhead": lambda *task: pick(*task, among=2),
        "counts one call": one_call,
        "believes that many calls mean overhead": each_call_is_long,
        "compares operations with bytes": corner_at(1),
        "believes that the ridge lies at three": corner_at(3),
        "believes that the ridge lies at ten": corner_at(10),
        "gives the seconds alone": lambda *task: pick(*task)[0],
        "gives the name first": lambda *task: pick(*task)[::-1],
        "always says memory": lambda *task: (pick(*task)[0], "memory"),
        "gives whole seconds": lambda *task: (pick(*task)[0] // 1, pick(*task)[1]),
        "changes the machine": scales_the_machine,
    },
}

WRONG["image-bytes"] |= {
    "in int32": lambda *shape: int(np.prod(np.array(shape, np.int32), dtype=np.int32)),
    "in float32": lambda *shape: float(np.prod(np.array(shape, np.float32), dtype=np.float32)),
    "knows one and four bytes only": lambda images, height, width, size: (
        images * height * width * (4 if size > 1 else 1)
    ),
}


def overhead_above_the_sum(*task):
    arithmetic, memory, overhead = seconds_of(*task)
    return (overhead, "overhead") if overhead > arithmetic + memory else pick(*task, among=2)


def limits_by_their_place(operations, bytes_moved, calls, machine):
    arithmetic, memory, overhead = machine.values()
    seconds = (operations / arithmetic, bytes_moved / memory, calls * overhead)
    return max(seconds), NAMES[seconds.index(max(seconds))]


WRONG["least-seconds"] |= {
    "the overhead only above the sum of the others": overhead_above_the_sum,
    "takes the limits by their place": limits_by_their_place,
}

RIGHT = {
    "image-bytes": {
        "as a product": lambda *sizes: math.prod(sizes),
        "as a float": lambda images, height, width, size: float(images) * size * (height * width),
    },
    "least-seconds": {
        "sorted": sorted_pairs,
        "by cases": by_cases,
    },
}


def timed(
    *,
    before=True,
    after=True,
    each=False,
    grow=True,
    calls=1,
    choose=min,
    series=5,
    scale=1,
    divide=True,
):
    """An answer to `seconds-per-call` with one property changed."""

    def answer(call, wait, now, shortest=1e-3):
        def series_of(count):
            if before:
                wait()
            begin = now()
            for _ in range(count):
                call()
                if each:
                    wait()
            if after:
                wait()
            return now() - begin

        count = calls
        while grow and count < 2**20 and series_of(count) < shortest:
            count *= 2
        return scale * choose([series_of(count) for _ in range(series)]) / (count if divide else 1)

    return answer


def own_shortest(call, wait, now, shortest=1e-3):
    return seconds_per_call(call, wait, now)


def clock_around_each_call(call, wait, now, shortest=1e-3):
    seconds = []
    while sum(seconds) < shortest and len(seconds) < 10_000:
        wait()
        begin = now()
        call()
        wait()
        seconds.append(now() - begin)
    return min(seconds)


def grows_tenfold(call, wait, now, shortest=1e-3):
    calls, fastest = 1, []
    while len(fastest) < 5:
        wait()
        begin = now()
        [call() for _ in range(calls)]
        wait()
        seconds = now() - begin
        if seconds < shortest and not fastest:
            calls *= 10
        else:
            fastest.append(seconds / calls)
    return min(fastest)


WRONG["seconds-per-call"] = {
    "times one call": timed(grow=False),
    "times a thousand calls, however long": timed(grow=False, calls=1000),
    "reads the clock around each call": clock_around_each_call,
    "does not wait before the clock stops": timed(after=False),
    "waits after each call": timed(each=True),
    "takes the mean": timed(choose=np.mean),
    "takes the median": timed(choose=np.median),
    "takes the slowest": timed(choose=max),
    "times one series": timed(series=1),
    "returns the seconds of a series": timed(divide=False),
    "returns milliseconds": timed(scale=1e3),
    "has its own shortest series": own_shortest,
}
RIGHT["seconds-per-call"] = {
    "ten times as many calls": grows_tenfold,
    "a list of series": timed(),
}


def task(*, factor=2, weights=None, moved=None, calls=1):
    """An answer to `layer-task` with one property changed."""

    def answer(layer, x, output):
        operations, bytes_moved, _ = layer_task(layer, x, output)
        if weights is not None:
            operations = 2 * output.numel() * weights(layer)
        if moved is not None:
            bytes_moved = moved(layer, x, output)
        return operations * factor // 2, bytes_moved, calls

    return answer


def filter_of_a_convolution(layer):
    if isinstance(layer, nn.Linear):
        return layer.in_features
    return layer.in_channels * math.prod(layer.kernel_size)


def by_flop_counter(layer, x, output):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x)
    numbers = x.numel() + output.numel() + sum(weight.numel() for weight in layer.parameters())
    return [counter.get_total_flops(), numbers * x.element_size(), 1]


def by_kind(layer, x, output):
    each = filter_of_a_convolution(layer)
    if not isinstance(layer, nn.Linear):
        each //= layer.groups
    moved = x.nbytes + output.nbytes + layer.weight.nbytes
    if layer.bias is not None:
        moved += layer.bias.nbytes
    return output.numel() * each * 2, moved, 1


WRONG["layer-task"] = {
    "counts a multiplication and an addition as one": task(factor=1),
    "uses each weight once": lambda layer, x, output: (
        2 * layer.weight.numel(),
        *layer_task(layer, x, output)[1:],
    ),
    "forgets the groups": task(weights=filter_of_a_convolution),
    "looks at the channels only": task(weights=lambda layer: layer.weight.shape[1]),
    "takes all filters for each number": task(weights=lambda layer: layer.weight.numel()),
    "forgets the input": task(
        moved=lambda layer, x, output: layer_task(layer, x, output)[1] - x.nbytes
    ),
    "forgets the output": task(
        moved=lambda layer, x, output: layer_task(layer, x, output)[1] - output.nbytes
    ),
    "forgets the bias": task(
        moved=lambda layer, x, output: x.nbytes + layer.weight.nbytes + output.nbytes
    ),
    "forgets the weights": task(moved=lambda layer, x, output: x.nbytes + output.nbytes),
    "four bytes for every number": task(
        moved=lambda layer, x, output: layer_task(layer, x, output)[1] * 4 // x.element_size()
    ),
    "counts numbers, not bytes": task(
        moved=lambda layer, x, output: layer_task(layer, x, output)[1] // x.element_size()
    ),
    "reads the weights for each row": task(
        moved=lambda layer, x, output: (
            layer_task(layer, x, output)[1] + (len(x) - 1) * layer.weight.nbytes
        )
    ),
    "a call for each row": lambda layer, x, output: (*layer_task(layer, x, output)[:2], len(x)),
}
RIGHT["layer-task"] = {"by torch's counter": by_flop_counter, "by kinds of layers": by_kind}


def calls_of(memory, cache=lambda x, copies: F.linear(x, copies[0])):
    """An answer to `memory-or-cache` from two functions (x, copies), the first with a number of
    its turn.
    """

    def answer(x, copies):
        turns = itertools.count()
        return {"memory": lambda: memory(x, copies, next(turns)), "cache": lambda: cache(x, copies)}

    return answer


def one_pass_only(x, copies):
    turns = iter(copies)
    return {
        "memory": lambda: F.linear(x, next(turns, copies[0])),
        "cache": lambda: F.linear(x, copies[0]),
    }


def both_take_turns(x, copies):
    turns = itertools.cycle(copies)
    return dict.fromkeys(("memory", "cache"), lambda: F.linear(x, next(turns)))


def stored_product(x, copies):
    stored = F.linear(x, copies[0])
    return {**memory_or_cache(x, copies), "cache": lambda: stored}


WRONG["memory-or-cache"] = {
    "the same copy in both": calls_of(lambda x, copies, turn: F.linear(x, copies[0])),
    "two copies in turn": calls_of(lambda x, copies, turn: F.linear(x, copies[turn % 2])),
    "to and fro": calls_of(lambda x, copies, turn: F.linear(x, copies[4 - abs(turn % 8 - 4)])),
    "the last copy is left out": calls_of(
        lambda x, copies, turn: F.linear(x, copies[turn % (len(copies) - 1)])
    ),
    "stops after one pass": one_pass_only,
    "both take turns": both_take_turns,
    "exchanges the two": lambda x, copies: dict(
        zip(("cache", "memory"), memory_or_cache(x, copies).values(), strict=True)
    ),
    "gives back a stored product": stored_product,
    "returns the products": lambda x, copies: {
        name: call() for name, call in memory_or_cache(x, copies).items()
    },
    "forgets x": calls_of(lambda x, copies, turn: copies[turn % len(copies)]),
}


def by_a_deque(x, copies):
    last = [0]

    def next_copy():
        last[0] = (last[0] + 1) % len(copies)
        return x @ copies[last[0]].T

    return {"cache": lambda: x @ copies[-1].T, "memory": next_copy}


RIGHT["memory-or-cache"] = {
    "by a number of the turn": calls_of(
        lambda x, copies, turn: F.linear(x, copies[turn % len(copies)])
    ),
    "begins with the second copy": by_a_deque,
}
