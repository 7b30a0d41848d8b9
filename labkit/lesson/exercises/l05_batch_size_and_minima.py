"""Exercises of lesson 05: the noise scale, power iteration, a sharpness that no rewriting changes."""

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


def power_iteration(product, vectors, steps):
    for _ in range(steps):
        vectors = vectors / vectors.norm(dim=1, keepdim=True)
        images = product(vectors)
        values = (vectors * images).sum(1)
        vectors = images
    return values, vectors / vectors.norm(dim=1, keepdim=True)


# one network per row: alike in size, so that the largest of each row is found in few steps, unlike in sign and scale
_SPECTRA = ([5.0, 2.0, -1.0, 0.3, 0.1], [0.2, 0.1, -0.9, 0.05, 0.3], [4e4, 10.0, 0.1, -3.0, 2.0])


def _turned(spectra):
    """(n, P, P) symmetric matrices with these eigenvalues, in directions of their own."""
    random, eigenvalues = torch.Generator().manual_seed(0), torch.tensor(spectra, dtype=torch.float64)
    size = eigenvalues.shape[1]
    turns, _ = torch.linalg.qr(torch.randn(len(spectra), size, size, generator=random, dtype=torch.float64))
    return turns @ torch.diag_embed(eigenvalues) @ turns.mT


def verify_power_iteration(answer):
    answer, matrices, counted = untouched(answer), _turned(_SPECTRA), []

    def product(v):
        expect(tuple(v.shape) == start.shape, f"product(v) takes all rows at once, {tuple(start.shape)}.")
        counted.append(v)
        return torch.einsum("npq,nq->np", matrices, v)

    start = torch.tensor([[7.0], [0.5], [30.0]], dtype=torch.float64).expand(3, 5).clone()
    values, directions = _rows(answer(product, start, 300), start.shape)
    counts = f"`steps` was 300, and your function took {len(counted)} products."
    expect(300 <= len(counted) <= 301, counts)  # one more for the values at the last vectors is as good
    for row, spectrum in enumerate(_SPECTRA):
        wanted, case = max(spectrum, key=abs), f"Row {row}, with the eigenvalues {spectrum}"
        expect_close(values[row], wanted, f"{case}: that of the largest size", tolerance=1e-4)
        expect_close(directions[row].norm(), 1.0, f"{case}: the length of the vector", tolerance=1e-4)
        apart = float((matrices[row] @ directions[row] - wanted * directions[row]).norm()) / abs(wanted)
        expect(apart < 1e-2, f"{case}: multiplying your vector by the matrix turns it: it is not the eigenvector.")
    # After one product the values are not yet exact. But v @ H v of a vector of length 1 never leaves this range.
    values, _ = _rows(answer(product, start, 1), start.shape)
    for row, spectrum in enumerate(_SPECTRA):
        low, high = min(spectrum), max(spectrum)
        words = f"Row {row}, one step from a vector of length {float(start[row].norm()):.3g}: found the value"
        words += f" {readable(float(values[row]))}, outside {low:g} to {high:g}. Is each first vector of length 1, too?"
        expect(low - 1e-6 * high <= values[row] <= high + 1e-6 * high, words)


def _rows(found, shape):
    """(values (n,), vectors (n, P)) of an answer, if it is a pair of such torch tensors."""
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise Wrong(f"Expected a pair (values, vectors), found {shorten(found)}.")
    for what, each, wanted in zip(("values", "vectors"), found, (shape[:1], shape), strict=True):
        if not isinstance(each, torch.Tensor) or each.shape != wanted:
            raise Wrong(f"Expected the {what} as a torch tensor of shape {tuple(wanted)}, found {shorten(each)}.")
    return found


def relative_product(product, weights):
    sizes = weights.abs()
    return lambda v: sizes * product(sizes * v)


def verify_relative_product(answer):
    answer, matrices, random = untouched(answer), _turned(_SPECTRA), torch.Generator().manual_seed(1)
    weights, v = torch.randn(2, 3, 5, generator=random, dtype=torch.float64)

    def product(u):
        return torch.einsum("npq,nq->np", matrices, u)

    def rewritten(u):  # the same functions with weights 2, 3, ... times as large: their derivatives are smaller
        return product(u / factors) / factors

    factors = torch.tensor([2.0, 3.0, 0.5, 1.0, 7.0], dtype=torch.float64)
    found, after = answer(product, weights), answer(rewritten, weights * factors)
    expect(callable(found), f"Expected a function v -> D H D v, found {shorten(found)}.")
    for what, each in (("product", found(v)), ("product after a rewriting", after(v))):
        shaped = isinstance(each, torch.Tensor) and each.shape == v.shape
        expect(shaped, f"The {what} should be a torch tensor of shape {tuple(v.shape)}, found {shorten(each)}.")
    sizes = torch.diag_embed(weights.abs())
    wanted = torch.einsum("npq,nq->np", sizes @ matrices @ sizes, v)
    apart = float((after(v) - found(v)).norm() / wanted.norm())
    expect(apart < 1e-6, "A rewriting of the network changes your product: is there a D on both sides of H?")
    signed = weights * product(weights * v)
    mirrored = float((found(v) - signed).norm() / wanted.norm()) < 1e-6
    expect(not mirrored, "Your D has the sign of each weight. It should hold the sizes |w|, none of them negative.")
    expect_close((found(v) - wanted).norm() / wanted.norm() + 1, 1.0, "1 + how far the product is off, relatively")


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
        task="The eigenvalues of largest size, and their vectors, from products alone.",
        difficulty=2,
        minutes=10,
        hint="Make each row 1 long, multiply, take the result as the next rows. A value is (row * its product).sum().",
        reference=power_iteration,
        verify=verify_power_iteration,
    ),
    Exercise(
        id="relative-product",
        task="The product of a Hessian that no rewriting of the network changes.",
        difficulty=1,
        minutes=5,
        hint="D v is weights.abs() * v, number by number. From the right: first D, then H, then D again.",
        reference=relative_product,
        verify=verify_relative_product,
    ),
)
