"""Exercises of lesson 03: bytes, the seconds of a call, the least time of a task, where the
weights lie.
"""

import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten


def image_bytes(images, height, width, bytes_per_value):
    return images * height * width * bytes_per_value


def verify_image_bytes(answer):
    for shape in (
        (60_000, 28, 28, 1),
        (60_000, 28, 28, 4),
        (7, 3, 5, 1),
        (11, 7, 3, 2),
        (60_013, 97, 113, 4),
    ):
        images, height, width, size = shape
        expect_close(
            answer(*shape), images * height * width * size, f"image_bytes{shape}", tolerance=0
        )


# --- seconds of a call ---


def seconds_per_call(call, wait, now, shortest=1e-3):
    def series(calls):
        wait()
        begin = now()
        for _ in range(calls):
            call()
        wait()
        return now() - begin

    calls = 1
    while series(calls) < shortest:
        calls *= 2
    return min(series(calls) for _ in range(5)) / calls


class Device:
    """A device with a queue and a clock of its own: a call only puts work in, `wait` does the work.

    seconds  of a call
    slow     {number of a call: how many times as long it takes}
    tick     seconds between two readings of the clock that differ
    waiting  seconds that waiting for it costs
    """

    def __init__(self, seconds, *, slow=None, tick=0.0, waiting=0.0):
        self.seconds, self.tick, self.waiting = seconds, tick, waiting
        self.slow = slow or (lambda number: 1)
        self.time, self.queue, self.calls = 0.0, 0.0, 0

    def call(self):
        seconds = self.seconds * self.slow(self.calls)
        self.time += 0.01 * seconds  # putting it in takes time, too
        self.queue += 0.99 * seconds
        self.calls += 1

    def wait(self):
        self.time += self.queue + self.waiting
        self.queue = 0.0

    def now(self):
        return math.floor(self.time / self.tick) * self.tick if self.tick else self.time


def verify_seconds_per_call(answer):
    def measured(device, **shortest):
        return answer(device.call, device.wait, device.now, **shortest)

    long = Device(seconds=2.5)
    expect_close(measured(long), 2.5, "A call takes 2.5 s. Your seconds")
    expect(
        long.calls <= 12,
        f"A call of 2.5 s was made {long.calls} times: one call is a long enough series.",
    )
    short = Device(seconds=3.3e-7, tick=1e-5)
    case = (
        "A call takes 0.33 µs, the clock moves every 10 µs, a series takes 1 ms or "
        "more. Your seconds"
    )
    expect_close(measured(short), 3.3e-7, case, tolerance=0.03)
    case = "A call takes 0.33 µs, the clock moves every 0.2 ms, `shortest` is 20 ms. Your seconds"
    expect_close(
        measured(Device(seconds=3.3e-7, tick=2e-4), shortest=0.02), 3.3e-7, case, tolerance=0.03
    )
    costly = Device(seconds=1e-5, waiting=2e-5)
    case = (
        "A call takes 10 µs, and `wait` 20 µs: wait once before and once after a "
        "series. Your seconds"
    )
    expect_close(measured(costly), 1e-5, case, tolerance=0.05)
    cold = Device(seconds=1.0, slow=lambda number: 9 if number == 0 else 1)
    expect_close(measured(cold), 1.0, "The first call takes 9 s, later ones 1 s. Your seconds")
    busy = Device(seconds=1.0, slow=lambda number: 3 if number % 4 else 1)
    expect_close(
        measured(busy), 1.0, "One call in four takes 1 s, the others, disturbed, 3 s. Your seconds"
    )


# --- operations, bytes, calls ---


def layer_task(layer, x, output):
    operations = 2 * output.numel() * layer.weight[0].numel()
    weights = sum(weight.nbytes for weight in layer.parameters())
    return operations, x.nbytes + weights + output.nbytes, 1


