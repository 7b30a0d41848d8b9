"""Exercises of lesson 12: onto the grid and back, the closest grid, an integer product."""

import numpy as np

from labkit.lesson.exercises import Exercise, Wrong, expect, shorten, untouched


def quantize_dequantize(x, low, high):
    import numpy as np

    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255 or 1.0  # from 0 to 0 any step will do
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
        integers = (found == np.round(found)).all() and np.ptp(found) > 20 * (high - low)
        expect(
            not integers,
            f"On {name}: those are integers, {found.min():g} to {found.max():g}. Take them back to real numbers.",
        )
        whole = np.abs(found / step - np.round(found / step)).max() < 1e-6
        expect(
            whole,
            f"On {name}, from {low:g} to {high:g}: a result is not a whole number of steps away from 0.0. A step is a "
            f"255th of the range, widened to contain 0.0: here {step:.6g}.",
        )
        wanted = quantize_dequantize(x, low, high)
        far, worst = np.abs(found - wanted).max() / step, np.abs(found - wanted).argmax()
        place = f"{x.flat[worst]:.4g} should come back as {wanted.flat[worst]:.4g}, found {found.flat[worst]:.4g}"
        expect(far < 1e-3, f"On {name}, from {low:g} to {high:g}, {far:.2f} steps off: {place}.")
    zero = float(answer(np.array([0.0]), -0.37, 1.91)[0])
    expect(zero == 0, f"0.0 must come back as exactly 0 (a padded border is 0.0); found {zero:.3g}.")
    hint = "Any step above 0 will do there."
    with np.errstate(all="ignore"):
        try:
            found = np.asarray(answer(np.zeros(3), 0.0, 0.0))
        except (ZeroDivisionError, ValueError) as error:  # a quotient, or the rounding of 0 / 0
            raise Wrong(
                f"low = high = 0: 0.0 must come back as 0.0, but {type(error).__name__}: {error}. {hint}"
            ) from None
    right = found.shape == (3,) and (found == 0).all()
    expect(right, f"low = high = 0: 0.0 must come back as 0.0, found {shorten(found)}. {hint}")


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


def closest_scale(w, bits):
    import numpy as np

    top = 2 ** (bits - 1) - 1

    def error(scale):
        return ((np.clip(np.round(w / scale), -top, top) * scale - w) ** 2).sum()

    largest = np.abs(w).max() / top
    return float(min((share * largest for share in np.linspace(0.1, 1, 91)), key=error))


def verify_closest_scale(answer):
    answer, random = untouched(answer), np.random.default_rng(4)
    even = np.linspace(-1.0, 1.0, 1001)  # no tails: nothing to clip
    cases = {
        "bell-shaped weights, 3 bits": (random.normal(size=(7, 3, 11)), 3),
        "bell-shaped weights, 2 bits": (0.03 * random.normal(size=4003), 2),
        "bell-shaped weights, 4 bits": (11 * random.normal(size=(37, 29)), 4),
        "evenly spread weights, 5 bits": (even, 5),
        "one outlier, 3 bits": (np.append(random.normal(size=997), -6.3), 3),
        "an outlier far away, 2 bits": (
            np.append(random.normal(size=2003).clip(-3, 3), 7.2),
            2,
        ),  # two minima: 1.2, 7.2
        "negative weights, 3 bits": (-np.abs(random.normal(size=(13, 41))), 3),
    }
    for name, (w, bits) in cases.items():
        found, top = answer(w.copy(), bits), 2 ** (bits - 1) - 1
        number = isinstance(found, (int, float, np.number)) and np.isfinite(found)
        expect(number and found > 0, f"On {name}: expected a number above 0, found {shorten(found)}.")

        def error(scale, w=w, top=top):
            return float(((np.clip(np.round(w / scale), -top, top) * scale - w) ** 2).sum())

        best = closest_scale(w, bits)
        if error(found) > 1.01 * error(best):
            why = "wide, and coarser than it need be" if found > best else "narrow, and more saturates than need be"
            raise Wrong(
                f"On {name}: expected a step near {best:.4g}, found {found:.4g}. It is too {why}: "
                f"the squared error is {error(found) / error(best):.2f} times the least.{_other_top(w, top, found)}"
            )


def _other_top(w, top, scale):
    """A sentence where the step is the best one for another top, as a slip in top = 2**(bits - 1) - 1 gives it."""
    for other in (top + 1, 2 * top + 1, 127):

        def error(step, other=other):
            return ((np.clip(np.round(w / step), -other, other) * step - w) ** 2).sum()

        steps = np.linspace(0.05, 1, 191) * np.abs(w).max() / other
        if error(scale) <= 1.003 * min(map(error, steps)):
            return f" It would be a good step for a grid from {-other} to {other}; here the top is {top}."
    return ""


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
        id="closest-scale",
        task="Find the step of a symmetric grid whose copy of the weights has the least squared error.",
        difficulty=2,
        minutes=10,
        hint="For many shares: scale = share * largest / top; round, clip, sum the squared errors; keep the best.",
        reference=closest_scale,
        verify=verify_closest_scale,
    ),
)
