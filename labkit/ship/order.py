"""The order, as a customer writes it, what is handed in for it, and the images it is judged on.

    Classify these pictures of clothes: ten classes, grey, 28 x 28. We will ask one picture at a time, on our machine,
    and pictures that nobody has seen. Be right often enough, answer fast enough, and send one small file.

"Fast enough" is a share of what the reference network (`vgg-medium` in fp32, as it comes trained with the course) takes
on the same machine, so that the order is the same everywhere.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from labkit.errors import LabError
from labkit.files import artifacts

DATASET, REFERENCE = "fashion-mnist", "vgg-medium"
CLASSES, SHAPE = 10, (1, 28, 28)
USD_PER_HOUR = 0.10  # of a machine with two cores; states the cost, decides nothing
SHIFT, NOISE = 1, 8  # of a changed copy: pixels, and the deviation of what is added (of 255)
MOVES = [(down, right) for down in (0, 1, 2) for right in (0, 1, 2) if (down, right) != (1, 1)]  # that moves nothing
LARGEST = 2**24  # bytes of what is handed in; the reference network takes six million
NAME_LENGTH = 60


@dataclass(frozen=True)
class Level:
    """What a medal takes.

    accuracy    least share of the changed copies that are answered right, 0 to 1
    latency     most that p95 may be, as a share of the reference network's
    size_bytes  most bytes of the file
    """

    name: str
    accuracy: float
    latency: float
    size_bytes: int

    def misses(self, accuracy, latency, size_bytes):
        """Reasons why these figures do not earn it: an empty list when they do."""
        found = []
        if accuracy < self.accuracy:
            found.append(
                f"{100 * accuracy:.1f} % of the changed copies right, {self.name} asks for {100 * self.accuracy:g} %"
            )
        if latency > self.latency:
            found.append(f"p95 is {latency:.2f} of the reference's, {self.name} allows {self.latency:g}")
        if size_bytes > self.size_bytes:
            found.append(f"{size_bytes / 1e3:,.0f} kB, {self.name} allows {self.size_bytes / 1e3:,.0f} kB")
        return found


LEVELS = (
    Level("gold", 0.87, 0.60, 100_000),  # ten bytes per test image: no room to remember them
    Level("silver", 0.84, 0.80, 500_000),
    Level("bronze", 0.80, 0.90, 2_000_000),
)


def medal_of(accuracy: Any, latency: Any, size_bytes: Any) -> str | None:
    """The name of the best of `LEVELS` that these figures earn, or None."""
    return next((each.name for each in LEVELS if not each.misses(accuracy, latency, size_bytes)), None)


@dataclass(frozen=True)
class Submission:
    """One thing to score: data, and never code. LabError where the path is that of no ONNX file.

    path    an ONNX file of at most `LARGEST` bytes
    engine  one of `labkit.engines.names(runs="onnx")`
    name    of who or what it is, for the leaderboard; the file's own name when none is given
    """

    path: Path
    engine: str = "onnxruntime"
    name: str = ""

    def __post_init__(self):
        path = Path(self.path)
        if path.suffix != ".onnx" or not path.is_file() or path.stat().st_size > LARGEST:
            expected = f"an .onnx file of at most {LARGEST / 1e6:.0f} MB"
            raise LabError("There is nothing to score.", expected=expected, found=str(path)[:200])

    @property
    def title(self):
        """The name as it stands on the leaderboard."""
        return plain(self.name or Path(self.path).stem)


def plain(text):
    """Any text as one line of at most 60 printable characters."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(text)[: 10 * NAME_LENGTH])
    return " ".join(text.split())[:NAME_LENGTH].strip() or "nameless"


def file_of(digest: str) -> Path:
    """Where the file of a submission is stored that was scored here, by its sha256."""
    return artifacts() / "ship" / f"{digest}.onnx"


@dataclass(frozen=True)
class ExamSize:
    """How much a scoring asks: pictures (each also as a changed copy), and rounds in which one picture is timed."""

    images: int
    rounds: int


QUICK, FULL = ExamSize(images=500, rounds=200), ExamSize(images=5_000, rounds=800)


@dataclass(frozen=True)
class Exam:
    """The pictures of one scoring, in the order in which they are asked.

    pictures  float32 (2 n, 1, 28, 28), normalised as in training: originals and changed copies, mixed
    labels    int64 (2 n,)
    order     int64 (2 n,): which of them a picture is, of the n originals and, after these, their changed copies
    """

    pictures: object
    labels: object
    order: object

    def right(self, answers):
        """(2 n, 10) answers -> (2 n,) bool: which of them are right."""
        return answers.argmax(axis=1) == self.labels

    def forms(self, values):
        """What belongs to each picture, (2 n,), as (that of the n originals, that of their n copies), by origin."""
        return np.split(values[np.argsort(self.order)], 2)


def draw_exam(count: int, seed: int) -> Exam:
    """An `Exam` of `count` test images, each as it is and changed; another seed draws other images and changes.

    A copy is moved by up to a pixel along each side (never by none) and has a little noise: so little that a network
    which looks at the picture hardly notices, and one that knows the file of test images by heart does.
    """
    import torch

    from labkit.data import load

    test = load(DATASET, "test")
    chance = torch.Generator().manual_seed(seed)
    drawn = test.take(torch.randperm(len(test), generator=chance)[:count])
    copies = _changed(drawn.images, chance)
    both = replace(drawn, images=torch.cat([drawn.images, copies]), labels=drawn.labels.repeat(2))
    [(pictures, labels)] = both.batches(2 * count)
    order = torch.randperm(2 * count, generator=chance)
    return Exam(pictures[order].numpy(), labels[order].numpy(), order.numpy())


def _changed(images, chance):
    """Copies of uint8 images (n, 1, 28, 28), each moved by one of `MOVES` and with noise."""
    import torch

    from labkit.data import crop

    count = len(images)
    moves = torch.tensor(MOVES)[torch.randint(len(MOVES), (count,), generator=chance)]
    moved = crop(images, *moves.T, torch.zeros(count, dtype=torch.bool), border=(SHIFT, SHIFT))
    noisy = moved + NOISE * torch.randn(images.shape, generator=chance)
    return noisy.round().clamp(0, 255).to(torch.uint8)
