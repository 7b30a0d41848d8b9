"""Answers to the exercises of lesson 00: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np


def seconds_of(operations, bytes_moved, calls, machine):
    return operations / machine["arithmetic"], bytes_moved / machine["memory"], calls * machine["overhead"]


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
        return (arithmetic, "arithmetic") if operations / bytes_moved > corner else (memory, "memory")

    return least


def scales_the_machine(operations, bytes_moved, calls, machine):
    machine["overhead"] *= calls
    return pick(operations, bytes_moved, 1, machine)


WRONG = {
    "image-bytes": {
        "gives text": lambda images, height, width, size: str(images * height * width * size),
        "forgets the bytes of a value": lambda images, height, width, bytes_per_value: images * height * width,
        "counts bits": lambda images, height, width, bytes_per_value: images * height * width * bytes_per_value * 8,
        "counts one image": lambda images, height, width, bytes_per_value: height * width * bytes_per_value,
        "uses the height twice": lambda images, height, width, bytes_per_value: (
            images * height * height * bytes_per_value
        ),
    },
    "least-seconds": {
        "adds the three": lambda *task: (sum(seconds_of(*task)), pick(*task)[1]),
        "adds the overhead": lambda *task: (pick(*task, among=2)[0] + seconds_of(*task)[2], pick(*task)[1]),
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
