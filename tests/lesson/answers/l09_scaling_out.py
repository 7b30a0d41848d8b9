"""Answers to the exercises of lesson 09: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np

from labkit.lesson.exercises.l09_scaling_out import pipeline_schedule, ring_all_reduce


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


def sum_beside_the_ring(arrays, send):
    ring_all_reduce(arrays, send)
    return [sum(arrays) for _ in arrays]


def send_zeros(arrays, send):
    ring_all_reduce([0 * array for array in arrays], send)
    return [sum(arrays) for _ in arrays]


def one_array_for_all(arrays, send):
    return [ring_all_reduce(arrays, send)[0]] * len(arrays)


def the_first_worker_for_all(arrays, send):
    return [ring_all_reduce(arrays, send)[0].copy() for _ in arrays]


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


def in_type(kind):
    """The right sums, by way of numbers of another type."""

    def answer(arrays, send):
        return [each.astype(kind) for each in ring_all_reduce(arrays, send)]

    return answer


def sums_in_float32(arrays, send):
    return [each.astype(float) for each in ring_all_reduce([a.astype(np.float32) for a in arrays], send)]


def nothing_to_do_alone(arrays, send):
    return arrays if len(arrays) == 1 else ring_all_reduce(arrays, send)


def one_by_one(stages, micro):
    return [[(kind, i) for i in range(micro) for kind in "FB"] for _ in range(stages)]


def all_forward_first(stages, micro):
    return [[(kind, i) for kind in "FB" for i in range(micro)] for _ in range(stages)]


def held(places):
    """A schedule whose stage s begins with places(stages, s) forward passes."""

    def answer(stages, micro):
        lists = []
        for stage in range(stages):
            begin = min(micro, places(stages, stage))
            later = [piece for i in range(micro) for piece in (("B", i), ("F", begin + i))]
            lists.append([*(("F", i) for i in range(begin)), *(piece for piece in later if piece[1] < micro)])
        return lists

    return answer


def the_last_goes_back_first(stages, micro):
    return [[*(("F", i) for i in range(micro)), *(("B", i) for i in reversed(range(micro)))] for _ in range(stages)]


def without_the_rest(stages, micro):
    return [each[: 2 * micro - 1] for each in pipeline_schedule(stages, micro)]


def stages_turned_round(stages, micro):
    return pipeline_schedule(stages, micro)[::-1]


def with_counters(stages, micro):
    """The next forward pass whenever there is a place, else the next backward pass."""
    lists = []
    for stage in range(stages):
        ahead = back = 0
        lists.append([])
        while back < micro:
            if ahead < micro and ahead - back < stages - stage:
                lists[-1].append(["F", ahead])
                ahead += 1
            else:
                lists[-1].append(["B", back])
                back += 1
    return lists


WRONG = {
    "ring-all-reduce": {
        "sends everything to everybody": all_to_all,
        "forgets to pass the sums round": only_the_first_phase,
        "sends whole arrays round the ring": whole_arrays_round_the_ring,
        "adds in the second phase too": adds_in_both_phases,
        "drops what cannot be divided": drops_the_rest,
        "sums without sending": without_sending,
        "gives whole numbers": in_type(int),
        "gives float32": in_type(np.float32),
        "sums in float32": sums_in_float32,
        "gives the array itself where there is one": nothing_to_do_alone,
        "changes what it was given": in_place,
        "sums beside the ring": sum_beside_the_ring,
        "sends zeros and sums alone": send_zeros,
        "one array for all": one_array_for_all,
        "copies of the first worker's": the_first_worker_for_all,
    },
    "pipeline-schedule": {
        "takes one by one": one_by_one,
        "takes all forward passes first": all_forward_first,
        "holds one too few": held(lambda stages, stage: max(1, stages - stage - 1)),
        "holds one too many": held(lambda stages, stage: stages - stage + 1),
        "holds as many in every stage": held(lambda stages, stage: stages),
        "takes the last back first": the_last_goes_back_first,
        "leaves out the last piece": without_the_rest,
        "gives the last stage the first list": stages_turned_round,
    },
}

RIGHT = {
    "ring-all-reduce": {"the other way round": to_the_left, "in two loops": in_two_loops},
    "pipeline-schedule": {
        "with counters": with_counters,
        "by places": held(lambda stages, stage: stages - stage),
    },
}
