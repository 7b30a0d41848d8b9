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


def rows_of_length_one(vectors):
    return vectors / vectors.norm(dim=1, keepdim=True)


def never_normalise(product, vectors, steps):
    for _ in range(steps):
        vectors, before = product(vectors), vectors
    return (before * vectors).sum(1) / before.square().sum(1), rows_of_length_one(vectors)


def one_length_for_all_rows(product, vectors, steps):
    for _ in range(steps):
        vectors = vectors / vectors.norm()
        images = product(vectors)
        values = (vectors * images).sum(1)
        vectors = images
    return values, rows_of_length_one(vectors)


def lengths_of_the_products(product, vectors, steps):
    _, vectors = power_iteration(product, vectors, steps)
    return product(vectors).norm(dim=1), vectors


def one_product(product, vectors, steps):
    return power_iteration(product, vectors, 1)


def vectors_of_any_length(product, vectors, steps):
    values, vectors = power_iteration(product, vectors, steps)
    return values, values[:, None] * vectors


def only_the_values(product, vectors, steps):
    return power_iteration(product, vectors, steps)[0]


def one_value_for_all(product, vectors, steps):
    values, vectors = power_iteration(product, vectors, steps)
    return values.max(), vectors


def in_place(product, vectors, steps):
    for _ in range(steps):
        vectors /= vectors.norm(dim=1, keepdim=True)
        images = product(vectors)
        values = (vectors * images).sum(1)
        vectors.copy_(images)
    return values, rows_of_length_one(vectors)


def largest_entries(product, vectors, steps):
    for _ in range(steps):
        vectors = product(vectors)
        values = vectors.abs().amax(1)
        vectors = vectors / values[:, None]
    return values, rows_of_length_one(vectors)


def start_of_any_length(product, vectors, steps):
    for _ in range(steps):
        images = product(vectors)
        values = (vectors * images).sum(1)
        vectors = rows_of_length_one(images)
    return values, vectors


def always_ten_steps_more(product, vectors, steps):
    return power_iteration(product, vectors, steps + 10)


def row_by_row(product, vectors, steps):
    return power_iteration(lambda v: product(v.expand(3, -1))[:1], vectors[:1], steps)


def product_first(product, vectors, steps):
    for _ in range(steps):
        vectors = rows_of_length_one(product(vectors))
    return torch.einsum("np,np->n", vectors, product(vectors)), vectors


def by_the_rayleigh_quotient(product, vectors, steps):
    directions = vectors.clone()
    for _ in range(steps):
        images = product(directions)
        quotients = (directions * images).sum(1) / (directions * directions).sum(1)
        directions = torch.nn.functional.normalize(images)
    return quotients, directions


def on_the_right_only(product, weights):
    return lambda v: product(weights.abs() * v)


def on_the_left_only(product, weights):
    return lambda v: weights.abs() * product(v)


def with_signs_on_one_side(product, weights):
    return lambda v: weights.abs() * product(weights * v)


def with_signs_on_both_sides(product, weights):
    return lambda v: weights * product(weights * v)


def squares_on_the_left(product, weights):
    return lambda v: weights.square() * product(v)


def divided(product, weights):
    return lambda v: product(v / weights.abs()) / weights.abs()


def length_of_all(product, weights):
    return lambda v: weights.norm(dim=1, keepdim=True).square() * product(v)


def nothing_but_h(product, weights):
    return product


def a_product(product, weights):
    return weights.abs() * product(weights.abs())


def by_named_function(product, weights):
    def relative(v):
        return torch.mul(product(torch.mul(v, weights.abs())), weights.abs())

    return relative


def by_square_roots(product, weights):
    return lambda v: weights.square().sqrt() * product(v * weights.square().sqrt())


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
        "takes one length for all rows": one_length_for_all_rows,
        "loses the sign": lengths_of_the_products,
        "multiplies once": one_product,
        "hands back vectors of another length": vectors_of_any_length,
        "hands back the values only": only_the_values,
        "hands back one value for all networks": one_value_for_all,
        "takes the first vectors at their own length": start_of_any_length,
        "takes other steps than it was told": always_ten_steps_more,
        "changes the vectors it was given": in_place,
        "takes the largest entries for the eigenvalues": largest_entries,
        "gives one row to the product": row_by_row,
    },
    "relative-product": {
        "has D on the right only": on_the_right_only,
        "has D on the left only": on_the_left_only,
        "keeps the signs on one side": with_signs_on_one_side,
        "keeps the signs on both sides": with_signs_on_both_sides,
        "has both D on the left": squares_on_the_left,
        "divides by D": divided,
        "takes the length of all weights": length_of_all,
        "leaves D out": nothing_but_h,
        "hands back a product": a_product,
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
    "relative-product": {
        "by a named function": by_named_function,
        "by square roots of squares": by_square_roots,
    },
}
