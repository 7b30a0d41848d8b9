"""Answers to the exercises of lesson 05: wrong ones that must be rejected, right ones written
differently.
"""

import io
import math
import statistics
import time
from collections import defaultdict
from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image

from labkit.lesson.exercises.l05_where_training_time_goes import Stopwatch, quick_photo


def stopwatch(*, slip=None):
    """A stopwatch with a mistake by name."""
    shared = {}

    class Mine:
        def __init__(self, wait, now=time.perf_counter):
            self.wait, self.now = wait, now
            self.seconds = shared if slip == "one dict for all stopwatches" else {}

        @contextmanager
        def phase(self, name):
            if slip not in ("never waits", "waits only after the block"):
                self.wait()
            now = time.perf_counter if slip == "reads a clock of its own" else self.now
            begin = now()
            yield
            if slip == "stops before it waits":
                seconds = now() - begin
            if slip not in ("never waits", "waits only before the block"):
                self.wait()
            if slip != "stops before it waits":
                seconds = now() - begin
            if slip == "keeps the last time only":
                self.seconds[name] = [seconds]
            elif slip == "adds the times up":
                self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            elif slip == "gives milliseconds":
                self.seconds.setdefault(name, []).append(1e3 * seconds)
            else:
                self.seconds.setdefault(name, []).append(seconds)

        def medians(self, skip=1 if slip == "another default" else 2):
            if slip == "means":
                return {name: np.mean(values[skip:]) for name, values in self.seconds.items()}
            if slip == "warm-up counted in":
                return {name: np.median(values) for name, values in self.seconds.items()}
            if slip == "skips the last ones":
                return {name: np.median(values[:-skip]) for name, values in self.seconds.items()}
            return {name: np.median(values[skip:]) for name, values in self.seconds.items()}

    return Mine


class WithoutYield(Stopwatch):
    def phase(self, name):
        self.wait()
        self.seconds.setdefault(name, []).append(self.now())


class ByEnterAndExit:
    """A stopwatch without contextlib."""

    def __init__(self, wait, now=time.perf_counter):
        self.wait, self.now, self.seconds = wait, now, defaultdict(list)

    def phase(self, name):
        self.name = name
        return self

    def __enter__(self):
        self.wait()
        self.begin = self.now()

    def __exit__(self, *_):
        self.wait()
        self.seconds[self.name].append(self.now() - self.begin)

    def medians(self, skip=2):
        return {name: statistics.median(values[skip:]) for name, values in self.seconds.items()}


class WithTry(Stopwatch):
    """It also counts a block that fails."""

    @contextmanager
    def phase(self, name):
        times = self.seconds.setdefault(name, [])
        self.wait()
        times.append(-self.now())
        try:
            yield
        finally:
            self.wait()
            times[-1] += self.now()

    def medians(self, skip=2):
        result = {}
        for name, values in self.seconds.items():
            result[name] = float(np.quantile(values[skip:], 0.5))
        return result


def photo(file, *, slip=None):
    """Open a photo, with a mistake by name."""
    image = Image.open(io.BytesIO(file))
    if slip == "grey":
        image = image.convert("L").convert("RGB")
    if slip == "crops":
        image = image.crop((0, 0, 32, 32))
    if slip == "mirrored":
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.array(image.resize((64, 64) if slip == "too large" else (32, 32)), dtype=np.float32)
    if slip == "blue first":
        pixels = pixels[..., ::-1].copy()
    tensor = (
        torch.from_numpy(pixels)
        if slip == "colours last"
        else torch.from_numpy(pixels).permute(2, 0, 1)
    )
    if slip == "array":
        return tensor.numpy()
    if slip == "turned":
        tensor = tensor.transpose(1, 2)
    if slip == "bytes":
        return tensor
    if slip == "from 0 to 1":
        return tensor / 255
    return (tensor / 127.5 - 1).double() if slip == "float64" else tensor / 127.5 - 1


def photo_slip(slip):
    return lambda file: photo(file, slip=slip)


def with_reducing_gap(file):
    with Image.open(io.BytesIO(file)) as image:
        pixels = np.asarray(image.resize((32, 32), reducing_gap=2.0), dtype=np.float32)
    return torch.from_numpy(pixels / 127.5 - 1).permute(2, 0, 1).contiguous()


def with_thumbnail(file):
    image = Image.open(io.BytesIO(file))
    image.thumbnail((128, 128))
    pixels = torch.from_numpy(np.array(image.resize((32, 32))))
    return pixels.permute(2, 0, 1).float().sub(127.5).div(127.5)


def adam(
    weight,
    grad,
    mean,
    square,
    step,
    buffer,
    lr=1e-3,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    *,
    slip=None,
):
    """Adam in place, with a mistake by name."""
    if slip == "hard-coded":
        beta1, beta2 = 0.9, 0.999
    first = 1 if slip == "mean not corrected" else 1 - beta1 ** (step + (slip == "step from 0"))
    second = 1 if slip == "square not corrected" else 1 - beta2**step
    mean.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2)
    if slip == "grad squared in place":
        square.add_(grad.mul_(grad), alpha=1 - beta2)
    else:
        square.addcmul_(grad, grad, value=1 - beta2)
    if slip == "square as buffer":
        buffer = square
    if slip == "adds to the buffer":
        buffer.add_(square)
    else:
        torch.div(square, second, out=buffer)
    inside = slip == "eps inside"
    buffer.add_(eps * inside).sqrt_().add_(eps * (not inside))
    if slip == "mean corrected in place":
        weight.addcdiv_(mean.div_(first), buffer, value=-lr)
    elif slip == "new mean":
        weight.addcdiv_(mean / first, buffer, value=-lr)
    elif slip == "new weight":
        weight = weight - lr * mean / first / buffer
    else:
        weight.addcdiv_(mean, buffer, value=-lr / first)


