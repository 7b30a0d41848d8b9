"""Exercises of lesson 13: points lost, a grid by hand, the closest grid, and rows stretched."""

import numpy as np

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched

NUMPY = "import numpy as np"

# --- points lost ----------------------------------------------------------------------------------


def points_lost(before, after):
    lost = 100 * (before.astype(float) - after)
    mean = lost.mean()
    reach = 1.96 * lost.std(ddof=1) / np.sqrt(len(lost))
    return mean - reach, mean, mean + reach


def verify_points_lost(answer):
    answer = untouched(answer)
    rng = np.random.default_rng(2)
    many = rng.random(2000) < 0.9
    fewer = many & (rng.random(2000) < 0.99)
    cases = {
        "four images, one answer lost": (
            np.array([1, 1, 1, 0], bool),
            np.array([1, 0, 1, 0], bool),
        ),
        "an answer lost, and another won": (
            np.array([1, 1, 0, 0], bool),
            np.array([0, 1, 1, 0], bool),
        ),
        "2,000 images": (many, fewer),
        "2,000 images, the other way round": (fewer, many),
        "nothing lost": (many, many),
    }
    for name, (before, after) in cases.items():
        found = answer(before.copy(), after.copy())
        triple = isinstance(found, (tuple, list, np.ndarray)) and len(found) == 3
        expect(triple, f"{name}: expected (low, mean, high), found {shorten(found)}.")
        for part, number, right in zip(
            ("low", "mean", "high"), found, points_lost(before, after), strict=True
        ):
            expect_close(number, right, f"{name}: {part}")


# --- a grid by hand -------------------------------------------------------------------------------


def scale_zero_point(low, high):
    low = min(low, 0.0)
    high = max(high, 0.0)
    scale = (high - low) / 255
    zero_point = round(-low / scale)
    return scale, zero_point


def verify_scale_zero_point(answer):
    cases = {  # the rest of -low / scale is far from a half
        "values on both sides of 0": (-1.03, 3.13),
        "-1 to 3, as worked by hand": (-1.0, 3.0),
        "values after a ReLU": (0.0, 6.07),
        "values that never reach 0": (2.3, 5.17),
        "negative values only": (-4.21, -1.7),
    }
    for name, (low, high) in cases.items():
        found = answer(low, high)
        pair = isinstance(found, (tuple, list)) and len(found) == 2
        expect(pair, f"{name}: expected (scale, zero point), found {shorten(found)}.")
        scale, zero_point = scale_zero_point(low, high)
        hint = (
            "0.0 must lie on the grid: widen the range until it contains 0.0, then "
            "take a 255th of it"
        )
        close = isinstance(found[0], (int, float, np.number)) and np.isclose(
            found[0], scale, rtol=1e-5
        )
        expect(
            close,
            f"{name}, {low:g} to {high:g}: expected the scale {scale:.6g}, found "
            f"{shorten(found[0])}. {hint}.",
        )
        told = (
            f"{name}, {low:g} to {high:g}: expected the zero point {zero_point}, found "
            f"{shorten(found[1])}"
        )
        expect(isinstance(found[1], (int, float, np.number, np.ndarray)), f"{told}.")
        expect(float(found[1]) == zero_point, f"{told}. It is the integer at which 0.0 lies.")


def quantize(x, scale, zero_point):
    integers = np.round(x / scale) + zero_point
    return np.clip(integers, 0, 255).astype(np.uint8)


def verify_quantize(answer):
    answer = untouched(answer)
    cases = {
        "scale 0.5, zero point 10": (np.array([-9.0, -5.2, -0.3, 0.0, 0.3, 0.8, 3.9]), 0.5, 10),
        "far beyond both ends": (np.array([-1e4, -200.0, 200.0, 1e4]), 0.5, 100),
        "zero point 0": (np.linspace(-1, 7, 1013), 0.02, 0),
        "an image": (np.linspace(-3, 3, 2 * 3 * 5 * 7).reshape(2, 3, 5, 7), 0.017, 131),
    }
    for name, (x, scale, zero_point) in cases.items():
        found = answer(x.copy(), scale, zero_point)
        right = quantize(x, scale, zero_point)
        expect(
            isinstance(found, np.ndarray),
            f"{name}: expected a NumPy array, found {shorten(found)}.",
        )
        expect(
            found.shape == x.shape, f"{name}: expected the shape {x.shape}, found {found.shape}."
        )
        expect(
            found.dtype == np.uint8,
            f"{name}: expected numbers of the type uint8, found {found.dtype}.",
        )
        wrong = np.flatnonzero(found.ravel() != right.ravel())
        if len(wrong):
            first = wrong[0]
            raise Wrong(
                f"{name}: {x.flat[first]:.4g} should become {right.flat[first]}, found "
                f"{found.flat[first]} "
                f"({len(wrong)} of {x.size} differ). Round first, then add the zero point; what "
                "lies beyond an end "
                f"becomes the end."
            )


# --- the closest grid -----------------------------------------------------------------------------


