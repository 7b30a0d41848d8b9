"""Answers of lesson 00: wrong ones, each with one mistake, and right ones written in another
way.
"""

import copy
import math
import statistics
import time

import numpy as np
import torch

from labkit.lesson.exercises.l00_start_here import calibrated_grid, changed_answers, in_few_bits


def in_batches(of_scores, join=np.concatenate, count=lambda images: len(images)):
    """The answer to `predictions` with another rule for the scores of a batch, another join or
    another end.
    """

    def answer(program, images):
        starts = range(0, count(images), 100)
        return join([of_scores(program(images[start : start + 100])) for start in starts])

    return answer


def whole_batches_only(program, images):
    count = len(images) // 100
    parts = [
        program(images[100 * number : 100 * (number + 1)]).argmax(1) for number in range(count)
    ]
    return np.concatenate(parts) if parts else np.empty(0, int)


def one_by_one(program, images):
    classes = np.empty(len(images), dtype=int)
    for number in range(len(images)):
        classes[number] = np.argmax(program(images[number : number + 1])[0])
    return classes


def split_by_torch(program, images):
    parts = torch.from_numpy(images).split(64)
    return torch.cat([torch.from_numpy(program(part.numpy())).argmax(1) for part in parts]).numpy()


def timed(of_seconds, *, warm=True, count_warm_up=False):
    """The answer to `median_latency` with another number of all times, or without its warm-up."""

    def answer(program, images, calls=200, warm_up=20, now=time.perf_counter):
        seconds = []
        for _ in range(calls + warm_up if warm else calls):
            begin = now()
            program(images)
            seconds.append(now() - begin)
        return of_seconds(seconds if count_warm_up or not warm else seconds[warm_up:])

    return answer


def milliseconds(of_seconds):
    return lambda seconds: 1e3 * of_seconds(seconds)


def around_all_calls(program, images, calls=200, warm_up=20, now=time.perf_counter):
    for _ in range(warm_up):
        program(images)
    begin = now()
    for _ in range(calls):
        program(images)
    return 1e3 * (now() - begin) / calls


def by_numpy(program, images, calls=200, warm_up=20, now=time.perf_counter):
    for _ in range(warm_up):
        program(images)
    seconds = np.empty(calls)
    for number in range(calls):
        start = now()
        program(images)
        seconds[number] = now() - start
    return np.median(seconds) * 1000


def on_a_grid(of_weights=lambda weights, scale: (weights / scale).round() * scale, **settings):
    """The answer to `in_few_bits` with one part of it exchanged."""
    top_of = settings.get("top", lambda bits: 2 ** (bits - 1) - 1)
    largest = settings.get("largest", lambda weights: weights.abs().max())
    copied = settings.get("copied", copy.deepcopy)
    fewest = settings.get("dimensions", 2)

    def answer(network, bits):
        rounded = copied(network)
        with torch.no_grad():
            for weights in rounded.parameters():
                if weights.dim() >= fewest:
                    weights.copy_(of_weights(weights, largest(weights) / top_of(bits)))
        return rounded

    return answer


def new_tensor_is_lost(network, bits):
    rounded = copy.deepcopy(network)
    for weights in rounded.parameters():
        if weights.dim() > 1:
            scale = weights.abs().max() / (2 ** (bits - 1) - 1)
            weights = (weights / scale).round() * scale
    return rounded


def returns_nothing(network, bits):
    in_few_bits(network, bits)


def by_the_state(network, bits):
    state = {name: values.clone() for name, values in network.state_dict().items()}
    for name, weights in network.named_parameters():
        if weights.ndim > 1:
            scale = weights.detach().abs().amax() / ((1 << (bits - 1)) - 1)
            state[name] = torch.round(weights.detach() / scale) * scale
    rounded = copy.deepcopy(network)
    rounded.load_state_dict(state)
    return rounded


def by_data(network, bits):
    rounded = copy.deepcopy(network)
    for weights in rounded.parameters():
        if len(weights.shape) > 1:
            scale = weights.data.abs().max() / (2 ** (bits - 1) - 1)
            weights.data = torch.round(weights.data / scale) * scale
    return rounded


def on_256_points(values):
    low, high = min(values.min(), 0), max(values.max(), 0)
    return (high - low) / 256, round(-low / (high - low) * 256)


def without_zero(values):
    scale = (values.max() - values.min()) / 255
    return scale, round(-values.min() / scale)


def cut_off(values):
    low, high = min(values.min(), 0), max(values.max(), 0)
    scale = (high - low) / 255
    return scale, int(-low / scale)


def from_the_top(values):
    scale, zero_point = calibrated_grid(values)
    return scale, 255 - zero_point


def around_zero(values):
    return np.abs(values).max() / 127, 128


def by_clipping(values):
    high, low = np.fmax(values, 0).max(), np.fmin(values, 0).min()
    return [(high - low) / 255, np.rint(-low * 255 / (high - low)).astype(int)]


def with_a_zero(values):
    values = np.append(values, 0.0)
    scale = np.ptp(values) / 255
    return scale, int(np.round(abs(values.min()) / scale))


def counts(before, after, labels):
    return tuple(int(mask.sum()) for mask in changed_answers(before, after, labels))


def lost_are_wrong_now(before, after, labels):
    changed = before != after
    return changed, changed & (after != labels), changed & (after == labels)


def lost_and_won_exchanged(before, after, labels):
    changed, lost, won = changed_answers(before, after, labels)
    return changed, won, lost


def without_the_change(before, after, labels):
    return before != after, before == labels, after == labels


def numbers_of_answers(before, after, labels):
    return tuple(np.flatnonzero(mask) for mask in changed_answers(before, after, labels))