def verify_layer_task(answer):
    cases = {
        "Linear(3, 2) on (4, 3)": (nn.Linear(3, 2), (4, 3), (48, 112)),
        "Linear(7, 5, bias=False) on (2, 6, 7)": (
            nn.Linear(7, 5, bias=False),
            (2, 6, 7),
            (840, 716),
        ),
        "Conv2d(3, 4, 3, padding=1) on (2, 3, 8, 8)": (
            nn.Conv2d(3, 4, 3, padding=1),
            (2, 3, 8, 8),
            (27_648, 4_032),
        ),
        "Conv2d(3, 4, 3, stride=2) on (1, 3, 9, 9)": (
            nn.Conv2d(3, 4, 3, stride=2),
            (1, 3, 9, 9),
            (3_456, 1_676),
        ),
        "Conv2d(6, 6, 3, padding=1, groups=6, bias=False) on (1, 6, 5, 5)": (
            nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False),
            (1, 6, 5, 5),
            (2_700, 1_416),
        ),
        "Linear(3, 2) in bfloat16 on (4, 3)": (nn.Linear(3, 2).bfloat16(), (4, 3), (48, 56)),
    }
    for case, (layer, shape, (operations, moved)) in cases.items():
        x = torch.ones(shape, dtype=layer.weight.dtype)
        task = answer(layer, x, layer(x).detach())
        right = isinstance(task, (tuple, list)) and len(task) == 3
        expect(right, f"{case}: expected (operations, bytes, calls), found {shorten(task)}.")
        expect_close(task[0], operations, f"{case}: the operations", tolerance=0)
        expect_close(task[1], moved, f"{case}: the bytes", tolerance=0)
        expect_close(task[2], 1, f"{case}: the calls", tolerance=0)


def least_seconds(operations, bytes_moved, calls, machine):
    seconds = {
        "arithmetic": operations / machine["arithmetic"],
        "memory": bytes_moved / machine["memory"],
        "overhead": calls * machine["overhead"],
    }
    limit = max(seconds, key=seconds.get)
    return seconds[limit], limit


def verify_least_seconds(answer):
    fast = {"arithmetic": 2.1e12, "memory": 1.3e11, "overhead": 3e-6}
    # a limit is found by its name, not by its place
    slow = {"overhead": 7e-6, "memory": 9e9, "arithmetic": 1.7e10}
    cases = {
        "much arithmetic on few bytes": ((8.4e12, 1e9, 5, fast), (4.0, "arithmetic")),
        "little arithmetic on many bytes": ((1e9, 3.9e11, 5, fast), (3.0, "memory")),
        "many calls on hardly any numbers": ((400, 1_600, 11, fast), (3.3e-5, "overhead")),
        "a thousand calls, each of them long": ((6.3e12, 1e9, 1_000, fast), (3.0, "arithmetic")),
        "more operations than bytes, and still waiting for memory": (
            (4e9, 1.3e9, 1, fast),
            (0.01, "memory"),
        ),
        "calls that take longer than either, less than both": (
            (4.2e12, 1.95e11, 900_001, fast),
            (2.700003, "overhead"),
        ),
        "five operations per byte, where the ridge is at 16": (
            (6.5e9, 1.3e9, 1, fast),
            (0.01, "memory"),
        ),
        "five operations per byte, where the ridge is at 2": (
            (8.5e9, 1.7e9, 1, slow),
            (0.5, "arithmetic"),
        ),
    }
    for name, ((*task, machine), (seconds, limit)) in cases.items():
        what = f"{name}, least_seconds{tuple(task)} on {machine}"
        given = dict(machine)
        found = answer(*task, given)
        expect(
            isinstance(found, tuple) and len(found) == 2,
            f"{what}: expected (seconds, limit), found {found!r}.",
        )
        expect_close(found[0], seconds, f"{what}: the seconds")
        expect(found[1] == limit, f"{what}: the limit is {limit!r}, found {found[1]!r}.")
        expect(given == machine, "Your function changes `machine`, which belongs to the caller.")


