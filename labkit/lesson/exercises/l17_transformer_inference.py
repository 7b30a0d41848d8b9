"""Exercises of lesson 17: a linear layer of integers, with a grid per block."""

from labkit.lesson.exercises import Exercise, expect, shorten, untouched


def block_linear(x, weight, scales, bias):
    import numpy as np

    blocks = scales.shape[1]
    x = x.reshape(len(x), blocks, -1)
    steps = np.abs(x).max(2) / np.float32(127)  # (N, blocks)
    steps = np.where(steps > 0, steps, np.float32(1))
    integers = np.rint(x / steps[:, :, None]).astype(np.int32)
    weight = weight.reshape(len(weight), blocks, -1).astype(np.int32)
    sums = np.einsum("nbk,mbk->nmb", integers, weight)
    return ((sums * (steps[:, None] * scales)).sum(2) + bias).astype(np.float32)


def verify_block_linear(answer):
    import numpy as np

    answer, random = untouched(answer), np.random.default_rng(1)

    def layer(x, size, scale=1):
        x, out = np.asarray(x, np.float32), 7
        weight = random.integers(-128, 128, (out, x.shape[1])).astype(np.int8)
        scales = (scale * random.uniform(0.001, 0.02, (out, x.shape[1] // size))).astype(np.float32)
        return x, weight, scales, random.normal(size=out).astype(np.float32)

    spread = random.normal(size=(5, 66))
    outlier = spread.copy()
    outlier[2, 12] = 40.0
    gaps = spread.copy()
    gaps[1, 22:33] = 0
    cases = {
        "numbers of both signs, blocks of 11": layer(spread, 11),
        "negative numbers only": layer(-1 - np.abs(spread), 22),
        "rows of different size": layer(spread * np.array([0.01, 0.1, 1, 5, 20])[:, None], 6),
        "one outlier": layer(outlier, 11),
        "a block of zeros": layer(gaps, 11),
        "one block": layer(spread, 66),
        "many inputs": layer(random.normal(size=(3, 1024)) + 2, 128),
        "numbers of size 1e-5, which are no zeros": layer(1e-5 * spread, 11, scale=100),
    }
    for case, given in cases.items():
        with np.errstate(all="ignore"):
            found = answer(*given)
            _expect_integers(answer, given)
        wanted = block_linear(*given)
        expect(isinstance(found, np.ndarray), f"{case}: expected a NumPy array, found {shorten(found)}.")
        expect(found.dtype == np.float32, f"{case}: expected float32, found {found.dtype}.")
        expect(found.shape == wanted.shape, f"{case}: expected the shape {wanted.shape}, found {found.shape}.")
        expect(np.isfinite(found).all(), f"{case}: the result holds NaN or infinity.")
        off = float((np.abs(found - wanted) / _steps_of(*given[:3])).max())
        expect(off < 1.2, f"{case}: a result is {off:.2f} steps of its coarsest block away from the sum of products.")


def _steps_of(x, weight, scales):
    """(N, M): what a result moves by when one number lies on the wrong side of a rounding tie."""
    import numpy as np

    blocks = scales.shape[1]
    steps = np.abs(x.reshape(len(x), blocks, -1)).max(2) / 127
    largest = np.abs(weight.reshape(len(weight), blocks, -1).astype(np.int32)).max(2) * scales
    return (steps[:, None] * largest).max(2) + 1e-6


def _expect_integers(answer, given):
    """Raise `Wrong` when the weights are multiplied as floats."""
    import numpy as np

    class Watched(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, **named):
            _refuse_floats(inputs)
            return getattr(ufunc, method)(*map(np.asarray, inputs), **named)

        def __array_function__(self, function, types, inputs, named):
            _refuse_floats(each for each in inputs if isinstance(each, np.ndarray))
            return function(*(np.asarray(each) if isinstance(each, Watched) else each for each in inputs), **named)

    answer(given[0], given[1].copy().view(Watched), *given[2:])


def _refuse_floats(inputs):
    import numpy as np

    kinds = {np.asarray(each).dtype.kind for each in inputs}
    expect("f" not in kinds, "The weights are multiplied as floats. Multiply and add integers; the scales come after.")


EXERCISES = (
    Exercise(
        id="block-linear",
        task="Compute a linear layer in integers, with a grid for each block of its input and of its weights.",
        difficulty=3,
        minutes=20,
        hint="Give x and the weights a dimension of blocks; round; add up inside the blocks in int32; scale; add up.",
        reference=block_linear,
        verify=verify_block_linear,
    ),
)
