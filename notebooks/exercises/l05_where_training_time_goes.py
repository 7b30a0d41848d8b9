"""Exercises of lesson 05: a stopwatch, what a faster part is worth, quick photos, Adam in place,
a control.
"""

import io
import time
from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten
from labkit.measure import SimulatedMachine

# on the simulated device
TRUE_S = {"data": 5e-3, "forward": 20e-3, "backward": 40e-3, "optimizer": 15e-3}
GROWTH = (4.0, 1.0, 1.5, 1.1, 1.2)  # of these times in the steps, the first of which is a warm-up
SIDE = 32  # pixels of a photo that the network sees


class Stopwatch:
    def __init__(self, wait, now=time.perf_counter):
        self.wait, self.now = wait, now
        self.seconds = {}  # {phase: [seconds of each time]}

    @contextmanager
    def phase(self, name):
        self.wait()
        begin = self.now()
        yield
        self.wait()
        self.seconds.setdefault(name, []).append(self.now() - begin)

    def medians(self, skip=2):
        return {name: np.median(values[skip:]) for name, values in self.seconds.items()}


def verify_stopwatch(answer):
    machine = SimulatedMachine(jitter=0, launch=50e-6)
    watch, other = (
        answer(machine.synchronize, machine.now),
        answer(machine.synchronize, machine.now),
    )
    machine.work(0.2)()  # what an earlier step left in the queue
    for factor in GROWTH:
        for name, seconds in TRUE_S.items():
            work = machine.work(factor * seconds)
            entered = watch.phase(name)
            expect(
                hasattr(entered, "__enter__"),
                "`with watch.phase(...)` needs `yield` where the block's code runs.",
            )
            with entered:
                work()
        machine.work(0.05)()  # outside of every phase, as a checkpoint would be
    _expect_seconds(watch.seconds)
    expect(
        not other.seconds,
        "A second stopwatch holds the seconds of the first: `self.seconds` is for each its own.",
    )
    for skip, factor in {2: 1.2, 1: 1.15, 3: 1.15}.items():
        _expect_medians(watch.medians(skip), skip, factor)
    _expect_medians(watch.medians(), 2, 1.2)


def _expect_seconds(seconds):
    """The seconds of all phases in all steps must be those of the device."""
    is_one = isinstance(seconds, dict) and list(seconds) == list(TRUE_S)
    expect(
        is_one,
        f"Expected `seconds` with a list for each of {list(TRUE_S)}, found {shorten(seconds)}.",
    )
    for name, true_s in TRUE_S.items():
        values = seconds[name]
        count = len(values) if isinstance(values, list) else None
        expect(
            count == len(GROWTH),
            f"{len(GROWTH)} times of {name} were timed; `seconds` holds {shorten(values)}.",
        )
        for number, (value, factor) in enumerate(zip(values, GROWTH, strict=True)):
            earlier = " (earlier work was still in the queue)" if name == "data" else ""
            expect_close(
                value,
                factor * true_s,
                f"Seconds of {name} in step {number}{earlier}",
                tolerance=0.03,
            )


def _expect_medians(medians, skip, factor):
    """Medians without the first `skip` steps."""
    is_one = isinstance(medians, dict) and set(medians) == set(TRUE_S)
    expect(
        is_one, f"medians({skip}): expected a dict with {list(TRUE_S)}, found {shorten(medians)}."
    )
    for name, true_s in TRUE_S.items():
        expect_close(medians[name], factor * true_s, f"medians({skip}) of {name}", tolerance=0.03)


def speedup_of_the_whole(share, factor):
    return 1 / (1 - share + share / factor)


def verify_speedup(answer):
    cases = {
        (0.5, 2): 4 / 3,
        (0.36, 1): 1.0,
        (1.0, 7): 7.0,
        (0.0, 100): 1.0,
        (0.36, 4): 1 / 0.73,
        (0.9, 10): 1 / 0.19,
    }
    cases |= {(0.37, 2.5): 1 / 0.778, (0.3, 0.75): 1 / 1.1}  # a factor below 1 is slower
    for (share, factor), wanted in cases.items():
        expect_close(answer(share, factor), wanted, f"speedup_of_the_whole({share}, {factor})")


def quick_photo(file):
    photo = Image.open(io.BytesIO(file))
    photo.draft("RGB", (64, 64))
    pixels = np.array(photo.resize((32, 32)), dtype=np.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1) / 127.5 - 1


