"""Answers to the exercises on large batches: wrong ones that differ by one property, right ones
written differently.
"""

import math

import numpy as np
import torch


def cosine(progress):
    return (1 + math.cos(math.pi * progress)) / 2


def rise_from_zero(step, steps, warmup=8):
    return step / warmup if step < warmup else cosine((step - warmup) / (steps - warmup))


def warmup_counted_in(step, steps, warmup=8):
    return (step + 1) / warmup if step < warmup else cosine(step / steps)


def never_fall(step, steps, warmup=8):
    return min(1.0, (step + 1) / warmup)


def rise_times_cosine(step, steps, warmup=8):
    return min(1.0, (step + 1) / warmup) * cosine(step / steps)


def fixed_warmup(step, steps, warmup=8):
    return (step + 1) / 8 if step < 8 else cosine((step - 8) / (steps - 8))


def one_step_late(step, steps, warmup=8):
    return (
        (step + 1) / (warmup + 1) if step < warmup else cosine((step - warmup) / (steps - warmup))
    )


def straight_fall(step, steps, warmup=8):
    return (step + 1) / warmup if step < warmup else (steps - step) / (steps - warmup)


def never_quite_zero(step, steps, warmup=8):
    return (step + 1) / warmup if step < warmup else cosine((step - warmup) / (steps - warmup + 1))


def warmup_by_min_and_max(step, steps, warmup=8):
    progress = max(0, step - warmup) / (steps - warmup)
    return np.float32(min(1, (1 + step) / warmup) * math.cos(math.pi * progress / 2) ** 2)


def warmup_in_torch(step, steps, warmup=8):
    rise = torch.tensor((step + 1) / warmup)
    fall = 0.5 + 0.5 * torch.cos(torch.tensor(math.pi * (step - warmup) / (steps - warmup)))
    return rise if step < warmup else fall


def only_upwards(accuracy_at, start):
    best = start
    while accuracy_at(best * 2) > accuracy_at(best):
        best *= 2
    return best


def one_round(accuracy_at, start):
    return max((start, start * 2, start / 2), key=accuracy_at)


def first_that_is_worse(accuracy_at, start):
    rate = start
    for factor in (2, 1 / 2):
        while accuracy_at(rate * factor) > accuracy_at(rate):
            rate *= factor
    return rate * 2


def the_accuracy(accuracy_at, start):
    return accuracy_at(peak_by_recursion(accuracy_at, start))


def by_factors_of_four(accuracy_at, start):
    best = start
    for factor in (4, 1 / 4):
        while accuracy_at(best * factor) > accuracy_at(best):
            best *= factor
    return best


def on_ties_too(accuracy_at, start):
    best = start
    for factor in (2, 1 / 2):
        while accuracy_at(best * factor) >= accuracy_at(best):
            best *= factor
    return best


def by_adding(accuracy_at, start):
    best = start
    for step in (start, -start):
        while accuracy_at(best + step) > accuracy_at(best):
            best += step
    return best


def one_direction_or_the_other(accuracy_at, start):
    """Goes down only where up was no better at once, and never looks at half of the peak."""
    factor = 2 if accuracy_at(start * 2) > accuracy_at(start) else 1 / 2
    rate = start
    while accuracy_at(rate * factor) > accuracy_at(rate):
        rate *= factor
    return rate * 1.5 if rate == start else rate


def lowest(accuracy_at, start):
    return peak_by_recursion(lambda rate: -accuracy_at(rate), start)


def peak_by_recursion(accuracy_at, start):
    here = accuracy_at(start)
    for rate in (start / 2, start * 2):
        if accuracy_at(rate) > here:
            return peak_by_recursion(accuracy_at, rate)
    return start


def peak_with_a_memory(accuracy_at, start):
    known = {start: accuracy_at(start)}
    while True:
        best = max(known, key=known.get)
        new = [rate for rate in (best / 2, best * 2) if rate not in known]
        if not new:
            return best
        known |= {rate: accuracy_at(rate) for rate in new}


def optimizer(change):
    """A class like LARS whose step calls change(optimizer, group, weight) for each weight that
    has a gradient.
    """

    class Answer(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})
            self.lr = lr

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for weight in group["params"]:
                    if weight.grad is not None:
                        change(self, group, weight)

    return Answer


def ratio(weight):
    if weight.ndim < 2 or not weight.grad.any():
        return 1.0
    return weight.norm() / weight.grad.norm()


