"""Exercises of lesson 12: onto the grid and back, an integer product, layers in FP16, a bias, straight-through."""

from itertools import islice

import numpy as np

from labkit.lesson.exercises import Exercise, Wrong, expect, shorten, untouched


def quantize_dequantize(x, low, high):
    import numpy as np

    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255
    zero = round(-low / scale)
    q = np.clip(np.round(x / scale) + zero, 0, 255)
    return (q - zero) * scale


def verify_quantize_dequantize(answer):
    answer = untouched(answer)
    cases = {  # (low, high), and how many numbers: zero points with a rest, inputs of several ranks
        "values on both sides of 0": (-1.03, 3.13, (2, 3001)),
        "values after a ReLU": (0.0, 6.07, (2003,)),
        "values that never reach 0": (2.3, 5.17, (2003,)),
        "negative values only": (-4.21, -1.7, (2003,)),
        "an input of three ranks": (-0.37, 1.9, (7, 11, 13)),  # -low / step is 41.56
    }
    for name, (low, high, shape) in cases.items():
        x, step = _between_ties(low, high, shape)
        found = as_array(answer(x.copy(), low, high), x, name)
        levels = len(np.unique(np.round(found / step, 3)))
        expect(levels <= 256, f"On {name}: your result has {levels} different values, 8 bits have 256.")
        whole = np.abs(found / step - np.round(found / step)).max() < 1e-6
        expect(whole, f"On {name}: a result is not a whole number of steps (high - low) / 255 away from 0.0.")
        wanted = quantize_dequantize(x, low, high)
        far, worst = np.abs(found - wanted).max() / step, np.abs(found - wanted).argmax()
        place = f"{x.flat[worst]:.4g} should come back as {wanted.flat[worst]:.4g}, found {found.flat[worst]:.4g}"
        clue = " Those are the integers: take them back to real numbers." if np.ptp(found) > 50 * (high - low) else ""
        expect(far < 1e-3, f"On {name}, from {low:g} to {high:g}, {far:.2f} steps off: {place}.{clue}")
    zero = float(answer(np.array([0.0]), -0.37, 1.91)[0])
    expect(zero == 0, f"0.0 must come back as exactly 0 (a padded border is 0.0); found {zero:.3g}.")


def _between_ties(low, high, shape):
    """(values from beyond low to beyond high that no rounding error moves to another integer, the step)."""
    step = (max(high, 0) - min(low, 0)) / 255
    x = np.linspace(low - 9 * step, high + 9 * step, int(np.prod(shape)))
    rest = x / step - np.floor(x / step)
    return np.where(np.abs(rest - 0.5) < 0.02, x + 0.05 * step, x).reshape(shape), step


def as_array(found, x, name):
    expect(isinstance(found, np.ndarray), f"On {name}: expected a NumPy array, found {shorten(found)}.")
    expect(found.shape == x.shape, f"On {name}: expected the shape {x.shape}, found {found.shape}.")
    expect(np.isfinite(found).all(), f"On {name}: found values that are not finite.")
    return found.astype(float)


def integer_product(a, a_zero, b):
    import numpy as np

    return (a.astype(np.int32) - a_zero) @ b.astype(np.int32)


def verify_integer_product(answer):
    answer, random = untouched(answer), np.random.default_rng(1)
    for rows, inner, columns, zero in ((2, 3, 4, 10), (5, 300, 7, 128), (1, 2000, 3, 77)):
        a = random.integers(0, 256, (rows, inner)).astype(np.uint8)
        b = random.integers(-128, 128, (inner, columns)).astype(np.int8)
        found, wanted = np.asarray(answer(a.copy(), zero, b.copy())), integer_product(a, zero, b)
        what = f"{rows} x {inner} by {inner} x {columns}, zero point {zero}"
        expect(found.shape == wanted.shape, f"{what}: expected the shape {wanted.shape}, found {found.shape}.")
        expect(found.dtype.kind == "i", f"{what}: expected integers, found {found.dtype}.")
        for mine, yours in zip(wanted.flat, found.flat, strict=True):
            expect(mine == yours, f"{what}: where {mine} should stand, you have {yours}.")
    a, b = np.full((1, 4001), 255, np.uint8), np.full((4001, 1), 127, np.int8)  # needs more digits than float32 has
    for zero in (0, 3):
        found, wanted = int(np.asarray(answer(a, zero, b)).item()), 4001 * (255 - zero) * 127
        expect(found == wanted, f"4,001 products of {255 - zero} and 127 add up to {wanted}; you have {found}.")