def by_rightness(before, after, labels):
    lost = np.logical_and(before == labels, after != labels)
    won = np.logical_and(after == labels, before != labels)
    return ~(before == after), lost, won


def as_lists(before, after, labels):
    changed = [bool(old != new) for old, new in zip(before, after, strict=True)]
    return [
        np.array(changed),
        np.where(before == labels, changed, False),
        np.where(after == labels, changed, False),
    ]


def of_interval(filled, not_filled):
    """The answer to `verdict` by two rules of (low, high, at_least, at_most)."""

    def answer(low, high, at_least=-math.inf, at_most=math.inf):
        if filled(low, high, at_least, at_most):
            return "filled"
        return "not filled" if not_filled(low, high, at_least, at_most) else "not clear"

    return answer


def outside(low, high, at_least, at_most):
    return high < at_least or low > at_most


def inside(low, high, at_least, at_most):
    return low >= at_least and high <= at_most


def by_the_middle(low, high, at_least, at_most):
    return at_least <= (low + high) / 2 <= at_most


def by_both_ends(low, high, at_least=-math.inf, at_most=math.inf):
    passed = [at_least <= end <= at_most for end in (low, high)]
    if all(passed):
        return "filled"
    reaches = low <= at_most and high >= at_least
    return "not clear" if reaches else "not filled"


WRONG = {
    "predictions": {
        "hands over all images at once": lambda program, images: program(images).argmax(1),
        "takes the other axis": in_batches(lambda scores: scores.argmax(0)),
        "leaves out the last part of a batch": whole_batches_only,
        "does not join the batches": in_batches(lambda scores: scores.argmax(1), join=list),
        "returns the largest scores": in_batches(lambda scores: scores.max(1)),
        "takes the largest absolute score": in_batches(lambda scores: np.abs(scores).argmax(1)),
        "forgets the last image": in_batches(
            lambda scores: scores.argmax(1), join=lambda parts: parts[0][:-1]
        ),
    },
    "median-latency": {
        "the mean": timed(milliseconds(statistics.mean)),
        "one clock around all calls": around_all_calls,
        "the minimum": timed(milliseconds(min)),
        "no warm-up": timed(milliseconds(statistics.median), warm=False),
        "the warm-up counts": timed(milliseconds(statistics.median), count_warm_up=True),
        "seconds": timed(statistics.median),
        "microseconds": timed(lambda seconds: 1e6 * statistics.median(seconds)),
        "all times": timed(lambda seconds: [1e3 * second for second in seconds]),
    },
    "in-few-bits": {
        "changes the network that it was given": on_a_grid(copied=lambda network: network),
        "keeps the integers": on_a_grid(lambda weights, scale: (weights / scale).round()),
        "rounds towards zero": on_a_grid(lambda weights, scale: (weights / scale).trunc() * scale),
        "one bit too many": on_a_grid(top=lambda bits: 2**bits - 1),
        "one point too many": on_a_grid(top=lambda bits: 2 ** (bits - 1)),
        "the largest weight without its size": on_a_grid(largest=lambda weights: weights.max()),
        "rounds the biases too": on_a_grid(dimensions=1),
        "rounds convolutions only": on_a_grid(dimensions=3),
        "a new tensor, which is lost": new_tensor_is_lost,
        "returns nothing": returns_nothing,
    },
    "calibrated-grid": {
        "256 steps": on_256_points,
        "0.0 does not count": without_zero,
        "zero point without rounding": lambda values: (
            calibrated_grid(values)[0],
            -values.min() / 0.02 + 0.3,
        ),
        "zero point cut off": cut_off,
        "zero point from the top": from_the_top,
        "symmetric": around_zero,
        "exchanged": lambda values: calibrated_grid(values)[::-1],
        "the scale alone": lambda values: calibrated_grid(values)[0],
    },
    "changed-answers": {
        "counts in place of masks": counts,
        "numbers of the answers in place of masks": numbers_of_answers,
        "lost is what is wrong now": lost_are_wrong_now,
        "lost and won exchanged": lost_and_won_exchanged,
        "right before and right now, changed or not": without_the_change,
        "without those that are wrong in both": lambda before, after, labels: (
            (before == labels) ^ (after == labels),
            *changed_answers(before, after, labels)[1:],
        ),
    },
    "verdict": {
        "by the middle": of_interval(by_the_middle, lambda *given: not by_the_middle(*given)),
        "one end is enough": of_interval(lambda *given: not outside(*given), outside),
        "never unclear": of_interval(inside, lambda *given: True),
        "without at_most": of_interval(
            lambda low, high, at_least, at_most: low >= at_least,
            lambda low, high, at_least, at_most: high < at_least,
        ),
        "low against both limits": of_interval(
            lambda low, high, at_least, at_most: at_least <= low <= at_most,
            lambda low, high, at_least, at_most: not at_least <= low <= at_most,
        ),
        "a limit that is met is not enough": of_interval(
            lambda low, high, at_least, at_most: low > at_least and high < at_most, outside
        ),
        "True for filled": lambda low, high, at_least=-math.inf, at_most=math.inf: inside(
            low, high, at_least, at_most
        ),
    },
}

RIGHT = {
    "predictions": {"one by one": one_by_one, "split by torch": split_by_torch},
    "median-latency": {
        "by numpy": by_numpy,
        "one loop for both": timed(milliseconds(statistics.median)),
    },
    "in-few-bits": {"by the state dict": by_the_state, "by .data": by_data},
    "calibrated-grid": {"by clipping": by_clipping, "with a zero more": with_a_zero},
    "changed-answers": {"by rightness": by_rightness, "as lists": as_lists},
    "verdict": {"by both ends": by_both_ends, "by two rules": of_interval(inside, outside)},
}
