"""Exercises of lesson 05: the noise scale, power iteration, directions as long as the weights."""

from numbers import Real

import torch

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, readable, shorten, untouched


def noise_scale(small_square, large_square, small, large):
    noise = (small_square - large_square) / (1 / small - 1 / large)
    signal = (large * large_square - small * small_square) / (large - small)
    return noise / signal


def verify_noise_scale(answer):
    cases = {
        "signal 4, noise 100, batches 10 and 50": (4.0, 100.0, 10, 50),
        "the same network, batches 20 and 100": (4.0, 100.0, 20, 100),
        "no noise at all": (9.0, 0.0, 16, 256),
        "a weak signal: 0.01 against noise 20": (0.01, 20.0, 16, 256),
    }
    for name, (signal, noise, small, large) in cases.items():
        found = answer(signal + noise / small, signal + noise / large, small, large)
        expect_close(found + 1, noise / signal + 1, name)  # + 1: without noise it is 0


def power_iteration(product, vector, steps):
    for _ in range(steps):
        vector = vector / vector.norm()
        image = product(vector)
        value = vector @ image
        vector = image
    return float(value), vector / vector.norm()


def verify_power_iteration(answer):
    answer, random = untouched(answer), torch.Generator().manual_seed(0)
    for eigenvalues in ([5.0, 2.0, -1.0], [0.3, 0.1, 0.1, -0.05], [2.0, 1.0, -9.0, 0.5], [4e4, 10.0, 0.1]):
        size, counted = len(eigenvalues), []
        turn, _ = torch.linalg.qr(torch.randn(size, size, generator=random, dtype=torch.float64))
        matrix = turn @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ turn.T
        wanted, case = max(eigenvalues, key=abs), f"a matrix with the eigenvalues {eigenvalues}"
        start = torch.full((size,), 7.0, dtype=torch.float64)

        def product(v, matrix=matrix, counted=counted):
            counted.append(v)
            return matrix @ v

        found = answer(product, start, 300)
        value, direction = _pair(found, size, case)
        expect_close(value, wanted, f"{case}: that of the largest size", tolerance=1e-4)
        expect_close(direction.norm(), 1.0, f"{case}: the length of the vector", tolerance=1e-4)
        apart = float((matrix @ direction - wanted * direction).norm()) / abs(wanted)
        expect(apart < 1e-2, f"{case}: multiplying your vector by the matrix turns it: it is not the eigenvector.")
        counts = f"{case}: `steps` was 300, and your function took {len(counted)} products."
        expect(300 <= len(counted) <= 301, counts)  # one more for the value at the last vector is as good
        # After one product the value is not yet exact. But v @ H v of a vector of length 1 never leaves this range.
        value, _ = _pair(answer(product, start, 1), size, f"{case}, one step")
        low, high = min(eigenvalues), max(eigenvalues)
        words = f"{case}, one step from a vector of length {float(start.norm()):.3g}: found the value {readable(value)}"
        words += f", outside {low:g} to {high:g}. Is the first vector of length 1, too?"
        expect(low - 1e-6 * high <= value <= high + 1e-6 * high, words)


def _pair(found, size, case):
    """(value, vector (size,)) of an answer, if it is a plain number and a vector of that size."""
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise Wrong(f"{case}: expected a pair (value, vector), found {shorten(found)}.")
    value, vector = found
    plain = isinstance(value, Real) and not isinstance(value, bool)
    makes = "float(...) makes one of a torch tensor."
    expect(plain, f"{case}: expected the value as a number, found {shorten(value)}. {makes}")
    direction = torch.as_tensor(vector, dtype=torch.float64).flatten()
    expect(len(direction) == size, f"{case}: expected a vector of {size} numbers, found {shorten(vector)}.")
    return float(value), direction


def filter_normalise(direction, weight):
    each = tuple(range(1, weight.dim()))
    lengths = (weight**2).sum(each, keepdim=True).sqrt()
    return direction * lengths / (direction**2).sum(each, keepdim=True).sqrt()


def verify_filter_normalise(answer):
    answer = untouched(answer)
    random = torch.Generator().manual_seed(0)
    for shape in ((8, 3, 3, 3), (10, 64)):
        weight = torch.randn(shape, generator=random) * torch.arange(1, shape[0] + 1).view(-1, *[1] * (len(shape) - 1))
        direction = torch.randn(shape, generator=random)
        found = answer(direction.clone(), weight.clone())
        if not isinstance(found, torch.Tensor) or found.shape != weight.shape:
            raise Wrong(f"Expected a torch tensor of shape {tuple(shape)}, found {shorten(found)}.")
        got, wanted = found.flatten(1).norm(dim=1), weight.flatten(1).norm(dim=1)
        for row in range(shape[0]):
            expect_close(got[row], float(wanted[row]), f"the length of filter {row} of {shape[0]}", tolerance=1e-4)
        cosine = torch.nn.functional.cosine_similarity(found.flatten(1), direction.flatten(1))
        expect(bool((cosine > 0.999).all()), "The filters have the right lengths, but no longer point the same way.")


EXERCISES = (
    Exercise(
        id="noise-scale",
        task="The noise scale from the mean squared gradients of two batch sizes.",
        difficulty=2,
        minutes=10,
        hint="Two equations, square = signal + noise / batch, with two unknowns. Subtract one from the other first.",
        reference=noise_scale,
        verify=verify_noise_scale,
    ),
    Exercise(
        id="power-iteration",
        task="The eigenvalue of largest size, and its vector, from products alone.",
        difficulty=2,
        minutes=10,
        hint="Make the vector 1 long, multiply, and take the result as the next vector. The value is vector · product.",
        reference=power_iteration,
        verify=verify_power_iteration,
    ),
    Exercise(
        id="filter-normalise",
        task="Make every filter of a direction as long as the filter it will move.",
        difficulty=2,
        minutes=8,
        hint="One length for each w[i]: sum the squares over all dimensions but the first, and keep those dimensions.",
        reference=filter_normalise,
        verify=verify_filter_normalise,
    ),
)