def keep_in_fp16(layers, budget):
    from itertools import combinations

    def noise(kept):
        return sum(layer["noise"] for layer in layers if layer["name"] not in kept)

    def weights(kept):
        return sum(layer["weights"] for layer in layers if layer["name"] in kept)

    names = [layer["name"] for layer in layers]
    choices = [kept for count in range(len(names) + 1) for kept in combinations(names, count)]
    return set(min((kept for kept in choices if noise(kept) <= budget), key=weights))


def verify_keep_in_fp16(answer):
    answer = untouched(answer)
    cases = {
        "one noisy small layer": ([(9.0, 100), (1.0, 5000), (1.0, 9000)], 3.0),
        "the noisiest layer is huge": ([(5.0, 90_000), (4.0, 300), (3.0, 200), (1.0, 500)], 6.0),
        "nothing needs to be kept": ([(1.0, 10), (2.0, 20)], 5.0),
        "all must be kept": ([(1.0, 10), (2.0, 20)], 0.0),
        "two small ones instead of the best bargain": ([(6.0, 100), (3.5, 60), (3.0, 55), (1.0, 9)], 7.0),
    }
    random = np.random.default_rng(2)
    for number in range(5):
        rows = [
            (float(noise), int(size)) for noise, size in zip(random.random(8), random.integers(1, 1000, 8), strict=True)
        ]
        cases[f"random layers {number}"] = (rows, 0.4 * sum(noise for noise, _ in rows))
    for name, (rows, budget) in cases.items():
        layers = [{"name": f"layer {i}", "noise": noise, "weights": size} for i, (noise, size) in enumerate(rows)]
        kept = answer(layers, budget)
        check_choice(name, layers, budget, kept)


def check_choice(name, layers, budget, kept):
    try:
        kept = set(islice(kept, len(layers) + 1))  # an answer may be a generator that never ends
    except TypeError:
        raise Wrong(f"{name}: expected a set of names, found {shorten(kept)}.") from None
    known = {layer["name"] for layer in layers}
    expect(kept <= known, f"{name}: {shorten(sorted(map(str, kept - known)))} are not names of layers.")
    left = sum(layer["noise"] for layer in layers if layer["name"] not in kept)
    expect(left <= budget + 1e-12, f"{name}: the layers left in INT8 make noise {left:.3g}, allowed is {budget:.3g}.")

    def size(names):
        return sum(layer["weights"] for layer in layers if layer["name"] in names)

    best = size(keep_in_fp16(layers, budget))
    expect(size(kept) <= best, f"{name}: you keep {size(kept):,} weights in FP16; {best:,} are enough.")


def corrected_bias(bias, wanted, found):
    return bias + (wanted - found).mean((0, 2, 3))


def verify_corrected_bias(answer):
    answer, random = untouched(answer), np.random.default_rng(3)
    for shape in ((4, 3, 5, 6), (2, 7, 1, 1), (1, 2, 9, 4)):
        bias, wanted = random.normal(size=shape[1]), random.normal(size=shape)
        found = wanted + random.normal(size=(1, shape[1], 1, 1)) + 0.1 * random.normal(size=shape)
        yours = answer(bias.copy(), wanted.copy(), found.copy())
        what = f"Outputs of the shape {shape}"
        expect(isinstance(yours, np.ndarray), f"{what}: expected a NumPy array, found {shorten(yours)}.")
        expect(yours.shape == bias.shape, f"{what}: expected the shape {bias.shape}, found {yours.shape}.")
        moved = found + (yours - bias)[:, None, None]
        for channel, off in enumerate((moved - wanted).mean((0, 2, 3))):
            reason = f"with your bias, channel {channel} is off by {off:.3g} on average; 0 is wanted."
            expect(abs(off) < 1e-5, f"{what}: {reason}")


def straight_through(x, scale, top):
    steps = (x / scale).clamp(-top, top)
    return (steps + (steps.round() - steps).detach()) * scale