def vectors_too(self, group, weight):
    stretch = weight.norm() / weight.grad.norm() if weight.grad.any() else 1.0
    weight -= group["lr"] * stretch * weight.grad


def not_a_number(self, group, weight):
    stretch = weight.norm() / weight.grad.norm() if weight.ndim > 1 else 1.0
    weight -= group["lr"] * stretch * weight.grad


def lr_of_the_start(self, group, weight):
    weight -= self.lr * ratio(weight) * weight.grad


def upside_down(self, group, weight):
    weight -= group["lr"] / ratio(weight) * weight.grad


def not_in_place(self, group, weight):
    weight = weight - group["lr"] * ratio(weight) * weight.grad


def uphill(self, group, weight):
    weight += group["lr"] * ratio(weight) * weight.grad


def of_length_one(self, group, weight):
    stretch = 1 / weight.grad.norm() if weight.ndim > 1 and weight.grad.any() else 1.0
    weight -= group["lr"] * stretch * weight.grad


def only_two_dimensions(self, group, weight):
    stretch = ratio(weight) if weight.ndim == 2 else 1.0
    weight -= group["lr"] * stretch * weight.grad


def by_row(self, group, weight):
    if weight.ndim < 2 or not weight.grad.any():
        weight -= group["lr"] * weight.grad
        return
    lengths = (
        weight.norm(dim=-1, keepdim=True),
        weight.grad.norm(dim=-1, keepdim=True).clamp_min(1e-12),
    )
    weight -= group["lr"] * lengths[0] / lengths[1] * weight.grad


def vectors_stay(self, group, weight):
    if weight.ndim > 1:
        weight -= group["lr"] * ratio(weight) * weight.grad


