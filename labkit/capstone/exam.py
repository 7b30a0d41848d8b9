"""Draws the exam of the last lesson: test pictures, each as it is and as a changed copy.

A copy is moved by at most a pixel along each side, and has a little noise. Moving and noise hardly
change the answer of a network that looks at the picture. But a file that has stored the published
test images and their labels does not recognize the copy.
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
    """How much an exam asks.

    images  number of test images; each is asked as a changed copy, too
    rounds  number of pictures that are asked one per call, with the clock running
    """

    images: int
    rounds: int


QUICK = ExamSize(images=500, rounds=200)
FULL = ExamSize(images=5_000, rounds=800)


@dataclass(frozen=True)
class Exam:
    """The pictures of one scoring, in the order in which they are asked.

    pictures  float32 (2 n, 1, 28, 28), normalised as in training: n originals and their n changed
              copies, shuffled
    labels    int64 (2 n,)
    order     int64 (2 n,), says what each picture is: a number i below n is original i, and n + i
              is the changed copy of original i
    """

    pictures: Any
    labels: Any
    order: Any

    def right(self, answers):
        """Return a bool array (2 n,): True where an answer is right.

        answers  (2 n, 10) answers to the pictures, in their order
        """
        return answers.argmax(axis=1) == self.labels

    def forms(self, values):
        """Split values of all pictures, (2 n,), into [values of originals, values of copies].

        Both are (n,): the values at i belong to original i and to its copy.
        """
        return np.split(values[np.argsort(self.order)], 2)


def draw_exam(count: int, seed: int) -> Exam:
    """Draw an `Exam` of `count` test images and a changed copy of each.

    A copy is moved by one pixel along at least one side, and has a little noise.

    seed  decides which images are drawn, how they are changed, and the order
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
    """Return a changed copy of each image, uint8 (n, 1, 28, 28), moved by a pixel and with noise.

    images  uint8 (n, 1, 28, 28)
    """
    import torch

    from labkit.data import crop

    count = len(images)
    moves = torch.tensor(MOVES)[torch.randint(len(MOVES), (count,), generator=generator)]
    moved = crop(images, *moves.T, torch.zeros(count, dtype=torch.bool), border=(SHIFT, SHIFT))
    noisy = moved + NOISE * torch.randn(images.shape, generator=generator)
    return noisy.round().clamp(0, 255).to(torch.uint8)
