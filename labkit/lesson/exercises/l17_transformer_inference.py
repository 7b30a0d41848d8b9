"""Exercises of lesson 17: counting attention, buckets, a linear layer in integers, batches with a deadline."""

import math

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched


def attention_multiply_adds(tokens, width, layers):
    projections = 4 * tokens * width * width
    scores_and_mix = 2 * tokens * tokens * width
    return layers * (projections + scores_and_mix)


def verify_attention(answer):
    cases = {
        (1, 1, 1): 6,
        (2, 3, 1): 4 * 2 * 9 + 2 * 4 * 3,
        (32, 384, 6): attention_multiply_adds(32, 384, 6),
        (511, 352, 7): attention_multiply_adds(511, 352, 7),
        (2048, 128, 2): attention_multiply_adds(2048, 128, 2),
    }
    for (tokens, width, layers), wanted in cases.items():
        what = f"attention_multiply_adds(tokens={tokens}, width={width}, layers={layers})"
        expect_close(answer(tokens, width, layers), wanted, what, tolerance=0)


def buckets(lengths, size):
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    return [order[at : at + size] for at in range(0, len(order), size)]


def worked(lengths, batches):
    """Tokens of the batches, padding included."""
    return sum(len(batch) * max(lengths[place] for place in batch) for batch in batches)


def verify_buckets(answer):
    import numpy as np

    answer, random = untouched(answer), np.random.default_rng(0)
    cases = {
        "four texts, two at a time": ([3, 9, 3, 9], 2),
        "five texts, two at a time": ([10, 2, 11, 3, 10], 2),
        "one text": ([7], 4),
        "three texts of one length": ([5, 5, 5], 8),
        "a hundred at random": (random.integers(4, 200, 100).tolist(), 16),
        "as many as fit exactly": (random.permutation(32).tolist(), 8),
    }
    cases["as many as fit exactly"] = ([length + 1 for length in cases["as many as fit exactly"][0]], 8)
    for case, (lengths, size) in cases.items():
        found = answer(list(lengths), size)
        try:
            batches = [[int(place) for place in batch] for batch, _ in zip(found, range(1000), strict=False)]
        except (TypeError, ValueError):
            raise Wrong(f"{case}: expected a list of lists of places, found {shorten(found)}.") from None
        places = sorted(place for batch in batches for place in batch)
        expect(
            places == list(range(len(lengths))),
            f"{case}: each of the places 0 to {len(lengths) - 1} must stand in one batch; found {shorten(batches)}.",
        )
        largest = max(map(len, batches))
        expect(largest <= size, f"{case}: a batch holds {largest} texts, at most {size} are allowed.")
        fewest = math.ceil(len(lengths) / size)
        expect(len(batches) == fewest, f"{case}: {len(batches)} batches, {fewest} are enough.")
        rising = sorted(range(len(lengths)), key=lambda place: lengths[place])
        wanted = max(
            worked(lengths, [o[at : at + size] for at in range(0, len(o), size)]) for o in (rising, rising[::-1])
        )
        tokens = worked(lengths, batches)
        expect(tokens <= wanted, f"{case}: your batches hold {tokens} tokens with padding, {wanted} are enough.")


def dynamic_linear(x, weight, scales, bias):
    import numpy as np

    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = (high - low) / 255 or 1.0
    zero = round(-low / scale)
    integers = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int32) - zero
    sums = integers @ weight.T.astype(np.int32)
    return (sums * (scale * scales) + bias).astype(np.float32)


def verify_dynamic_linear(answer):
    import numpy as np

    answer, random = untouched(answer), np.random.default_rng(1)

    def layer(x):
        x, out = np.asarray(x, np.float32), 7
        weight = random.integers(-127, 128, (out, x.shape[1])).astype(np.int8)
        return (
            x,
            weight,
            random.uniform(0.001, 0.02, out).astype(np.float32),
            random.normal(size=out).astype(np.float32),
        )

    spread = random.normal(size=(5, 64))
    outlier = spread.copy()
    outlier[2, 11] = 40.0
    cases = {
        "numbers of both signs": layer(spread),
        "positive numbers that begin at 3": layer(3 + np.abs(spread)),
        "negative numbers": layer(-1 - np.abs(spread)),
        "rows of different size": layer(spread * np.array([0.01, 0.1, 1, 5, 20])[:, None]),
        "one outlier": layer(outlier),
        "zeros": layer(np.zeros((2, 8))),
        ON_GRID: layer(_on_grid(5, 64)),
        "many inputs": layer(random.normal(size=(3, 1024)) + 2),
    }
    for case, given in cases.items():
        with np.errstate(all="ignore"):
            found = answer(*given)
            _expect_integers(answer, given)
        wanted = dynamic_linear(*given)
        expect(isinstance(found, np.ndarray), f"{case}: expected a NumPy array, found {shorten(found)}.")
        expect(found.dtype == np.float32, f"{case}: expected float32, found {found.dtype}.")
        expect(found.shape == wanted.shape, f"{case}: expected the shape {wanted.shape}, found {found.shape}.")
        expect(np.isfinite(found).all(), f"{case}: the result holds NaN or infinity.")
        step = (max(given[0].max(), 0) - min(given[0].min(), 0)) / 255
        sizes = np.abs(given[1].astype(np.int64)).max(1) * given[2] * step + 1e-6
        off = float((np.abs(found - wanted) / sizes).max())  # a value on the wrong side of a rounding tie moves it by 1
        most = 1e-3 if case == ON_GRID else 1.5
        expect(off < most, f"{case}: a result is {off:.2f} steps of the grid away from the integer product.")


