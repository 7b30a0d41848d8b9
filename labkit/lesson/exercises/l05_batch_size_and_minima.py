"""Exercises of lesson 05: the batch or the rate, power iteration, the noise scale."""

import numpy as np
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
        "a weak signal: 0.013 against noise 20": (0.013, 20.0, 16, 250),
        "signal 3.7, noise 1.1, batches 7 and 24": (3.7, 1.1, 7, 24),
        "by chance the large batches' square is the larger, so the estimate is below 0": (4.0, -3.0, 10, 50),
    }
    for name, (signal, noise, small, large) in cases.items():
        found = answer(signal + noise / small, signal + noise / large, small, large)
        if noise:
            expect_close(found, noise / signal, name)
        else:
            expect_close(found + 1, 1.0, f"{name}: one more than your result")  # none is relatively near to 0


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
    turns[1] = torch.eye(size)  # a vector with zeros in it
    return turns @ torch.diag_embed(eigenvalues) @ turns.mT


def verify_power_iteration(answer):
    answer, matrices, counted = untouched(answer), _turned(_SPECTRA), []

    def product(v):
        expect(tuple(v.shape) == start.shape, f"product(v) takes all rows at once, {tuple(start.shape)}.")
        counted.append(v)
        return torch.einsum("npq,nq->np", matrices, v)

    start = torch.tensor([[7.0], [0.5], [30.0]], dtype=torch.float64)
    start = start * torch.randn(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
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
    values, directions = _rows(answer(product, start, 1), start.shape)
    once = product(start)
    for row, spectrum in enumerate(_SPECTRA):
        near = [float(torch.cosine_similarity(directions[row], each[row], dim=0)) for each in (once, product(once))]
        expect(max(map(abs, near)) > 1 - 1e-6, f"Row {row}, after one step: your vector is not H times the given one.")
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


def batch_or_rate(run, small, large, rate, factor, epochs, loss):
    same_epochs = run(small, rate, epochs=epochs) - run(large, rate, epochs=epochs)
    same_loss = run(small, rate, loss=loss) - run(large, rate, loss=loss)
    faster = run(large, factor * rate, loss=loss) - run(large, rate, loss=loss)
    return same_epochs - same_loss, same_loss, faster


def _bench(seeds, known):
    """A `run` whose accuracies are drawn once for each training; `known` fills with them."""

    def run(batch, rate, *, epochs=None, loss=None):
        expect((epochs is None) != (loss is None), "Tell each `run` either epochs=... or loss=..., as given.")
        key = (batch, rate, epochs, loss)
        random = np.random.default_rng(len(known))
        return known.setdefault(key, 70 + 9 * random.random(seeds))

    return run


def verify_batch_or_rate(answer):
    for seeds, *case in ((5, 12, 300, 0.07, 3, 6, 0.03), (1, 20, 90, 0.4, 7, 11, 0.2), (3, 90, 20, 0.3, 0.5, 2, 1.1)):
        known = {}
        run = _bench(seeds, known)
        slips = _slips(run, *case)
        wanted = batch_or_rate(run, *case)
        before = {key: values.copy() for key, values in known.items()}
        found = answer(run, *case)
        same = all((known[key] == values).all() for key, values in before.items())
        expect(same, "Your function changes the accuracies that `run` gave it, and others need them. Make new arrays.")
        expect(isinstance(found, (tuple, list)) and len(found) == 3, f"Expected three arrays, found {shorten(found)}.")
        for name, each, right in zip(("unfinished", "by_batch", "by_rate"), found, wanted, strict=True):
            _expect_difference(name, each, right, slips)


def _slips(run, small, large, rate, factor, epochs, loss):
    """((seeds,) points of a plausible mistake, what they are) pairs."""
    end, high = {"loss": loss}, factor * rate
    early = {"epochs": epochs}
    both = "a comparison that changes batch and rate at once"
    return (
        (run(small, rate, **early) - run(large, rate, **early), "the lead after the same epochs"),
        (run(large, high, **early) - run(large, rate, **early), "taken after the same epochs, not at the same loss"),
        (run(small, high, **end) - run(small, rate, **end), "what the rate gives the *small* batch"),
        (run(large, high, **end) - run(small, rate, **end), both),
        (run(small, high, **end) - run(large, high, **end), "the batch at the higher rate"),
    )


def _expect_difference(name, found, wanted, slips):
    shaped = isinstance(found, np.ndarray) and found.shape == wanted.shape
    expect(shaped, f"{name}: expected a NumPy array of shape {wanted.shape}, one per seed, found {shorten(found)}.")
    if np.allclose(found, wanted):
        return
    expect(not np.allclose(found, -wanted), f"{name} has the wrong sign: which of the two is taken from the other?")
    for slip, words in slips:
        expect(not np.allclose(abs(found), abs(slip)), f"{name}: this is {words}.")
    raise Wrong(f"{name}: expected {wanted.round(2)}, found {found.round(2)}. What differs between your two trainings?")


EXERCISES = (
    Exercise(
        id="batch-or-rate",
        task="The controls that separate training too short, the batch and the rate.",
        difficulty=2,
        minutes=10,
        hint="Five trainings are enough. Compare two that differ in one thing. The first result compares two leads.",
        reference=batch_or_rate,
        verify=verify_batch_or_rate,
    ),
    Exercise(
        id="noise-scale",
        task="The noise scale from the mean squared gradients of two batch sizes.",
        difficulty=2,
        minutes=5,
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
)
