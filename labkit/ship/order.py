"""The order, as a customer writes it, and the images it is judged on.

    Classify these pictures of clothes: ten classes, grey, 28 x 28. We will ask one picture at a time, on our machine,
    and pictures that nobody has seen. Be right often enough, answer fast enough, and send one small file.

"Fast enough" is a share of what the reference network (`vgg-medium` in fp32, as it comes trained with the course) takes
on the same machine, so that the order is the same everywhere.
"""

from dataclasses import dataclass, replace

import numpy as np

DATASET, REFERENCE = "fashion-mnist", "vgg-medium"
CLASSES, SHAPE = 10, (1, 28, 28)
USD_PER_HOUR = 0.10  # of a machine with two cores; states the cost, decides nothing
SHIFT, NOISE = 1, 8  # of a changed copy: pixels, and the deviation of what is added (of 255)


@dataclass(frozen=True)
class Level:
    """What a medal takes.

    accuracy    least share of the changed copies that are answered right, 0 to 1
    latency     most that p95 may be, as a share of the reference network's
    size_bytes  most bytes of all that is sent
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
    Level("gold", 0.87, 0.60, 200_000),
    Level("silver", 0.84, 0.80, 500_000),
    Level("bronze", 0.80, 0.90, 2_000_000),
)


def medal_of(accuracy, latency, size_bytes):
    """The name of the best of `LEVELS` that these figures earn, or None."""
    return next((each.name for each in LEVELS if not each.misses(accuracy, latency, size_bytes)), None)


@dataclass(frozen=True)
class Plan:
    """How much a scoring asks: pictures (each also as a changed copy), and rounds in which one picture is timed."""

    images: int
    rounds: int


QUICK, FULL = Plan(images=500, rounds=200), Plan(images=5_000, rounds=800)


@dataclass(frozen=True)
class Exam:
    """The pictures of one scoring, in the order in which they are asked.

    pictures  float32 (2 n, 1, 28, 28), normalised as in training: originals and changed copies, mixed
    labels    int64 (2 n,)
    origin    int64 (2 n,): which of the n originals a picture comes from
    changed   bool (2 n,): whether it is a changed copy
    """

    pictures: object
    labels: object
    origin: object
    changed: object

    def forms(self, values):
        """What belongs to each picture, (2 n,), as (that of the n originals, that of their n copies), by origin."""
        order = np.argsort(self.origin + len(values) * self.changed)
        return np.split(values[order], 2)


def draw_exam(count, seed):
    """An `Exam` of `count` test images, each as it is and changed; another seed draws other images and changes.

    A copy is moved by up to a pixel along each side (never by none) and has a little noise: so little that a network
    which looks at the picture hardly notices, and one that knows the file of test images by heart does.
    """
    import torch
    from torch.nn.functional import pad

    from labkit.data import load

    test, chance = load(DATASET, "test"), torch.Generator().manual_seed(seed)
    drawn = test.take(torch.randperm(len(test), generator=chance)[:count])
    places = torch.randint(0, 8, (count,), generator=chance)
    places += places >= 4  # 0 to 8 without 4, the place that moves nothing
    wide, (_, height, width) = pad(drawn.images, (SHIFT,) * 4), SHAPE
    corners = zip(wide, (places // 3).tolist(), (places % 3).tolist(), strict=True)
    moved = torch.stack([image[:, down : down + height, right : right + width] for image, down, right in corners])
    noisy = (moved + NOISE * torch.randn(moved.shape, generator=chance)).round().clamp(0, 255).to(torch.uint8)
    both = replace(drawn, images=torch.cat([drawn.images, noisy]), labels=drawn.labels.repeat(2))
    [(pictures, labels)] = both.batches(2 * count)
    order = torch.randperm(2 * count, generator=chance)
    return Exam(pictures[order].numpy(), labels[order].numpy(), (order % count).numpy(),
                (order >= count).numpy())  # fmt: skip
