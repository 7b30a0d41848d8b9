"""Answers to the exercises of lesson 06: wrong ones that must be rejected, right ones written differently."""

import torch

from labkit.lesson.exercises.l06_large_batch_tricks import EPSILON, lars_step


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


def chunk_by_chunk(x, ghost_size):
    chunks = [torch.nn.functional.batch_norm(part, None, None, training=True) for part in x.split(ghost_size)]
    return torch.cat(chunks)


def in_float64(x, ghost_size):
    n, c = x.shape[:2]
    groups = x.double().view(n // ghost_size, ghost_size, c, -1).transpose(1, 2).flatten(2)
    groups = (groups - groups.mean(2, keepdim=True)) / (groups.var(2, keepdim=True, correction=0) + EPSILON).sqrt()
    return groups.view(n // ghost_size, c, ghost_size, -1).transpose(1, 2).reshape(x.shape)


def with_epsilon(epsilon, *, outside=False):
    """Ghost batch norm with another epsilon, or with it outside the root."""

    def answer(x, ghost_size):
        groups = x.view(-1, ghost_size, *x.shape[1:])
        variance, mean = torch.var_mean(groups, (1, 3, 4), keepdim=True, correction=0)
        divisor = variance.sqrt() + epsilon if outside else (variance + epsilon).sqrt()
        return ((groups - mean) / divisor).reshape(x.shape)

    return answer


def lars_in_float64(weight, gradient, learning_rate, trust, weight_decay):
    weight, gradient = weight.double(), gradient.double()
    length = weight.pow(2).sum().sqrt()
    rate = learning_rate * trust * length / (gradient.pow(2).sum().sqrt() + weight_decay * length)
    return weight - rate * (gradient + weight_decay * weight)


def lars_with_linalg(weight, gradient, learning_rate, trust, weight_decay):
    w, g = torch.linalg.vector_norm(weight), torch.linalg.vector_norm(gradient)
    return torch.sub(
        weight,
        gradient.add(weight, alpha=weight_decay),
        alpha=float(learning_rate * trust * w / (g + weight_decay * w)),
    )


def spectral_norm(weight, gradient, learning_rate, trust, weight_decay):
    length = torch.linalg.matrix_norm(torch.atleast_2d(weight), 2)
    slope = torch.linalg.matrix_norm(torch.atleast_2d(gradient), 2)
    ratio = trust * length / (slope + weight_decay * length)
    return weight - learning_rate * ratio * (gradient + weight_decay * weight)


def clipped_ratio(weight, gradient, learning_rate, trust, weight_decay):
    ratio = min(1.0, float(trust * weight.norm() / (gradient.norm() + weight_decay * weight.norm())))
    return weight - learning_rate * ratio * (gradient + weight_decay * weight)


def step_in_place(weight, gradient, learning_rate, trust, weight_decay):
    return weight.copy_(lars_step(weight, gradient, learning_rate, trust, weight_decay))


def warm_up_with_an_if(step, warmup_steps):
    if step >= warmup_steps:
        return 1
    return (1 + step) / warmup_steps


def one_step_too_far(step, warmup_steps):
    return (step + 1) / warmup_steps if step <= warmup_steps else 1.0


def all_to_one(gradient_bytes, workers, bytes_per_s):
    return 2 * gradient_bytes * (workers - 1) / bytes_per_s


def once_round(gradient_bytes, workers, bytes_per_s):
    return gradient_bytes * (workers - 1) / workers / bytes_per_s


def endless_ring(gradient_bytes, workers, bytes_per_s):
    return 2 * gradient_bytes / bytes_per_s


def divided_by_all(gradient_bytes, workers, bytes_per_s):
    return 2 * gradient_bytes / workers / bytes_per_s


def piece_by_piece(gradient_bytes, workers, bytes_per_s):
    piece = gradient_bytes / workers / bytes_per_s
    collect = share = sum(piece for _ in range(workers - 1))
    return collect + share


WRONG = {
    "all-reduce": {
        "sends everything to everybody": all_to_one,
        "forgets to pass the sums round": once_round,
        "sends what a worker has already": endless_ring,
        "divides the work among the workers": divided_by_all,
    },
    "warmup-factor": {
        "exceeds 1 for one step": one_step_too_far,
        "rounds to one digit": lambda step, warmup_steps: round(min(1.0, (step + 1) / warmup_steps), 1),
        "begins with a step of rate 0": begin_at_zero,
        "goes on rising": never_stop,
        "reaches 1 one step late": one_step_late,
        "is constant in the warm-up": constant_form,
    },
    "ghost-batch-norm": {
        "leaves epsilon out": with_epsilon(0.0),
        "adds epsilon outside the root": with_epsilon(EPSILON, outside=True),
        "takes epsilon 1e-3": with_epsilon(1e-3),
        "takes the statistics of the whole batch": whole_batch,
        "puts every k-th image into a group": every_kth_image,
        "mixes the channels": all_channels_together,
        "normalises every image alone": every_image_alone,
        "does not divide by the deviation": only_centred,
    },
    "lars-step": {
        "takes the spectral norm": spectral_norm,
        "clips the ratio at 1": clipped_ratio,
        "changes the weight it was given": step_in_place,
        "is plain SGD": plain_sgd,
        "has the ratio upside down": ratio_upside_down,
        "decays in the ratio only": decay_in_the_ratio_only,
        "leaves the trust coefficient out": without_trust,
        "takes a ratio for each weight": ratio_for_each_weight,
    },
}

RIGHT = {
    "all-reduce": {
        "piece by piece": piece_by_piece,
        "with the factor in front": lambda n, k, speed: (2 - 2 / k) * n / speed,
    },
    "warmup-factor": {
        "with an if": warm_up_with_an_if,
        "by min of whole numbers": lambda step, warmup_steps: min(step + 1, warmup_steps) / warmup_steps,
    },
    "ghost-batch-norm": {
        "chunk by chunk": chunk_by_chunk,
        "in float64": in_float64,
    },
    "lars-step": {
        "in float64": lars_in_float64,
        "with torch.linalg": lars_with_linalg,
    },
}
