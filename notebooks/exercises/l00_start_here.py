"""Exercises of lesson 00: answers, latency, weights in few bits, a calibrated grid, changed
answers, a verdict.
"""

import copy
import math
import time

import numpy as np
import torch
from torch import nn

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched

MOST_AT_ONCE = 100  # images in a call


def predictions(program, images):
    import numpy as np

    classes = []
    for start in range(0, len(images), 100):
        scores = program(images[start : start + 100])
        classes.append(scores.argmax(1))
    return np.concatenate(classes)


class KnownScores:
    """A program whose scores are known, which takes at most 100 images in a call."""

    def __init__(self, images, scores):
        self.row_of = {image.tobytes(): row for row, image in enumerate(images)}
        self.scores = scores

    def __call__(self, images):
        images = np.asarray(images)
        expect(
            images.ndim == 4,
            f"The program was given an array of shape {images.shape}; it takes (n, 1, 28, 28), "
            "also for one image.",
        )
        expect(
            len(images) <= MOST_AT_ONCE,
            f"The program was given {len(images)} images in one call: at most "
            f"{MOST_AT_ONCE}, please.",
        )
        return self.scores[[self.row_of[image.tobytes()] for image in images]]


def verify_predictions(answer):
    rng = np.random.default_rng(0)
    # one call is enough for the first: a wrong axis shows before a missing loop
    for count in (7, 250, 100):
        images = rng.random((count, 1, 4, 4), dtype=np.float32)
        scores = rng.normal(size=(count, 10)).astype(np.float32)
        before = images.copy()
        classes = answer(KnownScores(images, scores), images)
        expect(
            np.array_equal(images, before), "Your function changes the images that it was given."
        )
        if isinstance(classes, list) and len(classes) != count:
            raise Wrong(
                f"{count} images have {count} classes; yours is a list of "
                f"{len(classes)} batches. Join them."
            )
        expect(
            count != 7 or np.shape(classes) != (10,),
            "7 images gave 10 classes, one for each column of the scores: take the largest along "
            "the other axis.",
        )
        _expect_shape(classes, (count,), f"the classes of {count} images")
        expect(
            np.array_equal(np.asarray(classes), scores.argmax(1)),
            "Some classes are not the place of the largest score in their row. Which axis of the "
            "scores is which?",
        )


def _expect_shape(value, shape, what):
    """Raise `Wrong` unless a value is a NumPy array, or a list, of that shape."""
    described = f"shape {np.shape(value)}" if isinstance(value, np.ndarray) else shorten(value)
    fits = isinstance(value, (np.ndarray, list)) and np.shape(value) == shape
    expect(fits, f"Expected {what} as a NumPy array of shape {shape}; found {described}.")


def median_latency(program, images, calls=200, warm_up=20, now=time.thread_time):
    import statistics

    for _ in range(warm_up):
        program(images)
    seconds = []
    for _ in range(calls):
        begin = now()
        program(images)
        seconds.append(now() - begin)
    return 1e3 * statistics.median(seconds)


class SlowAtFirst:
    """A program on a made-up clock: its first 20 calls take 50 ms, later ones 1, 2 or 30 ms."""

    def __init__(self):
        self.calls, self.seconds, self.images = 0, 0.0, None

    def __call__(self, images):
        self.calls += 1
        self.images = images
        self.seconds += 0.05 if self.calls <= 20 else (0.001, 0.002, 0.03)[self.calls % 3]

    def now(self):
        return self.seconds


def verify_median_latency(answer):
    images, program = np.zeros((3, 1, 4, 4), np.float32), SlowAtFirst()
    latency = answer(program, images, calls=41, warm_up=20, now=program.now)
    expect(
        isinstance(latency, (int, float, np.floating)),
        f"Expected a number of ms, found {shorten(latency)}.",
    )
    expect(
        np.array_equal(program.images, images), "The program was not given the images as they came."
    )
    expect(
        program.calls != 41,
        "Yours made 41 calls: first come 20 to warm up, and then 41 that are timed.",
    )
    expect(
        program.calls == 61,
        f"Yours made {program.calls} calls; 20 to warm up and 41 timed ones are 61.",
    )
    expect(
        abs(latency - 0.002) > 1e-4,
        "Yours says 0.002, the number of seconds. Milliseconds, please.",
    )
    expect(
        abs(latency - 30) > 1e-3,
        "Yours says 30 ms: are the slow calls of the warm-up among those that count?",
    )
    calls = (
        "After the warm-up 13 calls take 1 ms, 14 take 2 ms, and 14 are disturbed and take 30 ms: "
        "their median"
    )
    expect_close(latency, 2.0, calls)