def verify_quick_photo(answer):
    random = np.random.default_rng(0)
    for height, width in ((512, 512), (256, 512), (200, 150)):
        coarse = random.integers(0, 256, (5, 5, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(
            file, "JPEG", quality=90
        )
        wanted = _slow_photo(file.getvalue())
        photo = answer(file.getvalue())
        expect(
            isinstance(photo, torch.Tensor),
            f"Expected a torch tensor, found {type(photo).__name__}.",
        )
        expect(
            photo.shape == wanted.shape,
            f"Expected shape {tuple(wanted.shape)}, found {tuple(photo.shape)}.",
        )
        expect(photo.dtype == torch.float32, f"Expected float32, found {photo.dtype}.")
        expect_alike(photo, wanted, f"a photo of {height} x {width} pixels")


def expect_alike(photo, wanted, name):
    """Pixels may differ by a hundredth of their range on average, for a smaller photo is no
    exact one.
    """
    off = float((photo - wanted).abs().mean())
    if not off < 0.02:  # also nan
        raise Wrong(
            f"In {name} your pixels, from -1 to 1, differ by {off:.3f} on average from those of "
            "`load_photo`; up to "
            "0.02 is allowed. Same size, same order of the colours, same range?"
        )


def _slow_photo(file):
    """A photo as the lesson opens it at first."""
    pixels = np.array(Image.open(io.BytesIO(file)).resize((SIDE, SIDE)), dtype=np.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1) / 127.5 - 1


def adam_in_place(
    weight, grad, mean, square, step, buffer, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8
):
    mean.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    buffer.copy_(square).div_(1 - beta2**step).sqrt_().add_(eps)
    weight.addcdiv_(mean, buffer, value=-lr / (1 - beta1**step))


def verify_adam_in_place(answer):
    from labkit.measure import memory

    random = torch.Generator().manual_seed(0)
    cases = (
        ((3, 5), 1, {}),
        ((7,), 4, {"lr": 0.03, "beta1": 0.7, "beta2": 0.95}),
        ((2, 3, 4), 2, {"lr": 2, "eps": 0.5}),
    )
    for shape, step, settings in cases:
        given = [torch.rand(shape, generator=random) + 0.1 for _ in range(4)]
        wanted = [each.clone() for each in given]
        adam_in_place(*wanted, step, torch.empty(shape), **settings)
        # the buffer may hold anything
        answer(*given, step, torch.full(shape, torch.nan), **settings)
        case = f"of shape {shape} after step {step}" + "".join(
            f", {name} {each}" for name, each in settings.items()
        )
        for name, mine, right in zip(
            ("weight", "grad", "mean", "square"), given, wanted, strict=True
        ):
            off = float((mine - right).abs().max())
            expect(
                off < 1e-5,
                f"{name} {case} is {off:.2g} from where it should be (the buffer "
                "came full of nan).",
            )
        buffer = torch.zeros(shape)
        made = memory(
            lambda given=given, step=step, buffer=buffer: answer(*given, step, buffer)
        ).tensor_bytes
        expect(
            made < buffer.nbytes,
            f"The update of {buffer.nbytes} B makes {made} B of new tensors. Which line does?",
        )


def arrived(before, after, phase):
    saved = before[phase] - after[phase]
    whole = sum(before.values()) - sum(after.values())
    return 100 * whole / saved


def verify_arrived(answer):
    before = {
        "data": np.array([200.0, 210.0]),
        "forward": np.array([60.0, 60.0]),
        "update": np.array([40.0, 50.0]),
    }
    after = {
        "data": np.array([40.0, 50.0]),
        "forward": np.array([60.0, 100.0]),
        "update": np.array([40.0, 50.0]),
    }
    given = {name: values.copy() for name, values in before.items()}
    _expect_percent(
        answer(given, after, "data"), [100.0, 75.0], "data falls by 160, forward rises by 0 and 40"
    )
    expect(
        all((given[name] == before[name]).all() for name in before),
        "Your function changes `before`.",
    )
    slower = {
        **before,
        "forward": before["forward"] - [30.0, 20.0],
        "update": before["update"] + [15.0, -20.0],
    }
    _expect_percent(
        answer(before, slower, "forward"),
        [50.0, 200.0],
        "forward saves 30 and 20, update -15 and 20",
    )


def _expect_percent(percent, wanted, case):
    """One percentage per round."""
    try:
        percent = np.asarray(percent, dtype=float)
    except (TypeError, ValueError):
        raise Wrong(f"Expected one percentage per round, found {shorten(percent)}.") from None
    expect(
        percent.shape == (2,),
        f"Expected one percentage per round, (2,), found shape {percent.shape}.",
    )
    for number, (mine, right) in enumerate(zip(percent, wanted, strict=True)):
        expect_close(mine, right, f"Percent in round {number} ({case})", tolerance=1e-6)


EXERCISES = (
    Exercise(
        id="Stopwatch",
        task="Write a stopwatch for the phases of a program whose device works through a queue.",
        difficulty=2,
        importance=3,
        minutes=10,
        hint="What stands before `yield` runs before the block, what stands after it runs after. "
        "The clock may start "
        "only when the queue is empty, and stop only when it is empty again.",
        imports="import time\nfrom contextlib import contextmanager\n\nimport numpy as np",
        reference=Stopwatch,
        verify=verify_stopwatch,
    ),
    Exercise(
        id="speedup-of-the-whole",
        task="Write how many times as fast the whole becomes when a part of it does.",
        difficulty=1,
        importance=3,
        minutes=5,
        hint="Let the whole take 1. How long does the part take afterwards, and how long the rest?",
        reference=speedup_of_the_whole,
        verify=verify_speedup,
    ),
    Exercise(
        id="quick-photo",
        task="Open a large photo for a small network in less time.",
        difficulty=2,
        minutes=8,
        hint='Call `photo.draft("RGB", (64, 64))` after `Image.open` and before anything reads '
        "the pixels; or give "
        "`resize` a `reducing_gap`. The rest stays as in `load_photo`.",
        imports="import io\n\nimport numpy as np\nimport torch\nfrom PIL import Image",
        judged_by="the bars of section 7",
        reference=quick_photo,
        verify=verify_quick_photo,
    ),
    Exercise(
        id="adam-in-place",
        task="Write Adam's update of one tensor so that it makes no new tensor of its size.",
        difficulty=2,
        minutes=12,
        hint="Operations that end in _ write into their tensor: sqrt_(), add_(eps). First bring "
        "the square into the "
        "buffer: copy_, or torch.div(..., out=buffer). A number that divides the mean can go into "
        "addcdiv_'s value.",
        reference=adam_in_place,
        verify=verify_adam_in_place,
    ),
    Exercise(
        id="arrived",
        task="Write what part of the time that a phase saves arrives in the whole step.",
        difficulty=2,
        minutes=5,
        hint="Two differences: that of the phase alone, and that of the sums over all phases.",
        reference=arrived,
        verify=verify_arrived,
    ),
)
