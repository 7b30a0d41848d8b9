"""Answers to the exercises of lesson 06: wrong ones that must be rejected, right ones written differently."""

import torch

from labkit.lesson.exercises.l06_large_batch_tricks import COEFFICIENTS, orthogonal, stretched


def length(x):
    return x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-12)


def vectors_too(weights, slopes):
    return slopes * length(weights) / length(slopes)


def all_networks_together(weights, slopes):
    return slopes if weights.shape[1] == 1 else slopes * weights.norm() / slopes.norm().clamp_min(1e-12)


def upside_down(weights, slopes):
    return slopes if weights.shape[1] == 1 else slopes * length(slopes) / length(weights)


def of_length_one(weights, slopes):
    return slopes if weights.shape[1] == 1 else slopes / length(slopes)


def by_column(weights, slopes):
    if weights.shape[1] == 1:
        return slopes
    return slopes * weights.norm(dim=1, keepdim=True) / slopes.norm(dim=1, keepdim=True).clamp_min(1e-12)


def not_a_number(weights, slopes):
    return (
        slopes
        if weights.shape[1] == 1
        else slopes * weights.norm(dim=(1, 2), keepdim=True) / slopes.norm(dim=(1, 2), keepdim=True)
    )


def coarse_floor(weights, slopes):
    if weights.shape[1] == 1:
        return slopes
    return slopes * length(weights) / (slopes.norm(dim=(1, 2), keepdim=True) + 1e-3)


def floor_of_1e_8(weights, slopes):
    if weights.shape[1] == 1:
        return slopes
    return slopes * length(weights) / slopes.norm(dim=(1, 2), keepdim=True).clamp_min(1e-8)


def no_weights_no_change(weights, slopes):
    return torch.where(weights.norm(dim=(1, 2), keepdim=True) > 0, stretched(weights, slopes), slopes)


def columns_are_vectors(weights, slopes):
    return slopes if 1 in weights.shape[1:] else vectors_too(weights, slopes)


def in_place(weights, slopes):
    return slopes if weights.shape[1] == 1 else slopes.mul_(length(weights) / length(slopes))


def one_network_after_the_other(weights, slopes):
    if weights.size(1) < 2:
        return slopes.clone()
    pairs = zip(weights.double(), slopes.double(), strict=True)
    found = [g * (w.pow(2).sum().sqrt() / g.pow(2).sum().sqrt()) if g.any() else g for w, g in pairs]
    return torch.stack(found)


def by_where(weights, slopes):
    flat, steep = (torch.linalg.vector_norm(x.flatten(1), dim=1) for x in (weights, slopes))
    times = torch.where(steep > 0, flat / steep, 0.0)
    return slopes * (times[:, None, None] if weights.shape[1] > 1 else 1)


def rounds(x, steps):
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def without_the_length(matrices, steps=5):
    return rounds(matrices / matrices.abs().amax(dim=(1, 2), keepdim=True), steps)


def lengths_of_all(matrices, steps=5):
    return rounds(matrices / matrices.norm(), steps)


def one_round(matrices, steps=5):
    return orthogonal(matrices, 1)


def entry_by_entry(matrices, steps=5):
    a, b, c = COEFFICIENTS
    x = matrices / length(matrices)
    for _ in range(steps):
        x = a * x + b * x**3 + c * x**5
    return x


def coefficients_swapped(matrices, steps=5):
    a, b, c = COEFFICIENTS
    x = matrices / length(matrices)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (c * gram + b * gram @ gram) @ x
    return x


def grown_in_place(matrices, steps=5):
    matrices /= length(matrices)
    return rounds(matrices, steps)


def the_wide_way(matrices, steps=5):
    x = matrices / length(matrices)
    return rounds(x.mT, steps).mT if x.shape[1] > x.shape[2] else rounds(x, steps)


def by_singular_values(matrices, steps=5):
    u, s, v = torch.linalg.svd(matrices.double(), full_matrices=False)
    s = s / s.norm(dim=1, keepdim=True)
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return u @ torch.diag_embed(s) @ v


def begin_at_zero(step, warmup_steps):
    return min(1.0, step / warmup_steps)


def never_stop(step, warmup_steps):
    return (step + 1) / warmup_steps


def one_step_late(step, warmup_steps):
    return min(1.0, (step + 1) / (warmup_steps + 1))


def constant_form(step, warmup_steps):
    return 0.2 if step < warmup_steps else 1.0


def warm_up_with_an_if(step, warmup_steps):
    if step >= warmup_steps:
        return 1
    return (1 + step) / warmup_steps


def one_step_too_far(step, warmup_steps):
    return (step + 1) / warmup_steps if step <= warmup_steps else 1.0


WRONG = {
    "stretched": {
        "stretches vectors, too": vectors_too,
        "takes one length for all networks": all_networks_together,
        "has the quotient upside down": upside_down,
        "makes slopes of length 1": of_length_one,
        "takes a length for each column": by_column,
        "divides by 0": not_a_number,
        "adds too much to the length": coarse_floor,
        "divides by at least 1e-8": floor_of_1e_8,
        "takes a matrix of one column for a vector": columns_are_vectors,
        "changes the slopes it was given": in_place,
        "leaves the slopes of a layer of zeros": no_weights_no_change,
        "leaves the slopes as they are": lambda weights, slopes: slopes,
    },
    "orthogonal": {
        "divides by the largest entry": without_the_length,
        "takes one length for all matrices": lengths_of_all,
        "does one round": one_round,
        "works entry by entry": entry_by_entry,
        "swaps two coefficients": coefficients_swapped,
        "changes the matrices it was given": grown_in_place,
        "forgets the rounds": lambda matrices, steps=5: matrices / length(matrices),
    },
    "warmup-factor": {
        "exceeds 1 for one step": one_step_too_far,
        "rounds to one digit": lambda step, warmup_steps: round(min(1.0, (step + 1) / warmup_steps), 1),
        "begins with a step of rate 0": begin_at_zero,
        "goes on rising": never_stop,
        "reaches 1 one step late": one_step_late,
        "is constant in the warm-up": constant_form,
    },
}

RIGHT = {
    "stretched": {
        "network by network, in float64": one_network_after_the_other,
        "with where": by_where,
        "as the reference, on copies": lambda weights, slopes: stretched(weights.clone(), slopes.clone()),
    },
    "orthogonal": {
        "on the shorter side": the_wide_way,
        "on the singular values": by_singular_values,
    },
    "warmup-factor": {
        "with an if": warm_up_with_an_if,
        "by min of whole numbers": lambda step, warmup_steps: min(step + 1, warmup_steps) / warmup_steps,
    },
}