class AllLayersTogether(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            matrices = [weight for weight in weights if weight.ndim > 1 and weight.grad.any()]
            length = sum(weight.norm() ** 2 for weight in matrices) ** 0.5
            steep = sum(weight.grad.norm() ** 2 for weight in matrices) ** 0.5
            for weight in weights:
                stretch = length / steep if weight.ndim > 1 and steep else 1.0
                weight -= group["lr"] * stretch * weight.grad


class FailsWithoutGradient(torch.optim.Optimizer):
    """Takes a weight without a gradient for one that has moved before."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                gradient = weight if weight.grad is None else weight.grad
                stretch = (
                    weight.norm() / gradient.norm() if weight.ndim > 1 and gradient.any() else 1.0
                )
                weight -= group["lr"] * stretch * gradient


class LarsWithDefaults(torch.optim.Optimizer):
    def __init__(self, params, lr=0.2):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        with torch.no_grad():
            for group in self.param_groups:
                for weight in filter(lambda weight: weight.grad is not None, group["params"]):
                    steep = torch.linalg.vector_norm(weight.grad)
                    matrix = weight.dim() >= 2 and steep.item() != 0
                    stretch = torch.linalg.vector_norm(weight) / steep if matrix else 1
                    weight.add_(weight.grad * stretch, alpha=-group["lr"])


def in_float64(self, group, weight):
    stretch = 1.0
    if weight.ndim > 1 and weight.grad.any():
        stretch = weight.double().pow(2).sum().sqrt() / weight.grad.double().pow(2).sum().sqrt()
    weight.copy_(weight.double() - group["lr"] * stretch * weight.grad.double())


def cosine_of(steps):
    return (1 + np.cos(np.pi * np.arange(steps) / steps)) / 2


def shape(factors):
    return factors / factors.max()


def middle(ratios, axis=(0, 2)):
    return np.exp(np.log(ratios).mean(axis=axis))


def by_median(ratios):
    return shape(np.median(ratios, axis=(0, 2)) * cosine_of(ratios.shape[1]))


def one_layer(ratios):
    return shape(middle(ratios, axis=0)[:, 0] * cosine_of(ratios.shape[1]))


def first_is_one(ratios):
    factors = middle(ratios) * cosine_of(ratios.shape[1])
    return factors / factors[0]


def for_each_layer(ratios):
    return shape(middle(ratios, axis=0) * cosine_of(ratios.shape[1])[:, None])


def cosine_of_eight(ratios):
    return shape(middle(ratios) * (1 + np.cos(np.pi * np.arange(ratios.shape[1]) / 8)) / 2)


def cosine_to_the_last_step(ratios):
    steps = ratios.shape[1]
    return shape(middle(ratios) * (1 + np.cos(np.pi * np.arange(steps) / (steps - 1))) / 2)


def in_place(ratios):
    np.log(ratios, out=ratios)
    return shape(np.exp(ratios.mean(axis=(0, 2))) * cosine_of(ratios.shape[1]))


def by_products(ratios):
    trainings, steps, layers = ratios.shape
    factors = []
    for step in range(steps):
        product = math.prod(ratios[:, step].ravel().tolist()) ** (1 / (trainings * layers))
        factors.append(product * math.cos(math.pi * step / steps / 2) ** 2)
    return [factor / max(factors) for factor in factors]


def in_torch(ratios):
    logs = torch.as_tensor(ratios, dtype=torch.float32).log().mean(2).mean(0)
    factors = logs.exp() * torch.as_tensor(cosine_of(len(logs)))
    return factors / factors.max()


WRONG = {
    "warmup-cosine": {
        "begins with a step of rate 0": rise_from_zero,
        "counts the warm-up into the cosine": warmup_counted_in,
        "never falls": never_fall,
        "falls during the warm-up": rise_times_cosine,
        "does not use its argument": fixed_warmup,
        "reaches 1 one step late": one_step_late,
        "falls in a straight line": straight_fall,
        "does not end at 0": never_quite_zero,
    },
    "find-peak": {
        "only goes upwards": only_upwards,
        "tries one round": one_round,
        "returns the first that is worse": first_that_is_worse,
        "returns the accuracy": the_accuracy,
        "takes factors of four": by_factors_of_four,
        "goes on where it is equal": on_ties_too,
        "adds in place of doubling": by_adding,
        "leaves the grid": one_direction_or_the_other,
        "finds the lowest": lowest,
        "returns the start": lambda accuracy_at, start: start,
    },
    "LARS": {
        "stretches vectors, too": optimizer(vectors_too),
        "divides by 0": optimizer(not_a_number),
        "keeps the lr of the start": optimizer(lr_of_the_start),
        "has the ratio upside down": optimizer(upside_down),
        "does not change in place": optimizer(not_in_place),
        "goes uphill": optimizer(uphill),
        "makes gradients of length 1": optimizer(of_length_one),
        "takes a convolution for a vector": optimizer(only_two_dimensions),
        "has a ratio for each row": optimizer(by_row),
        "leaves vectors alone altogether": optimizer(vectors_stay),
        "takes one ratio for all layers": AllLayersTogether,
        "moves what has no gradient": FailsWithoutGradient,
    },
    "one-schedule": {
        "takes the plain mean": lambda ratios: shape(
            ratios.mean(axis=(0, 2)) * cosine_of(ratios.shape[1])
        ),
        "takes the median": by_median,
        "leaves the cosine out": lambda ratios: shape(middle(ratios)),
        "is not divided by the largest": lambda ratios: middle(ratios) * cosine_of(ratios.shape[1]),
        "is divided by the first": first_is_one,
        "takes one layer": one_layer,
        "has a schedule for each layer": for_each_layer,
        "has a cosine of eight steps": cosine_of_eight,
        "ends the cosine at the last step": cosine_to_the_last_step,
        "changes the ratios it was given": in_place,
    },
    "my-schedule": {
        "divides by 0 at the end": lambda step, steps: 1.0 if step < steps else math.inf,
        "goes above 1": lambda step, steps: 2.0,
        "goes below 0": lambda step, steps: math.cos(math.pi * step / steps),
        "returns nothing in its second half": lambda step, steps: (
            1.0 if step < steps // 2 else None
        ),
        "never uses the learning rate in full": lambda step, steps: 0.1,
        "is full for one step only": lambda step, steps: 1.0 if step == 3 else 0.0,
    },
}

RIGHT = {
    "warmup-cosine": {
        "by min and max, in float32": warmup_by_min_and_max,
        "in torch": warmup_in_torch,
    },
    "find-peak": {
        "by recursion": peak_by_recursion,
        "with a memory": peak_with_a_memory,
    },
    "LARS": {
        "with a default lr and add_": LarsWithDefaults,
        "in float64": optimizer(in_float64),
    },
    "one-schedule": {
        "by products, as a list": by_products,
        "in torch, in float32": in_torch,
    },
    "my-schedule": {
        "by interpolation": lambda step, steps: np.interp(
            step / steps, [0, 0.05, 0.6, 1], [0.2, 1, 1, 0]
        ),
        "a constant one": lambda step, steps: 1,
    },
}