def adam_slip(slip):
    return lambda *given, **settings: adam(*given, **settings, slip=slip)


def adam_with_new_tensors(
    weight, grad, mean, square, step, buffer, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8
):
    mean.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    weight.addcdiv_(
        mean / (1 - beta1**step), (square / (1 - beta2**step)).sqrt().add(eps), value=-lr
    )


def adam_in_two_halves(
    weight, grad, mean, square, step, buffer, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8
):
    mean.lerp_(grad, 1 - beta1)
    torch.mul(grad, grad, out=buffer)
    square.lerp_(buffer, 1 - beta2)
    torch.sqrt(square, out=buffer)
    buffer.div_(math.sqrt(1 - beta2**step)).add_(eps)
    torch.div(mean, buffer, out=buffer)
    weight.sub_(buffer, alpha=lr / (1 - beta1**step))


def arrived_step_by_step(before, after, phase):
    percent = []
    for number in range(len(before[phase])):
        saved = sum(before[name][number] - after[name][number] for name in before)
        percent.append(100 * saved / (before[phase][number] - after[phase][number]))
    return percent


def arrived_by_other_phases(before, after, phase):
    others = [before[name] - after[name] for name in before if name != phase]
    return 100 + 100 * np.sum(others, axis=0) / (before[phase] - after[phase])


def subtract_in_place(before, after, phase):
    for name in before:
        before[name] -= after[name]
    return 100 * sum(before.values()) / before[phase]


def whole(times):
    return sum(times.values())


SLIPS = (
    "never waits",
    "waits only after the block",
    "waits only before the block",
    "stops before it waits",
    "reads a clock of its own",
    "one dict for all stopwatches",
    "keeps the last time only",
    "adds the times up",
    "gives milliseconds",
    "another default",
    "means",
    "warm-up counted in",
    "skips the last ones",
)
PHOTO_SLIPS = (
    "grey",
    "crops",
    "mirrored",
    "too large",
    "blue first",
    "colours last",
    "array",
    "turned",
    "bytes",
)

WRONG = {
    "adam-in-place": {
        "makes new tensors": adam_with_new_tensors,
        **{
            slip: adam_slip(slip)
            for slip in (
                "hard-coded",
                "mean not corrected",
                "square not corrected",
                "step from 0",
                "grad squared in place",
                "square as buffer",
                "adds to the buffer",
                "eps inside",
                "mean corrected in place",
                "new mean",
                "new weight",
            )
        },
    },
    "Stopwatch": {
        **{slip: stopwatch(slip=slip) for slip in SLIPS},
        "no context manager": WithoutYield,
    },
    "quick-photo": {slip: photo_slip(slip) for slip in (*PHOTO_SLIPS, "from 0 to 1", "float64")},
    "arrived": {
        "upside down": lambda before, after, phase: (
            100 * (before[phase] - after[phase]) / (whole(before) - whole(after))
        ),
        "a fraction": lambda before, after, phase: (
            (whole(before) - whole(after)) / (before[phase] - after[phase])
        ),
        "one number": lambda before, after, phase: np.mean(
            100 * (whole(before) - whole(after)) / (before[phase] - after[phase])
        ),
        "the phase over the whole": lambda before, after, phase: (
            100 * (before[phase] - after[phase]) / whole(before)
        ),
        "without the other phases": lambda before, after, phase: 100 * np.ones(len(before[phase])),
        "losses count as none": lambda before, after, phase: (
            100
            * sum(np.maximum(before[name] - after[name], 0) for name in before)
            / (before[phase] - after[phase])
        ),
        "changes what it was given": subtract_in_place,
    },
    "speedup-of-the-whole": {
        "forgets the rest": lambda share, factor: factor,
        "adds speeds instead of times": lambda share, factor: 1 - share + share * factor,
        "gives the time, not the speed": lambda share, factor: 1 - share + share / factor,
        "makes the part free": lambda share, factor: 1 / (1 - share) if share < 1 else factor,
        "takes whole factors only": lambda share, factor: (
            1 / (1 - share + share / (int(factor) or factor))
        ),
        "never becomes slower": lambda share, factor: max(1.0, 1 / (1 - share + share / factor)),
    },
}

RIGHT = {
    "adam-in-place": {"by div and out": adam, "in two halves": adam_in_two_halves},
    "Stopwatch": {"by __enter__ and __exit__": ByEnterAndExit, "with try and finally": WithTry},
    "quick-photo": {
        "by reducing_gap": with_reducing_gap,
        "by thumbnail": with_thumbnail,
        "the reference by another name": lambda file: quick_photo(bytes(file)),
    },
    "arrived": {
        "step by step": arrived_step_by_step,
        "by the other phases": arrived_by_other_phases,
    },
    "speedup-of-the-whole": {
        "in one fraction": lambda share, factor: factor / (factor * (1 - share) + share),
        "by the time that is left": lambda share, factor: (1 - share * (1 - 1 / factor)) ** -1,
    },
}