ON_GRID = "numbers that no rounding error moves to another integer"


def _on_grid(rows, columns):
    """Numbers 0.3 of a step beside the grid's integers, whose zero point, 100.6, must be rounded up."""
    import numpy as np

    steps = np.random.default_rng(3).integers(-100, 154, (rows, columns)) + 0.3
    steps[0, :2] = -100.6, 154.4
    return 0.125 * steps


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


def dynamic_batches(arrivals, lengths, budget, deadline):
    batches = []
    for place, (arrival, length) in enumerate(zip(arrivals, lengths, strict=True)):
        if batches:
            open_batch = batches[-1]
            longest = max(length, *(lengths[each] for each in open_batch))
            fits = (len(open_batch) + 1) * longest <= budget
            if fits and arrival <= arrivals[open_batch[0]] + deadline:
                open_batch.append(place)
                continue
        batches.append([place])
    return batches


def verify_dynamic_batches(answer):
    import numpy as np

    answer, random = untouched(answer), np.random.default_rng(2)
    count = 300
    cases = {
        "all at once, room for two": ([0.0] * 5, [4] * 5, 8, 1.0),
        "far apart": ([0.0, 5.0, 9.0], [4, 4, 4], 100, 1.0),
        "exactly at the deadline": ([0.0, 1.0, 1.5], [4, 4, 4], 100, 1.0),
        "a drip that never pauses": ([0.0, 0.5, 1.0, 1.5, 2.0], [2] * 5, 100, 1.0),
        "a long text among short ones": ([0.0, 0.1, 0.2, 0.3], [2, 2, 10, 2], 20, 9.0),
        "short texts behind a long one": ([0.0, 0.1, 0.2, 0.3], [10, 2, 2, 2], 30, 9.0),
        "one that is longer than the budget": ([0.0, 0.1, 0.2], [2, 50, 2], 20, 9.0),
        "a deadline of three quarters, and one just after it": ([0.0, 0.75, 0.7539, 1.51], [4] * 4, 100, 0.75),
        "no deadline to speak of": ([0.0, 0.0, 1.0], [3, 3, 3], 20, 0.0),
        "at random": (random.exponential(1, count).cumsum().tolist(), random.integers(4, 99, count).tolist(), 256, 4.0),
    }
    for case, given in cases.items():
        found, wanted = answer(*given), dynamic_batches(*given)
        try:
            found = [[int(place) for place in batch] for batch, _ in zip(found, range(1000), strict=False)]
        except (TypeError, ValueError):
            raise Wrong(f"{case}: expected a list of lists of places, found {shorten(found)}.") from None
        first = next((n for n, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), None)
        if first is not None:
            raise Wrong(f"{case}: batch {first} is {shorten(found[first])}, expected {shorten(wanted[first])}.")
        expect(len(found) == len(wanted), f"{case}: {len(found)} batches, expected {len(wanted)}.")


EXERCISES = (
    Exercise(
        id="attention-multiply-adds",
        task="Count the multiply-adds of the attention of a transformer by hand.",
        difficulty=1,
        minutes=8,
        hint="Four layers of width x width per token; every query meets every key, and likewise the values.",
        reference=attention_multiply_adds,
        verify=verify_attention,
    ),
    Exercise(
        id="buckets",
        task="Put texts into the fewest batches such that little of them is padding.",
        difficulty=2,
        minutes=10,
        hint="Neighbours in the order of the lengths waste least. Sort the places, not the lengths, then cut.",
        reference=buckets,
        verify=verify_buckets,
    ),
    Exercise(
        id="dynamic-linear",
        task="Compute a linear layer in integers, with a grid for its input that is found in the call.",
        difficulty=3,
        minutes=20,
        hint="Widen the range to contain 0; scale, zero point, round, clip; sum in int32; scale once at the end.",
        reference=dynamic_linear,
        verify=verify_dynamic_linear,
    ),
    Exercise(
        id="dynamic-batches",
        task="Write the rule by which a server collects requests into batches, with a deadline and a budget of tokens.",
        difficulty=2,
        minutes=15,
        hint="Go through the requests once. Each joins the open batch, or closes it and opens the next.",
        reference=dynamic_batches,
        verify=verify_dynamic_batches,
    ),
)
