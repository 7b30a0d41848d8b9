"""Answers to the exercises of lesson 05: wrong ones that must be rejected, right ones written differently."""

import torch

from labkit.lesson.exercises.l05_large_batch_tricks import EPSILON, lars_step


def begin_at_zero(step, warmup_steps):
    return min(1.0, step / warmup_steps)


def never_stop(step, warmup_steps):
    return (step + 1) / warmup_steps


def one_step_late(step, warmup_steps):
    return min(1.0, (step + 1) / (warmup_steps + 1))


def constant_form(step, warmup_steps):
    return 0.2 if step < warmup_steps else 1.0


def whole_batch(x, ghost_size):
    return torch.nn.functional.batch_norm(x, None, None, training=True)


def every_kth_image(x, ghost_size):
    n, c, h, w = x.shape
    groups = x.reshape(ghost_size, n // ghost_size, c, h, w)
    mean, variance = groups.mean((0, 3, 4), keepdim=True), groups.var((0, 3, 4), keepdim=True, unbiased=False)
    return ((groups - mean) / (variance + EPSILON).sqrt()).reshape(n, c, h, w)


def all_channels_together(x, ghost_size):
    n, c, h, w = x.shape
    groups = x.reshape(n // ghost_size, ghost_size, c, h, w)
    mean, variance = groups.mean((1, 2, 3, 4), keepdim=True), groups.var((1, 2, 3, 4), keepdim=True, unbiased=False)
    return ((groups - mean) / (variance + EPSILON).sqrt()).reshape(n, c, h, w)


def every_image_alone(x, ghost_size):
    return torch.nn.functional.instance_norm(x)


def only_centred(x, ghost_size):
    n, c, h, w = x.shape
    groups = x.reshape(n // ghost_size, ghost_size, c, h, w)
    return (groups - groups.mean((1, 3, 4), keepdim=True)).reshape(n, c, h, w)


def plain_sgd(weight, gradient, learning_rate, trust, weight_decay):
    return weight - learning_rate * (gradient + weight_decay * weight)


def ratio_upside_down(weight, gradient, learning_rate, trust, weight_decay):
    ratio = trust * gradient.norm() / (weight.norm() + weight_decay * gradient.norm())
    return weight - learning_rate * ratio * (gradient + weight_decay * weight)


def decay_in_the_ratio_only(weight, gradient, learning_rate, trust, weight_decay):
    ratio = trust * weight.norm() / (gradient.norm() + weight_decay * weight.norm())
    return weight - learning_rate * ratio * gradient


def without_trust(weight, gradient, learning_rate, trust, weight_decay):
    return lars_step(weight, gradient, learning_rate, 1.0, weight_decay)


def ratio_for_each_weight(weight, gradient, learning_rate, trust, weight_decay):
    slope = gradient + weight_decay * weight
    return weight - learning_rate * trust * weight.abs() * slope / slope.abs().clamp_min(1e-12)


WRONG = {
    "warmup-factor": {
        "begins with a step of rate 0": begin_at_zero,
        "goes on rising": never_stop,
        "reaches 1 one step late": one_step_late,
        "is constant in the warm-up": constant_form,
    },
    "ghost-batch-norm": {
        "takes the statistics of the whole batch": whole_batch,
        "puts every k-th image into a group": every_kth_image,
        "mixes the channels": all_channels_together,
        "normalises every image alone": every_image_alone,
        "does not divide by the deviation": only_centred,
    },
    "lars-step": {
        "is plain SGD": plain_sgd,
        "has the ratio upside down": ratio_upside_down,
        "decays in the ratio only": decay_in_the_ratio_only,
        "leaves the trust coefficient out": without_trust,
        "takes a ratio for each weight": ratio_for_each_weight,
    },
}

RIGHT = {
    "warmup-factor": {},
    "ghost-batch-norm": {},
    "lars-step": {},
}