# --- where the weights lie ---


def memory_or_cache(x, copies):
    turns = itertools.cycle(copies)
    return {
        "memory": lambda: F.linear(x, next(turns)),
        "cache": lambda: F.linear(x, copies[0]),
    }


def verify_memory_or_cache(answer):
    # five different "copies", so that each call tells which of them it took
    copies = torch.arange(60.0).reshape(5, 4, 3).square()
    x, before = torch.tensor([[1.0, -2.0, 0.5], [3.0, 1.0, 1.0]]), copies.clone()
    calls = answer(x, copies)
    right = (
        isinstance(calls, dict)
        and set(calls) == {"memory", "cache"}
        and all(map(callable, calls.values()))
    )
    expect(
        right, f'Expected {{"memory": a function, "cache": a function}}, found {shorten(calls)}.'
    )

    taken = {"memory": [], "cache": []}
    for number in range(30):
        name = "cache" if number % 3 == 1 else "memory"
        taken[name].append(_copy_taken(calls[name](), x, copies))
    order = taken["memory"]
    told = f"the copies that 20 calls took: {order}"
    expect(
        set(order[:5]) == set(range(5)),
        f"memory: each call takes another copy, until all five had a turn; {told}.",
    )
    again = order == order[:5] * 4
    expect(again, f"memory: after the last copy it begins again, in the same order; {told}.")
    cached = (
        f"cache: every call takes the same copy; the copies that 10 calls took: {taken['cache']}."
    )
    expect(len(set(taken["cache"])) == 1, cached)

    x += 1
    for name, call in calls.items():
        expect(
            _copy_taken(call(), x, copies) is not None,
            f"{name}: x has changed, its product has not: a stored one.",
        )
    expect(torch.equal(copies, before), "The copies have been changed.")


def _copy_taken(output, x, copies):
    """Return which of the copies gave this output, or None."""
    expect(
        isinstance(output, torch.Tensor),
        f"A call returns F.linear(x, weights), found {shorten(output)}.",
    )
    for number, weights in enumerate(copies):
        expected = F.linear(x, weights)
        if output.shape == expected.shape and torch.allclose(output, expected):
            return number
    return None


EXERCISES = (
    Exercise(
        id="seconds-per-call",
        task="Write the seconds of one call: the fastest of five series that are "
        "long enough for the clock.",
        difficulty=3,
        minutes=10,
        hint="A function that times a series of n calls is used twice: while it is too short, and "
        "then five times.",
        reference=seconds_per_call,
        verify=verify_seconds_per_call,
    ),
    Exercise(
        id="image-bytes",
        task="Write the size in bytes of a stack of grey images.",
        difficulty=1,
        minutes=3,
        hint="One value per pixel. How many pixels are there, and how many bytes "
        "does one value take?",
        reference=image_bytes,
        verify=verify_image_bytes,
    ),
    Exercise(
        id="least-seconds",
        task="Write the least time a task can take on a machine with these three limits, and "
        "which of them says so.",
        difficulty=2,
        minutes=8,
        hint="How many seconds would each limit alone allow? The task cannot be done before the "
        "last of them is.",
        reference=least_seconds,
        verify=verify_least_seconds,
    ),
    Exercise(
        id="layer-task",
        task="Write the operations, the bytes and the calls of a linear layer or a convolution.",
        difficulty=3,
        minutes=10,
        hint="How many weights make one number of the output? A tensor knows its "
        ".numel() and its .nbytes.",
        reference=layer_task,
        verify=verify_layer_task,
    ),
    Exercise(
        id="memory-or-cache",
        task="Write two calls of a linear layer: one finds its weights in memory, "
        "the other in the cache.",
        difficulty=2,
        minutes=6,
        hint="itertools.cycle hands out the copies one after the other, endlessly.",
        reference=memory_or_cache,
        verify=verify_memory_or_cache,
        imports="import itertools\n\nfrom torch.nn import functional as F",
    ),
)