def verify_straight_through(answer):
    import torch

    answer = untouched(answer)
    cases = {  # the values, in steps, keep away from the ends: which gradient belongs to an end itself is a convention
        "a row of numbers, grid -1, 0, 1": (torch.tensor([-0.9, -0.2, 0.3, 0.6, 0.97]), 0.5, 1),
        "a row of numbers, 8 bits": (torch.linspace(-120.3, 120.4, 50), 0.013, 127),
        "numbers beyond both ends": (torch.tensor([-9.2, -3.7, -3.3, -2.9, 0.4, 1.2, 2.8, 3.2, 3.6, 7.7]), 0.25, 3),
        "weights with one scale per channel": (
            torch.linspace(-6.3, 6.4, 24).reshape(2, 3, 4),
            torch.tensor([0.1, 2.0]).reshape(2, 1, 1),
            7,
        ),
        "float64": (torch.linspace(-5.3, 5.4, 7, dtype=torch.float64), 0.37, 4),
    }
    for name, (steps, scale, top) in cases.items():
        x = (steps * scale).requires_grad_()
        found = answer(x, scale, top)
        expect(isinstance(found, torch.Tensor), f"On {name}: expected a torch tensor, found {shorten(found)}.")
        expect(found.shape == x.shape, f"On {name}: expected the shape {tuple(x.shape)}, found {tuple(found.shape)}.")
        expect(found.dtype == x.dtype, f"On {name}: expected {x.dtype} as x is, found {found.dtype}.")
        wanted = (steps.round().clamp(-top, top) * scale).detach()
        off = float(((found.detach() - wanted) / scale).abs().max())
        expect(off < 1e-3, f"On {name}: a value is {off:.2f} steps away from its grid point.")
        expect(found.requires_grad, f"On {name}: no gradient goes through your result: something is detached.")
        slope = torch.linspace(1, 2, x.numel(), dtype=x.dtype).reshape(x.shape)  # what a loss would hand back
        (gradient,) = torch.autograd.grad(found, x, slope, allow_unused=True)
        expect(gradient is not None, f"On {name}: your result does not depend on x.")
        inside = (steps.abs() <= top).to(x.dtype)
        for what, where in (("on the range of the grid", inside == 1), ("beyond its ends", inside == 0)):
            share = (gradient / slope)[where]
            expect(
                torch.allclose(share, inside[where], atol=1e-4),
                f"On {name}: {what} the gradient must be {int(what.startswith('on'))}, "
                f"yours is {shorten([round(float(each), 3) for each in share.flatten()[:4]])}.",
            )


EXERCISES = (
    Exercise(
        id="quantize-dequantize",
        task="Put numbers on a grid of 256 integers that covers low..high and contains 0.0, and take them back.",
        difficulty=2,
        minutes=10,
        hint="Widen low..high to contain 0; scale is a 255th of it; zero = round(-low / scale); round, add zero, clip.",
        reference=quantize_dequantize,
        verify=verify_quantize_dequantize,
    ),
    Exercise(
        id="integer-product",
        task="Multiply two matrices of 8-bit integers, the first with a zero point, without overflow.",
        difficulty=1,
        minutes=6,
        hint="A sum of products needs more bits than the products: widen to int32 before you subtract and multiply.",
        reference=integer_product,
        verify=verify_integer_product,
    ),
    Exercise(
        id="keep-in-fp16",
        task="Choose the layers to keep in FP16 so that the noise stays within a budget and the file stays smallest.",
        difficulty=3,
        minutes=15,
        hint="There are few layers: try every subset. A greedy choice is sometimes wrong.",
        reference=keep_in_fp16,
        verify=verify_keep_in_fp16,
    ),
    Exercise(
        id="corrected-bias",
        task="Find the biases that give the outputs of a rounded convolution the right mean in each channel.",
        difficulty=1,
        minutes=5,
        hint="A bias moves all outputs of its channel. Take the mean of wanted - found over images, rows and columns.",
        reference=corrected_bias,
        verify=verify_corrected_bias,
    ),
    Exercise(
        id="straight-through",
        task="Round a tensor to a grid so that its gradient passes as if nothing had been rounded.",
        difficulty=2,
        minutes=12,
        hint="Count in steps: x / scale. Clamp, then round with a + (b - a).detach(), then multiply by the scale.",
        reference=straight_through,
        verify=verify_straight_through,
    ),
)
