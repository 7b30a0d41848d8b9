"""Answers to the exercises of lesson 17: wrong ones that must be rejected, right ones written differently."""

import numpy as np
import torch

from labkit.lesson.exercises import l17_transformer_inference as lesson


def forget_the_output_projection(tokens, width, layers):
    return layers * (3 * tokens * width**2 + 2 * tokens**2 * width)


def forget_the_values(tokens, width, layers):
    return layers * (4 * tokens * width**2 + tokens**2 * width)


def count_the_mlp_too(tokens, width, layers):
    return layers * (12 * tokens * width**2 + 2 * tokens**2 * width)


def count_operations(tokens, width, layers):
    return 2 * lesson.attention_multiply_adds(tokens, width, layers)


def count_one_layer(tokens, width, layers):
    return 4 * tokens * width**2 + 2 * tokens**2 * width


def no_quadratic_part(tokens, width, layers):
    return layers * (4 * tokens * width**2 + 2 * tokens * width)


def count_in_one_expression(tokens, width, layers):
    return 2 * layers * tokens * width * (2 * width + tokens)


def count_step_by_step(tokens, width, layers):
    total = 0
    for _ in range(layers):
        for _ in ("query", "key", "value", "mix"):
            total += tokens * width * width
        for _ in ("scores", "sum of values"):
            total += tokens * tokens * width
    return float(total)


def as_they_come(lengths, size):
    places = list(range(len(lengths)))
    return [places[at : at + size] for at in range(0, len(places), size)]


def one_at_a_time(lengths, size):
    return [[place] for place in range(len(lengths))]


def all_at_once(lengths, size):
    return [list(range(len(lengths)))]


def lengths_instead_of_places(lengths, size):
    ordered = sorted(lengths)
    return [ordered[at : at + size] for at in range(0, len(ordered), size)]


def drop_the_rest(lengths, size):
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[at : at + size] for at in range(0, len(order) - size + 1, size)]


def every_so_many(lengths, size):
    order, count = sorted(range(len(lengths)), key=lengths.__getitem__), -(-len(lengths) // size)
    return [order[at::count] for at in range(count)]


def sort_in_place(lengths, size):
    lengths.sort()
    return as_they_come(lengths, size)


def longest_first(lengths, size):
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[at : at + size].tolist() for at in range(0, len(order), size)]


def by_torch(lengths, size):
    return [part.tolist() for part in torch.tensor(lengths).argsort().split(size)]


def in_float(x, weight, scales, bias):
    return (x @ (weight * scales[:, None]).T + bias).astype(np.float32)


def grid(x, *, low=None, high=None):
    low, high = x.min() if low is None else low, x.max() if high is None else high
    scale = np.where(high > low, (high - low) / 255, 1.0)
    zero = np.rint(-low / scale)
    return scale, zero, np.clip(np.rint(x / scale) + zero, 0, 255)


def one_grid_per_row(x, weight, scales, bias):
    scale, zero, found = grid(
        x, low=np.minimum(x.min(1, keepdims=True), 0), high=np.maximum(x.max(1, keepdims=True), 0)
    )
    return ((found - zero).astype(np.int32) @ weight.T.astype(np.int32) * scale * scales + bias).astype(np.float32)


def never_widen(x, weight, scales, bias):
    scale, zero, found = grid(x)
    return ((found - zero).astype(np.int32) @ weight.T.astype(np.int32) * scale * scales + bias).astype(np.float32)


def forget_the_zero_point(x, weight, scales, bias):
    scale, _, found = grid(x, low=min(x.min(), 0), high=max(x.max(), 0))
    return (found.astype(np.int32) @ weight.T.astype(np.int32) * scale * scales + bias).astype(np.float32)


def add_up_in_sixteen_bits(x, weight, scales, bias):
    scale, zero, found = grid(x, low=min(x.min(), 0), high=max(x.max(), 0))
    return ((found - zero).astype(np.int16) @ weight.T.astype(np.int16) * scale * scales + bias).astype(np.float32)


