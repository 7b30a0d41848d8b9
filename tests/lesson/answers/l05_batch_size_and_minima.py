"""Answers to the exercises of lesson 05: wrong ones that must be rejected, right ones written differently."""

import numpy as np
import torch

from labkit.lesson.exercises.l05_batch_size_and_minima import batch_or_rate, noise_scale, power_iteration


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


def parts_of(change):
    """A wrong answer: `change` gets (run, five names ...) and the three right differences, and spoils them."""
    return lambda run, *case: change(run, case, *batch_or_rate(run, *case))


def rate_of_the_small_batch(run, case, unfinished, by_batch, by_rate):
    small, _, rate, factor, _, loss = case
    return unfinished, by_batch, run(small, factor * rate, loss=loss) - run(small, rate, loss=loss)


def rate_after_the_epochs(run, case, unfinished, by_batch, by_rate):
    _, large, rate, factor, epochs, _ = case
    return unfinished, by_batch, run(large, factor * rate, epochs=epochs) - run(large, rate, epochs=epochs)


def both_at_once(run, case, unfinished, by_batch, by_rate):
    small, large, rate, factor, _, loss = case
    return unfinished, by_batch, run(large, factor * rate, loss=loss) - run(small, rate, loss=loss)


def batch_at_the_higher_rate(run, case, unfinished, by_batch, by_rate):
    small, large, rate, factor, _, loss = case
    return unfinished, run(small, factor * rate, loss=loss) - run(large, factor * rate, loss=loss), by_rate


def rate_divided(run, small, large, rate, factor, epochs, loss):
    return batch_or_rate(run, small, large, rate, 1 / factor, epochs, loss)


def four_times(run, small, large, rate, factor, epochs, loss):
    return batch_or_rate(run, small, large, rate, 4, epochs, loss)


def after_eight_epochs(run, small, large, rate, factor, epochs, loss):
    return batch_or_rate(run, small, large, rate, factor, 8, loss)


def one_loss_for_all(run, small, large, rate, factor, epochs, loss):
    return batch_or_rate(run, small, large, rate, factor, epochs, 0.01)


def nothing_told(run, small, large, rate, factor, epochs, loss):
    lead = run(small, rate) - run(large, rate)
    return lead, lead, run(large, factor * rate) - run(large, rate)


def spoils_its_input(run, small, large, rate, factor, epochs, loss):
    found = batch_or_rate(run, small, large, rate, factor, epochs, loss)
    base = run(large, rate, loss=loss)
    base -= 1
    return found


def by_a_table(run, small, large, rate, factor, epochs, loss):
    early = [run(batch, rate, epochs=epochs) for batch in (small, large)]
    late = np.stack([run(small, rate, loss=loss), run(large, rate, loss=loss), run(large, rate * factor, loss=loss)])
    return early[0] - early[1] - late[0] + late[1], -np.diff(late, axis=0)[0], np.diff(late, axis=0)[1]


def batch_by_batch(run, small, large, rate, factor, epochs, loss):
    """What each batch gains by going on to the loss, then the difference."""
    gains = {batch: run(batch, rate, loss=loss) - run(batch, rate, epochs=epochs) for batch in (small, large)}
    by_batch = np.subtract(run(small, rate, loss=loss), run(large, rate, loss=loss))
    return gains[large] - gains[small], by_batch, run(large, rate * factor, loss=loss) - run(large, rate, loss=loss)


WRONG = {
    "batch-or-rate": {
        "forgets to train on": parts_of(lambda run, case, a, b, c: (a, a + b, c)),
        "takes the lead after the epochs for what is unfinished": parts_of(lambda run, case, a, b, c: (a + b, b, c)),
        "changes the rate of the small batch": parts_of(rate_of_the_small_batch),
        "changes the rate after the same epochs": parts_of(rate_after_the_epochs),
        "changes batch and rate at once": parts_of(both_at_once),
        "compares the batches at the higher rate": parts_of(batch_at_the_higher_rate),
        "has the batch the wrong way round": parts_of(lambda run, case, a, b, c: (a, -b, c)),
        "has the rate the wrong way round": parts_of(lambda run, case, a, b, c: (a, b, -c)),
        "has the unfinished part the wrong way round": parts_of(lambda run, case, a, b, c: (-a, b, c)),
        "means over the seeds": parts_of(lambda run, case, *three: tuple(each.mean() for each in three)),
        "takes the rate from the batch": parts_of(lambda run, case, a, b, c: (a, b - c, c)),
        "divides the rate": rate_divided,
        "takes four for the factor": four_times,
        "always stops after eight epochs": after_eight_epochs,
        "always stops at a loss of 0.01": one_loss_for_all,
        "does not say where to stop": nothing_told,
        "changes what run gave": spoils_its_input,
        "hands back two": parts_of(lambda run, case, *three: three[1:]),
    },
    "noise-scale": {
        "takes the large batch for free of noise": forget_the_noise_of_the_large_batch,
        "does not divide by the signal": only_the_noise,
        "has the ratio upside down": upside_down,
        "divides the two squares": ratio_of_the_squares,
        "never below 0": lambda *given: abs(noise_scale(*given)),
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
}

WRONG["noise-scale"] |= {
    "a whole number": lambda *given: int(noise_scale(*given)),
    "rounded": lambda *given: round(noise_scale(*given)),
    "rounded to hundredths": lambda *given: round(noise_scale(*given), 2),
}


def first_entries(product, vectors, steps):
    _, vectors = power_iteration(product, vectors, steps - 1)
    images = product(vectors)
    return images[:, 0] / vectors[:, 0], images / images.norm(dim=1, keepdim=True)


WRONG["power-iteration"] |= {
    "from ones": lambda product, vectors, steps: power_iteration(product, torch.ones_like(vectors), steps),
    "from the mean of the rows": lambda product, vectors, steps: power_iteration(
        product, vectors.mean(0, keepdim=True).expand_as(vectors), steps
    ),
    "the ratio of the first entries": first_entries,
}

RIGHT = {
    "batch-or-rate": {
        "by a table of five trainings": by_a_table,
        "by what each batch gains by going on": batch_by_batch,
    },
    "noise-scale": {
        "by two linear equations": by_linear_equations,
        "by substitution": by_substitution,
    },
    "power-iteration": {
        "multiplies before it normalises": product_first,
        "by the Rayleigh quotient": by_the_rayleigh_quotient,
    },
}
