"""Answers to the exercises of lesson 04: wrong ones that must be rejected, right ones written differently."""

import numpy as np
import torch

from labkit.lesson.exercises.l04_batch_size_and_minima import box_sharpness


def forget_the_minus_one(learning_rate, images, batch, momentum):
    return learning_rate * images / batch / (1 - momentum)


def forget_momentum(learning_rate, images, batch, momentum):
    return learning_rate * (images / batch - 1)


def multiply_by_momentum(learning_rate, images, batch, momentum):
    return learning_rate * (images / batch - 1) * (1 - momentum)


def root_of_the_batch(learning_rate, images, batch, momentum):
    return learning_rate * ((images / batch) ** 0.5 - 1) / (1 - momentum)


def same_width_for_all(curvatures, weights, epsilon):
    loss = np.sum(curvatures * weights**2) / 2
    return 100 * (np.sum(curvatures * (abs(weights) + epsilon) ** 2) / 2 - loss) / (1 + loss)


def only_to_the_right(curvatures, weights, epsilon):
    loss = np.sum(curvatures * weights**2) / 2
    highest = np.sum(curvatures * (weights + epsilon * (abs(weights) + 1)) ** 2) / 2
    return 100 * (highest - loss) / (1 + loss)


def absolute_rise(curvatures, weights, epsilon):
    loss = np.sum(curvatures * weights**2) / 2
    return 100 * (np.sum(curvatures * (abs(weights) + epsilon * (abs(weights) + 1)) ** 2) / 2 - loss)


def one_direction_only(curvatures, weights, epsilon):
    top = int(np.argmax(curvatures))
    return box_sharpness(curvatures[top : top + 1], weights[top : top + 1], epsilon)


def forget_the_percent(curvatures, weights, epsilon):
    return box_sharpness(curvatures, weights, epsilon) / 100


def whole_layer_at_once(direction, weight):
    return direction * weight.norm() / direction.norm()


def only_unit_length(direction, weight):
    each = tuple(range(1, weight.dim()))
    return direction / (direction**2).sum(each, keepdim=True).sqrt()


def times_the_length(direction, weight):
    each = tuple(range(1, weight.dim()))
    return direction * (weight**2).sum(each, keepdim=True).sqrt()


def the_weight_itself(direction, weight):
    return weight.clone()


def over_the_inputs(direction, weight):
    dims = (0, *range(2, weight.dim()))
    return direction * (weight**2).sum(dims, keepdim=True).sqrt() / (direction**2).sum(dims, keepdim=True).sqrt()


def weight_by_weight(curvatures, weights, epsilon):
    loss = highest = 0.0
    for curvature, weight in zip(curvatures, weights, strict=True):
        edge = abs(weight) + epsilon * (abs(weight) + 1)
        loss += curvature * weight**2 / 2
        highest += curvature * edge**2 / 2
    return (highest - loss) / (1 + loss) * 100


def both_edges(curvatures, weights, epsilon):
    width = epsilon * (np.abs(weights) + 1)
    edges = np.maximum((weights + width) ** 2, (weights - width) ** 2)
    loss = 0.5 * curvatures @ weights**2
    return 100 * (0.5 * curvatures @ edges - loss) / (1 + loss)


def by_normalize(direction, weight):
    unit = torch.nn.functional.normalize(direction.flatten(1), dim=1)
    return (unit * weight.flatten(1).norm(dim=1, keepdim=True)).view_as(weight)


def filter_by_filter(direction, weight):
    return torch.stack([d * (w.norm() / d.norm()) for d, w in zip(direction, weight, strict=True)])


def scale_in_place(direction, weight):
    for d, w in zip(direction, weight, strict=True):
        d *= w.norm() / d.norm()
    return direction


WRONG = {
    "noise-scale": {
        "forgets that a batch of all images is not noisy": forget_the_minus_one,
        "leaves momentum out": forget_momentum,
        "multiplies by 1 - momentum": multiply_by_momentum,
        "takes the root of images / batch": root_of_the_batch,
    },
    "box-sharpness": {
        "gives every weight the same box": same_width_for_all,
        "only ever moves to the right": only_to_the_right,
        "does not divide by 1 + loss": absolute_rise,
        "moves along the steepest direction only": one_direction_only,
        "forgets the factor 100": forget_the_percent,
    },
    "filter-normalise": {
        "changes the direction it was given": scale_in_place,
        "one length for the whole layer": whole_layer_at_once,
        "only makes the filters of length 1": only_unit_length,
        "does not divide by the direction's own length": times_the_length,
        "hands back the weight": the_weight_itself,
        "sums over the outputs instead of the inputs": over_the_inputs,
    },
}

RIGHT = {
    "noise-scale": {
        "over one denominator": lambda rate, images, batch, momentum: (
            rate * (images - batch) / (batch * (1 - momentum))
        ),
        "with the effective rate": lambda rate, images, batch, momentum: rate / (1 - momentum) * (images / batch - 1),
    },
    "box-sharpness": {
        "weight by weight": weight_by_weight,
        "the higher of both edges": both_edges,
    },
    "filter-normalise": {
        "by normalize": by_normalize,
        "filter by filter": filter_by_filter,
    },
}