def in_few_bits(network, bits):
    import copy

    rounded = copy.deepcopy(network)
    top = 2 ** (bits - 1) - 1
    with torch.no_grad():
        for weights in rounded.parameters():
            if weights.dim() > 1:
                scale = weights.abs().max() / top
                weights.copy_((weights / scale).round() * scale)
    return rounded


def verify_in_few_bits(answer):
    network = _small_network()
    before = copy.deepcopy(network.state_dict())
    for bits in (3, 8, 2):
        rounded = answer(network, bits)
        expect(
            isinstance(rounded, nn.Module),
            f"Expected a network, found {shorten(rounded)}. Is there a `return`?",
        )
        for name, values in network.state_dict().items():
            expect(
                torch.equal(values, before[name]),
                f"Your function changed the network that it was given ({name}). "
                "Work on a copy of it.",
            )
        expected = in_few_bits(network, bits).state_dict()
        for name, values in rounded.state_dict().items():
            _expect_weights(name, before[name], values, expected[name], bits)


def _small_network():
    """A network whose weights are known, and whose largest ones are negative."""
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in network.parameters():
            weights.copy_(torch.rand(weights.shape, generator=rng) - 0.6)
    return network


def _expect_weights(name, before, found, expected, bits):
    """Raise `Wrong`, with what a tensor holds, unless it is the expected one."""
    if torch.allclose(found, expected, atol=1e-6):
        return
    top = 2 ** (bits - 1) - 1
    expect(before.dim() > 1, f"{name} has one dimension and stays as it was.")
    expect(
        not torch.equal(found, before),
        f"{name} is unchanged: a new tensor does not change the network, "
        "`weights.copy_(...)` does.",
    )
    integers = (before / (before.abs().max() / top)).round()
    expect(
        not torch.allclose(found, integers, atol=1e-4),
        f"{name} now holds the integers. Multiply by the scale again: the network "
        "needs its old units.",
    )
    raise Wrong(
        f"With {bits} bits {name} has {len(found.unique())} different values, and the one of "
        "largest size is "
        f"{found.flatten()[found.abs().argmax()]:.4f}. Expected are at most {2 * top + 1} values "
        "at equal distances, "
        f"each weight on the nearest one, and {before.flatten()[before.abs().argmax()]:.4f} as "
        "the largest in size."
    )


def calibrated_grid(values):
    low = min(float(values.min()), 0.0)
    high = max(float(values.max()), 0.0)
    scale = (high - low) / 255
    return scale, round(-low / scale)


def verify_calibrated_grid(answer):
    cases = (  # values, scale and zero point, worked by hand
        ("from -1 to 4.1", [[0.3, -1.0], [4.1, 2.0]], 0.02, 50),
        ("from 2 to 5.1, and 0.0 counts among them", [[2.0, 3.0, 5.1]], 0.02, 0),
        ("from -5.1 to -1, and 0.0 counts among them", [-1.0, -5.1], 0.02, 255),
        ("from -99.52 to 2.48", [-99.52, 2.48], 0.4, 249),
    )
    for described, values, scale, zero_point in cases:
        found = untouched(answer)(np.array(values, np.float32))
        expect(
            isinstance(found, (tuple, list)) and len(found) == 2,
            f"Expected (scale, zero point), found {shorten(found)}.",
        )
        expect_close(float(found[0]), scale, f"the scale for values {described}")
        expect_close(
            float(found[1]),
            float(zero_point),
            f"the zero point, an integer, for values {described}",
        )


def changed_answers(before, after, labels):
    changed = before != after
    lost = changed & (before == labels)
    won = changed & (after == labels)
    return changed, lost, won