def forget_the_bias(x, weight, scales, bias):
    return lesson.dynamic_linear(x, weight, scales, 0 * bias)


def divide_by_nothing(x, weight, scales, bias):
    low, high = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
    scale = (high - low) / np.float32(255)
    zero = np.rint(-low / scale)
    found = np.clip(np.rint(x / scale) + zero, 0, 255) - zero
    return (found @ weight.T.astype(np.float64) * scale * scales + bias).astype(np.float32)


def always_128(x, weight, scales, bias):
    scale = max(float(np.abs(x).max()) / 127, 1e-12)
    found = np.clip(np.rint(x / scale) + 128, 0, 255).astype(np.int32) - 128
    return (found @ weight.T.astype(np.int32) * scale * scales + bias).astype(np.float32)


def correct_the_sums_afterwards(x, weight, scales, bias):
    scale, zero, found = grid(x, low=min(x.min(), 0), high=max(x.max(), 0))
    sums = found.astype(np.uint8).astype(np.int64) @ weight.T.astype(np.int64)
    sums -= int(zero) * weight.sum(1, dtype=np.int64)
    return np.float32(scale) * scales * sums.astype(np.float32) + bias


def by_torch_integers(x, weight, scales, bias):
    low, high = min(0.0, x.min().item()), max(0.0, x.max().item())
    scale = max((high - low) / 255, 1e-12)
    zero = round(-low / scale)
    found = (torch.from_numpy(x) / scale).round().add(zero).clamp(0, 255).int() - zero
    sums = found @ torch.from_numpy(weight).int().T
    return (sums.double() * scale * torch.from_numpy(scales) + torch.from_numpy(bias)).float().numpy()


def closed_batches(arrivals, lengths, budget, deadline, *, late, full):
    batches = []
    for place in range(len(arrivals)):
        if not batches or late(batches[-1], place) or full([*batches[-1], place]):
            batches.append([])
        batches[-1].append(place)
    return batches


def ignore_the_deadline(arrivals, lengths, budget, deadline):
    return lesson.dynamic_batches(arrivals, lengths, budget, float("inf"))


def ignore_the_padding(arrivals, lengths, budget, deadline):
    return closed_batches(
        arrivals, lengths, budget, deadline,
        late=lambda batch, place: arrivals[place] > arrivals[batch[0]] + deadline,
        full=lambda batch: sum(lengths[each] for each in batch) > budget,
    )  # fmt: skip


def count_from_the_last_arrival(arrivals, lengths, budget, deadline):
    return closed_batches(
        arrivals, lengths, budget, deadline,
        late=lambda batch, place: arrivals[place] > arrivals[batch[-1]] + deadline,
        full=lambda batch: len(batch) * max(lengths[each] for each in batch) > budget,
    )  # fmt: skip


def only_the_new_length(arrivals, lengths, budget, deadline):
    return closed_batches(
        arrivals, lengths, budget, deadline,
        late=lambda batch, place: arrivals[place] > arrivals[batch[0]] + deadline,
        full=lambda batch: len(batch) * lengths[batch[-1]] > budget,
    )  # fmt: skip


def too_late_at_the_deadline(arrivals, lengths, budget, deadline):
    return closed_batches(
        arrivals, lengths, budget, deadline,
        late=lambda batch, place: arrivals[place] >= arrivals[batch[0]] + deadline,
        full=lambda batch: len(batch) * max(lengths[each] for each in batch) > budget,
    )  # fmt: skip


def drop_what_is_too_long(arrivals, lengths, budget, deadline):
    batches = lesson.dynamic_batches(arrivals, lengths, budget, deadline)
    return [batch for batch in batches if len(batch) > 1 or lengths[batch[0]] <= budget]


