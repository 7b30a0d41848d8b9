"""A small made-up task that a small network learns within a few steps."""

import torch
from torch import nn

from labkit.data import ImageSet


def shapes(count=120, side=8, seed=0):
    """`count` grey images of 4 classes: which quarter is bright."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 4
    images = torch.randint(0, 100, (count, 1, side, side), dtype=torch.uint8, generator=random)
    half = side // 2
    for index, label in enumerate(labels.tolist()):
        row, column = half * (label // 2), half * (label % 2)
        images[index, :, row : row + half, column : column + half] += 150
    about = {"classes": ("a", "b", "c", "d"), "name": "shapes", "split": "train", "digest": "0"}
    return ImageSet(images=images, labels=labels, mean=(0.35,), std=(0.25,), **about)


def network(seed=0, *, dropout=0.0):
    """A convolution, batch norm, and a linear layer."""
    torch.manual_seed(seed)
    return nn.Sequential(
        # a bias before batch norm has no gradient but noise
        nn.Conv2d(1, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 4),
    )


def weights(model):
    """All weights and buffers as one vector."""
    return torch.cat([tensor.detach().double().flatten() for tensor in model.state_dict().values()])
