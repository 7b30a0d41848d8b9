"""Answers to the exercises of lesson 05: wrong ones that must be rejected, right ones written differently."""

import torch

from labkit.lesson.exercises.l05_batch_size_and_minima import noise_scale, power_iteration


def forget_the_noise_of_the_large_batch(small_square, large_square, small, large):
    return small * (small_square - large_square) / large_square


def only_the_noise(small_square, large_square, small, large):
    return (small_square - large_square) / (1 / small - 1 / large)


def upside_down(small_square, large_square, small, large):
    noise = (small_square - large_square) / (1 / small - 1 / large)
    return (large_square - noise / large) / noise if noise else 0.0


def ratio_of_the_squares(small_square, large_square, small, large):
    return small_square / large_square


def difference_of_the_batches(small_square, large_square, small, large):
    noise = (small_square - large_square) * (large - small)
    return noise / (large_square - noise / large)


def by_linear_equations(small_square, large_square, small, large):
    system = torch.tensor([[1.0, 1 / small], [1.0, 1 / large]], dtype=torch.float64)
    signal, noise = torch.linalg.solve(system, torch.tensor([small_square, large_square], dtype=torch.float64))
    return float(noise / signal)


def by_substitution(small_square, large_square, small, large):
    noise = (small_square - large_square) * small * large / (large - small)
    return noise / (small_square - noise / small)


def never_normalise(product, vector, steps):
    for _ in range(steps):
        vector, before = product(vector), vector
    return float(before @ vector / (before @ before)), vector / vector.norm()


def length_of_the_product(product, vector, steps):
    _, vector = power_iteration(product, vector, steps)
    return float(product(vector).norm()), vector


def one_product(product, vector, steps):
    return power_iteration(product, vector, 1)


def vector_of_any_length(product, vector, steps):
    value, vector = power_iteration(product, vector, steps)
    return value, value * vector


def only_the_value(product, vector, steps):
    return power_iteration(product, vector, steps)[0]


def in_place(product, vector, steps):
    for _ in range(steps):
        vector /= vector.norm()
        image = product(vector)
        value = float(vector @ image)
        vector.copy_(image)
    return value, vector / vector.norm()


def largest_entry(product, vector, steps):
    for _ in range(steps):
        vector = product(vector)
        value = vector.abs().max()
        vector = vector / value
    return float(value), vector / vector.norm()


def product_first(product, vector, steps):
    for _ in range(steps):
        vector = product(vector)
        vector = vector / torch.linalg.vector_norm(vector)
    return float(torch.dot(vector, product(vector))), vector


def start_of_any_length(product, vector, steps):
    for _ in range(steps):
        image = product(vector)
        value = float(vector @ image)
        vector = image / image.norm()
    return value, vector


def a_tensor(product, vector, steps):
    value, vector = power_iteration(product, vector, steps)
    return torch.tensor(value), vector


def always_ten_steps_more(product, vector, steps):
    return power_iteration(product, vector, steps + 10)


def by_the_rayleigh_quotient(product, vector, steps):
    direction = vector.clone()
    for _ in range(steps):
        image = product(direction)
        quotient = (direction * image).sum() / (direction * direction).sum()
        direction = image / image.pow(2).sum().sqrt()
    return quotient.item(), direction


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
        "takes the large batch for free of noise": forget_the_noise_of_the_large_batch,
        "does not divide by the signal": only_the_noise,
        "has the ratio upside down": upside_down,
        "divides the two squares": ratio_of_the_squares,
        "takes the batches' difference for that of their inverses": difference_of_the_batches,
        "is half of it": lambda *squares: noise_scale(*squares) / 2,
    },
    "power-iteration": {
        "never normalises": never_normalise,
        "loses the sign": length_of_the_product,
        "multiplies once": one_product,
        "hands back a vector of another length": vector_of_any_length,
        "hands back the value only": only_the_value,
        "takes the first vector at its own length": start_of_any_length,
        "hands back the value as a tensor": a_tensor,
        "takes other steps than it was told": always_ten_steps_more,
        "changes the vector it was given": in_place,
        "takes the largest entry for the eigenvalue": largest_entry,
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
        "by two linear equations": by_linear_equations,
        "by substitution": by_substitution,
    },
    "power-iteration": {
        "multiplies before it normalises": product_first,
        "by the Rayleigh quotient": by_the_rayleigh_quotient,
    },
    "filter-normalise": {
        "by normalize": by_normalize,
        "filter by filter": filter_by_filter,
    },
}