def one_over_the_budget(arrivals, lengths, budget, deadline):
    return closed_batches(
        arrivals, lengths, budget, deadline,
        late=lambda batch, place: arrivals[place] > arrivals[batch[0]] + deadline,
        full=lambda batch: len(batch[:-1]) * max(lengths[each] for each in batch) > budget,
    )  # fmt: skip


def by_conditions(arrivals, lengths, budget, deadline):
    return closed_batches(
        arrivals, lengths, budget, deadline,
        late=lambda batch, place: arrivals[place] > arrivals[batch[0]] + deadline,
        full=lambda batch: len(batch) * max(lengths[each] for each in batch) > budget,
    )  # fmt: skip


def with_a_while_loop(arrivals, lengths, budget, deadline):
    batches, first = [], 0
    while first < len(arrivals):
        last, longest = first, lengths[first]
        while last + 1 < len(arrivals) and arrivals[last + 1] <= arrivals[first] + deadline:
            longest = max(longest, lengths[last + 1])
            if (last + 2 - first) * longest > budget:
                break
            last += 1
        batches.append(list(range(first, last + 1)))
        first = last + 1
    return tuple(map(tuple, batches))


WRONG = {
    "attention-multiply-adds": {
        "three projections": forget_the_output_projection,
        "no sum of values": forget_the_values,
        "the MLP too": count_the_mlp_too,
        "operations": count_operations,
        "one layer": count_one_layer,
        "nothing quadratic": no_quadratic_part,
    },
    "buckets": {
        "as they come": as_they_come,
        "one at a time": one_at_a_time,
        "all at once": all_at_once,
        "lengths": lengths_instead_of_places,
        "the rest dropped": drop_the_rest,
        "short and long mixed": every_so_many,
        "sorted in place": sort_in_place,
    },
    "dynamic-linear": {
        "in float": in_float,
        "a grid per row": one_grid_per_row,
        "no 0 on the grid": never_widen,
        "no zero point": forget_the_zero_point,
        "16 bits": add_up_in_sixteen_bits,
        "no bias": forget_the_bias,
        "zeros give NaN": divide_by_nothing,
        "zero is always 128": always_128,
    },
    "dynamic-batches": {
        "no deadline": ignore_the_deadline,
        "no padding": ignore_the_padding,
        "from the last arrival": count_from_the_last_arrival,
        "only the new length": only_the_new_length,
        "at the deadline": too_late_at_the_deadline,
        "too long dropped": drop_what_is_too_long,
        "one too many": one_over_the_budget,
    },
}


def in_floats(dtype):
    def answer(x, weight, scales, bias):
        low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
        scale = (high - low) / 255 or 1.0
        zero = round(-low / scale)
        integers = np.clip(np.rint(x / scale) + zero, 0, 255) - zero
        return ((integers.astype(dtype) @ weight.astype(dtype).T) * scale * scales + bias).astype(np.float32)

    return answer


def dequantized(x, weight, scales, bias):
    return in_floats(np.float64)(x, scales[:, None] * weight, np.ones_like(scales), bias)


WRONG["dynamic-linear"] |= {
    "a product in float32": in_floats(np.float32),
    "a product in float64": in_floats(np.float64),
    "real weights": dequantized,
    "a result in float64": lambda *given: lesson.dynamic_linear(*given).astype(np.float64),
}
WRONG["dynamic-batches"] |= {
    "whole seconds": lambda arrivals, lengths, budget, deadline: lesson.dynamic_batches(
        arrivals, lengths, budget, int(deadline)
    ),
    "hundredths of a second": lambda arrivals, *given: lesson.dynamic_batches(
        [round(each, 2) for each in arrivals], *given
    ),
}

RIGHT = {
    "attention-multiply-adds": {"one expression": count_in_one_expression, "step by step": count_step_by_step},
    "buckets": {"longest first": longest_first, "by torch": by_torch},
    "dynamic-linear": {"corrected sums": correct_the_sums_afterwards, "by torch": by_torch_integers},
    "dynamic-batches": {"conditions": by_conditions, "a while loop": with_a_while_loop},
}