def closest_scale(w, bits):
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
        expect(
            number and found > 0, f"On {name}: expected a number above 0, found {shorten(found)}."
        )

        def error(scale, w=w, top=top):
            return float(((np.clip(np.round(w / scale), -top, top) * scale - w) ** 2).sum())

        best = closest_scale(w, bits)
        if error(found) > 1.01 * error(best):
            why = (
                "wide, and coarser than it need be"
                if found > best
                else "narrow, and more saturates than need be"
            )
            raise Wrong(
                f"On {name}: expected a step near {best:.4g}, found {found:.4g}. It is too {why}: "
                f"the squared error is {error(found) / error(best):.2f} times the "
                f"least.{_other_top(w, top, found)}"
            )


def _other_top(w, top, scale):
    """A sentence where the step is the best one for another top, as a slip in top = 2**(bits -
    1) - 1 gives it.
    """
    for other in (top + 1, 2 * top + 1, 127):

        def error(step, other=other):
            return ((np.clip(np.round(w / step), -other, other) * step - w) ** 2).sum()

        steps = np.linspace(0.05, 1, 191) * np.abs(w).max() / other
        if error(scale) <= 1.003 * min(map(error, steps)):
            return (
                f" It would be a good step for a grid from {-other} to {other}; "
                f"here the top is {top}."
            )
    return ""


# --- stretching -----------------------------------------------------------------------------------


def stretch(weights, rounded):
    energy = (weights * weights).sum(axis=1, keepdims=True)
    kept = (weights * rounded).sum(axis=1, keepdims=True)
    factors = np.where(kept > 0, energy / np.where(kept > 0, kept, 1), 1)
    return rounded * factors


def verify_stretch(answer):
    answer, rng = untouched(answer), np.random.default_rng(5)
    weights = rng.normal(size=(5, 40)) * np.array([[0.01], [0.1], [1], [3], [20]])
    rounded = np.clip(np.rint(weights), -3, 3)
    cases = {
        "the row worked by hand": (np.array([[4.0, -1.0, 1.0]]), np.array([[3.0, -1.0, 1.0]])),
        "two rows, of which one keeps more": (
            np.array([[4.0, -1, 1], [2, 2, 0]]),
            np.array([[3.0, -1, 1], [3, 3, 0]]),
        ),
        "a row that became all zeros": (
            np.array([[0.1, -0.2], [3.0, 1.0]]),
            np.array([[0.0, 0.0], [2.0, 1.0]]),
        ),
        "rows of very different size": (weights, rounded),
    }
    for name, (exact, copy) in cases.items():
        with np.errstate(all="ignore"):
            found = np.asarray(answer(exact.copy(), copy.copy()))
        right = stretch(exact, copy)
        expect(
            found.shape == right.shape,
            f"{name}: expected the shape {right.shape}, found {found.shape}.",
        )
        expect(
            np.isfinite(found).all(),
            f"{name}: a row of zeros has nothing to stretch; found {shorten(found)}.",
        )
        if not np.allclose(found, right, rtol=1e-6, atol=1e-12):
            row = int(np.abs(found - right).max(axis=1).argmax())
            share = (exact[row] * found[row]).sum() / (exact[row] * exact[row]).sum()
            raise Wrong(
                f"{name}: of row {row} your copy keeps the share {share:.3f}, sum of w q / sum of "
                "w w; expected 1, "
                f"by one factor for the whole row."
            )


EXERCISES = (
    Exercise(
        id="points-lost",
        task="Say how many points of accuracy were lost, with a 95 % interval over paired images.",
        difficulty=1,
        importance=3,
        minutes=6,
        hint="Per image 100 * (before - after) is 100, 0 or -100; True - True is no number in "
        "NumPy, so make floats "
        "first. The reach is 1.96 standard deviations (ddof=1) divided by the root of the count.",
        reference=points_lost,
        verify=verify_points_lost,
        imports=NUMPY,
    ),
    Exercise(
        id="scale-zero-point",
        task="Find scale and zero point of the grid of 256 integers that covers a range and "
        "contains 0.0.",
        difficulty=2,
        importance=3,
        minutes=7,
        hint="Three steps: move low or high until 0.0 lies between them; the scale is a 255th of "
        "the range; how many "
        "steps above low does 0.0 lie?",
        reference=scale_zero_point,
        verify=verify_scale_zero_point,
    ),
    Exercise(
        id="quantize",
        task="Put numbers on a grid: round, shift, saturate.",
        difficulty=1,
        importance=3,
        minutes=5,
        hint="uint8 wraps around: 256 becomes 0. So clip while the numbers are "
        "floats still, and cast last.",
        reference=quantize,
        verify=verify_quantize,
        imports=NUMPY,
    ),
    Exercise(
        id="closest-scale",
        task="Find the step of a symmetric grid whose copy of the weights has the "
        "least squared error.",
        difficulty=2,
        minutes=10,
        hint="For many shares: scale = share * largest / top; round, clip, sum the squared "
        "errors; keep the best.",
        reference=closest_scale,
        verify=verify_closest_scale,
        imports=NUMPY,
    ),
    Exercise(
        id="stretch",
        task="Stretch each row of rounded weights until it keeps all of what the exact row had.",
        difficulty=3,
        importance=3,
        minutes=10,
        hint="Two sums along axis 1, with keepdims=True; their quotient is the factor of each "
        "row. np.where keeps a "
        "row of zeros from dividing by 0.",
        reference=stretch,
        verify=verify_stretch,
        imports=NUMPY,
    ),
)
