"""The exam of the last lesson: test pictures drawn anew, each as it is and as a changed copy.

A copy is moved a little and has a little noise: a network that looks at the picture answers as
before, one that knows the file of test images by heart does not.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labkit.capstone.order import DATASET

SHIFT = 1  # pixels that a changed copy is moved by, at most
NOISE = 8  # deviation of the noise in a changed copy, of 255
# (1, 1) moves nothing
MOVES = [(down, right) for down in (0, 1, 2) for right in (0, 1, 2) if (down, right) != (1, 1)]


@dataclass(frozen=True)
class ExamSize:
    """How much a scoring asks: pictures (each also as a changed copy), and rounds in which one
    picture is timed.
    """

    images: int
    rounds: int


QUICK = ExamSize(images=500, rounds=200)
FULL = ExamSize(images=5_000, rounds=800)


@dataclass(frozen=True)
class Exam:
    """The pictures of one scoring, in the order in which they are asked.

    pictures  float32 (2 n, 1, 28, 28), normalised as in training: originals and changed copies,
              mixed
    labels    int64 (2 n,)
    order     int64 (2 n,): which of them a picture is, of the n originals and, after these, their
              changed copies
    """

    pictures: Any
    labels: Any
    order: Any

    def right(self, answers):
        """Return (2 n,) bool for answers (2 n, 10): True where an answer is right."""
        return answers.argmax(axis=1) == self.labels

    def forms(self, values):
        """Split values of all pictures, (2 n,), into (those of the n originals, those of their n
        copies), by origin.
        """
        return np.split(values[np.argsort(self.order)], 2)


def draw_exam(count: int, seed: int) -> Exam:
    """Return an `Exam` of `count` test images, each as it is and changed; another seed draws
    others.

    A copy is moved by up to a pixel along each side (never by none) and has a little noise: so
    little that a network which looks at the picture hardly notices, and one that knows the file of
    test images by heart does.
    """
    import torch

    from labkit.data import load

    test = load(DATASET, "test")
    generator = torch.Generator().manual_seed(seed)
    drawn = test.take(torch.randperm(len(test), generator=generator)[:count])
    copies = _changed(drawn.images, generator)
    originals_and_copies = replace(
        drawn, images=torch.cat([drawn.images, copies]), labels=drawn.labels.repeat(2)
    )
    [(pictures, labels)] = originals_and_copies.batches(2 * count)
    order = torch.randperm(2 * count, generator=generator)
    return Exam(pictures[order].numpy(), labels[order].numpy(), order.numpy())


def _changed(images, generator):
    """Return copies of uint8 images (n, 1, 28, 28), each moved by one of `MOVES` and with noise."""
    import torch

    from labkit.data import crop

    count = len(images)
    moves = torch.tensor(MOVES)[torch.randint(len(MOVES), (count,), generator=generator)]
    moved = crop(images, *moves.T, torch.zeros(count, dtype=torch.bool), border=(SHIFT, SHIFT))
    noisy = moved + NOISE * torch.randn(images.shape, generator=generator)
    return noisy.round().clamp(0, 255).to(torch.uint8)