def verify_changed_answers(answer):
    labels = np.array([0, 1, 2, 3, 4, 5, 6, 7])
    before = np.array([0, 1, 2, 3, 9, 9, 9, 7])
    after = np.array([0, 1, 9, 8, 4, 9, 8, 7])
    # of the answers, worked by hand
    numbers = {"changed": [2, 3, 4, 6], "lost": [2, 3], "won": [4]}
    masks = untouched(answer)(before, after, labels)
    expect(
        isinstance(masks, (tuple, list)) and len(masks) == 3,
        f"Expected three masks, changed, lost and won; found {shorten(masks)}.",
    )
    for (name, expected), mask in zip(numbers.items(), masks, strict=True):
        expect(
            np.shape(mask) == labels.shape and np.asarray(mask).dtype == bool,
            f"Expected `{name}` as a mask, True or False for each of the 8 answers; found "
            f"{shorten(mask)}.",
        )
        found = np.flatnonzero(mask).tolist()
        expect(
            found == expected,
            f"labels {labels}, before {before}, after {after}: `{name}` are the answers "
            f"{expected}, yours are {found}.",
        )


def verdict(low, high, at_least=-math.inf, at_most=math.inf):
    if low >= at_least and high <= at_most:
        return "filled"
    if high < at_least or low > at_most:
        return "not filled"
    return "not clear"


def verify_verdict(answer):
    cases = (
        ("filled", (7.9, 8.3), {"at_least": 5}),
        ("not filled", (3.1, 3.6), {"at_least": 5}),
        ("not clear", (4.8, 5.9), {"at_least": 5}),
        ("not clear", (4.1, 5.2), {"at_least": 5}),
        ("filled", (-0.2, 0.4), {"at_most": 0.5}),
        ("not filled", (0.6, 1.4), {"at_most": 0.5}),
        ("not clear", (-0.1, 0.7), {"at_most": 0.5}),
        ("not clear", (0.4, 1.2), {"at_most": 0.5}),
        ("filled", (5.0, 5.0), {"at_least": 5}),
        ("filled", (0.1, 0.5), {"at_most": 0.5}),
        ("not clear", (0.5, 0.9), {"at_most": 0.5}),
    )
    for expected, (low, high), demand in cases:
        found = answer(low, high, **demand)
        limit = ", ".join(f"{name}={number}" for name, number in demand.items())
        expect(
            found == expected,
            f"An interval from {low} to {high}, {limit}: expected {expected!r}, found "
            f"{shorten(found)}.",
        )


EXERCISES = (
    Exercise(
        id="predictions",
        task="Return the class that a program gives to each image, handing it at "
        "most 100 images in a call.",
        difficulty=1,
        importance=3,
        minutes=5,
        hint="A list, a loop over range(0, len(images), 100), one call for each slice, argmax "
        "along the right axis.",
        reference=predictions,
        verify=verify_predictions,
    ),
    Exercise(
        id="median-latency",
        task="Return the median time of a call in milliseconds, after a warm-up.",
        difficulty=2,
        importance=3,
        minutes=7,
        hint="Two loops. In the second one, read now() before and after each single call, and "
        "collect the differences.",
        reference=median_latency,
        verify=verify_median_latency,
        imports="import time",
    ),
    Exercise(
        id="in-few-bits",
        task="Return a copy of a network whose weights lie on a grid of integers times a scale.",
        difficulty=2,
        importance=3,
        minutes=8,
        hint="copy.deepcopy; then for each weights in rounded.parameters(): how far are two "
        "points of the grid apart?",
        reference=in_few_bits,
        verify=verify_in_few_bits,
        imports="import torch",
    ),
    Exercise(
        id="calibrated-grid",
        task="Return the scale and the zero point of the grid from 0 to 255 that "
        "reaches over all values.",
        difficulty=2,
        importance=3,
        minutes=5,
        hint="255 steps of one scale lie between the two ends. How many of them lie between the "
        "lower end and 0.0?",
        reference=calibrated_grid,
        verify=verify_calibrated_grid,
    ),
    Exercise(
        id="changed-answers",
        task="Return masks of the answers that changed, and of those among them "
        "that were lost and won.",
        difficulty=1,
        importance=3,
        minutes=4,
        hint="Comparisons of arrays give masks, and & joins two masks.",
        reference=changed_answers,
        verify=verify_changed_answers,
    ),
    Exercise(
        id="verdict",
        task="Say of an interval whether a demand is filled, not filled, or whether "
        "that is not clear.",
        difficulty=1,
        importance=3,
        minutes=4,
        hint="Which end of the interval has to pass at_least, and which at_most? What if not even "
        "the other end does?",
        reference=verdict,
        verify=verify_verdict,
        imports="import math",
    ),
)
