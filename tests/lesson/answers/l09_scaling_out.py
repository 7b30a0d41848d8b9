"""Answers to the exercises of lesson 09: wrong ones that must be rejected, right ones written differently."""

import math
from itertools import pairwise

import numpy as np

from labkit.lesson.exercises.l09_scaling_out import ring_all_reduce, zero_memory


def all_to_all(arrays, send):
    k = len(arrays)
    return [sum(send(other, worker, arrays[other]) for other in range(k)) for worker in range(k)]


def only_the_first_phase(arrays, send):
    k, pieces = len(arrays), [list(np.array_split(array, len(arrays))) for array in arrays]
    for step in range(k - 1):
        sent = [send(w, (w + 1) % k, pieces[w][(w - step) % k]) for w in range(k)]
        for w in range(k):
            place = (w - step - 1) % k
            pieces[w][place] = pieces[w][place] + sent[w - 1]
    return [np.concatenate(each) for each in pieces]


def whole_arrays_round_the_ring(arrays, send):
    k = len(arrays)
    sums, passed = [array.copy() for array in arrays], list(arrays)
    for _ in range(k - 1):
        passed = [send((w - 1) % k, w, passed[w - 1]) for w in range(k)]
        sums = [own + piece for own, piece in zip(sums, passed, strict=True)]
    return sums


def adds_in_both_phases(arrays, send):
    k, pieces = len(arrays), [list(np.array_split(array, len(arrays))) for array in arrays]
    for step in range(2 * (k - 1)):
        sent = [send(w, (w + 1) % k, pieces[w][(w - step) % k]) for w in range(k)]
        for w in range(k):
            place = (w - step - 1) % k
            pieces[w][place] = pieces[w][place] + sent[w - 1]
    return [np.concatenate(each) for each in pieces]


def drops_the_rest(arrays, send):
    length = len(arrays[0]) // len(arrays) * len(arrays)
    return ring_all_reduce([array[:length] for array in arrays], send)


def without_sending(arrays, send):
    return [sum(arrays) for _ in arrays]


def in_place(arrays, send):
    sums = ring_all_reduce(arrays, send)
    for array, total in zip(arrays, sums, strict=True):
        array[:] = total
    return arrays


def to_the_left(arrays, send):
    """The same ring, the other way round."""
    k = len(arrays)
    return ring_all_reduce(arrays[::-1], lambda a, b, piece: send(k - 1 - a, k - 1 - b, piece))[::-1]


def in_two_loops(arrays, send):
    k, size = len(arrays), math.ceil(len(arrays[0]) / len(arrays))
    own = [array.copy() for array in arrays]
    part = [slice(size * place, size * (place + 1)) for place in range(k)]
    for step in range(k - 1):
        sent = [send(w, (w + 1) % k, own[w][part[(w - step) % k]]) for w in range(k)]
        for w in range(k):
            own[w][part[(w - 1 - step) % k]] += sent[w - 1]
    for step in range(k - 1):
        sent = [send(w, (w + 1) % k, own[w][part[(w + 1 - step) % k]]) for w in range(k)]
        for w in range(k):
            own[w][part[(w - step) % k]] = sent[w - 1]
    return own


def times(ring, tree):
    """An answer from the two formulas, each (size, workers, latency, speed) -> seconds."""

    def answer(*given):
        return min(("ring", ring(*given)), ("tree", tree(*given)), key=lambda way: way[1])

    return answer


def good_ring(n, k, a, b):
    return 2 * (k - 1) * a + 2 * (k - 1) / k * n / b


def good_tree(n, k, a, b):
    return 2 * (math.ceil(k) - 1).bit_length() * (a + n / b)


def floats(count, workers):
    size = count / workers
    return [(round(w * size), round((w + 1) * size), 1 / workers) for w in range(workers)]


def rest_to_the_last(count, workers):
    size = count // workers
    ends = [*(size * w for w in range(workers)), count]
    return [(a, b, (b - a) / count) for a, b in pairwise(ends)]


def drops_images(count, workers):
    size = count // workers
    return [(size * w, size * (w + 1), size / count) for w in range(workers)]


def weights_by_count(count, workers):
    return [(a, b, b - a) for a, b, _ in first_get_more(count, workers)]


def first_get_more(count, workers):
    size, rest = divmod(count, workers)
    ends = np.cumsum([0] + [size + (w < rest) for w in range(workers)]).tolist()
    return [(a, b, (b - a) / count) for a, b in pairwise(ends)]


def by_array_split(count, workers):
    found, begin = [], 0
    for part in np.array_split(np.arange(count), workers):
        found.append((begin, begin + len(part), len(part) / count))
        begin += len(part)
    return found


def weights_first(weights, workers, stage):
    return weights * sum(size / workers if place < stage else size for place, size in enumerate((2, 2, 12)))


WRONG = {
    "ring-all-reduce": {
        "sends everything to everybody": all_to_all,
        "forgets to pass the sums round": only_the_first_phase,
        "sends whole arrays round the ring": whole_arrays_round_the_ring,
        "adds in the second phase too": adds_in_both_phases,
        "drops what cannot be divided": drops_the_rest,
        "sums without sending": without_sending,
        "changes what it was given": in_place,
    },
    "ring-or-tree": {
        "sends the whole array round": times(lambda n, k, a, b: 2 * (k - 1) * (a + n / b), good_tree),
        "pays the latency once": times(lambda n, k, a, b: a + 2 * (k - 1) / k * n / b, good_tree),
        "goes up the tree only": times(good_ring, lambda n, k, a, b: good_tree(n, k, a, b) / 2),
        "does not round the levels": times(good_ring, lambda n, k, a, b: 2 * math.log2(k) * (a + n / b)),
        "always takes the ring": lambda *given: ("ring", good_ring(*given)),
        "takes the slower one": lambda *given: max(
            ("ring", good_ring(*given)), ("tree", good_tree(*given)), key=lambda way: way[1]
        ),
    },
    "shares": {
        "weights all shares alike": floats,
        "gives the rest to the last": rest_to_the_last,
        "drops images": drops_images,
        "weights by the number of images": weights_by_count,
    },
    "zero-memory": {
        "divides everything in stage 1": lambda n, k, stage: 16 * n / k if stage else 16 * n,
        "shards the weights first": weights_first,
        "forgets the gradients": lambda n, k, stage: zero_memory(n, k, stage) - (2 * n / k if stage > 1 else 2 * n),
        "counts fp32 weights": lambda n, k, stage: zero_memory(n, k, stage) + (2 * n / k if stage > 2 else 2 * n),
    },
}

RIGHT = {
    "ring-all-reduce": {"the other way round": to_the_left, "in two loops": in_two_loops},
    "ring-or-tree": {
        "with whole levels": times(good_ring, good_tree),
        "as a list": lambda *given: list(times(good_ring, good_tree)(*given)),
    },
    "shares": {"the first get one more": first_get_more, "by array_split": by_array_split},
    "zero-memory": {
        "with a table": lambda n, k, stage: n * [16, 4 + 12 / k, 2 + 14 / k, 16 / k][stage],
        "with a loop": lambda n, k, stage: sum(n * b / (k if i < stage else 1) for i, b in enumerate((12, 2, 2))),
    },
}
