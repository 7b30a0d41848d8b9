"""Networks of the kinds that are not one picture, one class: more rows of `quantization.py`,
trained here in a minute.

two-outputs  a class, and where the middle of the clothes lies
unet         a class for each pixel: skip connections, transposed convolutions
detector     a grid of cells, each with a class and a box
decoder      the course's small decoder, which comes trained, with its cache as inputs and outputs
"""

import numpy as np
import torch
from decoding import to_onnx_with_cache
from quantization_networks import JUDGED, SEEN, TESTED, Case
from torch import nn
from torch.nn import functional as F

from labkit import export
from labkit.data import load
from labkit.models.trained import trained
from labkit.quantize import Calibration

EPOCHS = 2
CELLS, SIDE, SMALL = 4, 56, 20  # a grid of 4 x 4 cells on 56 pixels; clothes of 20 pixels
PAST, TEXTS = 32, 32  # tokens in the cache; texts in a batch


def conv(inner, outer, **more):
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1, **more), nn.BatchNorm2d(outer), nn.ReLU()
    )


class TwoOutputs(nn.Module):
    """(N, 1, 28, 28) -> (N, 10) classes, (N, 2) the middle."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            conv(1, 16), nn.MaxPool2d(2), conv(16, 32), nn.MaxPool2d(2), conv(32, 64)
        )
        self.head, self.middle = nn.Linear(64, 10), nn.Linear(64 * 49, 2)

    def forward(self, x):
        x = self.body(x)
        return self.head(x.mean((2, 3))), self.middle(x.flatten(1))


class UNet(nn.Module):
    """(N, 1, 28, 28) -> (N, 11, 28, 28) classes of the pixels; 0 is the ground."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([conv(1, 16), conv(16, 32), conv(32, 64)])
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(64, 32, 2, stride=2), nn.ConvTranspose2d(32, 16, 2, stride=2)]
        )
        self.join = nn.ModuleList([conv(64, 32), conv(32, 16)])
        self.head = nn.Conv2d(16, 11, 1)

    def forward(self, x):
        kept = []
        for place, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if place else x)
            kept.append(x)
        for up, join, skipped in zip(self.up, self.join, kept[1::-1], strict=True):
            x = join(torch.cat([up(x), skipped], 1))
        return self.head(x)


class Detector(nn.Module):
    """(N, 1, 56, 56) -> (N, 16, 11) classes of the cells, 0 is nothing; (N, 16, 4) middle and
    size of their boxes.
    """

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            conv(1, 16, stride=2), conv(16, 32, stride=2), conv(32, 64, stride=2)
        )
        self.cells, self.head = (
            nn.Sequential(nn.Conv2d(64, 96, 4), nn.BatchNorm2d(96), nn.ReLU()),
            nn.Conv2d(96, 15, 1),
        )

    def forward(self, x):
        found = self.head(self.cells(self.body(x))).flatten(2).transpose(1, 2)
        return found[:, :, :11], found[:, :, 11:].sigmoid()


def pictures(split, count):
    """(float images (count, 1, 28, 28) from 0 to 1, labels)"""
    images = load("fashion-mnist", split, limit=count)
    return images.images.float() / 255, images.labels


def with_middle(images, labels):
    """(images, labels, where the middle of the bright pixels lies, -1 to 1)"""
    places = torch.linspace(-1, 1, 28)
    total = images.sum((1, 2, 3))
    middle = [(images.sum(dim)[:, 0] * places).sum(1) / total for dim in (2, 3)]
    return images - 0.3, labels, torch.stack(middle, 1)


def by_pixel(images, labels):
    """(images, the class of each pixel)"""
    return images - 0.3, torch.where(images[:, 0] > 0.1, 1 + labels[:, None, None], 0)


def in_cells(images, labels):
    """(pictures of a third as many scenes of three clothes, class of each cell, box of each
    cell)
    """
    dice, count = torch.Generator().manual_seed(0), len(images) // 3
    small = F.interpolate(images, size=SMALL, mode="bilinear")
    scenes, wide = torch.zeros(count, 1, SIDE, SIDE), SIDE // CELLS
    classes, boxes = (
        torch.zeros(count, CELLS**2, dtype=torch.int64),
        torch.zeros(count, CELLS**2, 4),
    )
    for place in range(3 * count):
        scene, corner = place % count, torch.randint(SIDE - SMALL + 1, (2,), generator=dice)
        middle = corner + SMALL // 2
        cell = int(middle[0] // wide * CELLS + middle[1] // wide)
        if classes[scene, cell]:  # taken
            continue
        part = scenes[scene, 0, corner[0] : corner[0] + SMALL, corner[1] : corner[1] + SMALL]
        part.copy_(torch.maximum(part, small[place, 0]))
        classes[scene, cell] = 1 + labels[place]
        boxes[scene, cell] = torch.tensor([*(middle % wide / wide), SMALL / SIDE, SMALL / SIDE])
    return scenes - 0.3, classes, boxes


def fitted(network, images, labels, further=None):
    """Train for a few epochs: the cross-entropy of the first output (classes along `axis`), and
    the rest by squares.
    """
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    steps = EPOCHS * (len(images) // 32)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    dice = torch.Generator().manual_seed(0)
    for _ in range(EPOCHS):
        for part in torch.randperm(len(images), generator=dice).split(32)[: steps // EPOCHS]:
            first, *others = (
                found if isinstance(found := network(images[part]), tuple) else (found,)
            )
            classes = first.flatten(0, 1) if first.ndim == 3 else first
            loss = F.cross_entropy(
                classes, labels[part].flatten() if first.ndim == 3 else labels[part]
            )
            for other in others:
                known = labels[part].flatten() > 0 if first.ndim == 3 else slice(None)
                loss = loss + F.mse_loss(
                    other.flatten(0, -2)[known], further[part].flatten(0, -2)[known]
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def shared_out(images, labels):
    """Three `Calibration`s of test pictures that share none: to observe, to judge, to test."""
    parts = np.cumsum([SEEN, min(JUDGED, len(images) // 3)])
    found = zip(np.split(images.numpy(), parts), np.split(labels.numpy(), parts), strict=True)
    return [
        Calibration(tuple(x[at : at + 32] for at in range(0, len(x), 32)), "fashion-mnist test", y)
        for x, y in found
    ]


MADE = {  # {name: (network, pictures to learn from, what is made of them, axis of the classes)}
    "two-outputs": (TwoOutputs, 6000, with_middle, 1),
    "unet": (UNet, 3000, by_pixel, 1),
    "detector": (Detector, 18_000, in_cells, 2),
}


def foreign(name, folder, quick):
    """One of `MADE` as a `Case`."""
    make, count, prepare, axis = MADE[name]
    torch.manual_seed(0)
    network = fitted(make(), *prepare(*pictures("train", count // 10 if quick else count)))
    images, labels, *_ = prepare(*pictures("test", 9000))
    path = export.to_onnx(network, images[:2], folder / "fp32.onnx")
    return Case(name, path, *shared_out(images, labels), axis=axis)


def decoder(name, folder, quick):
    """The decoder, asked for one more byte of a text whose beginning is in its cache."""
    network = trained("decoder-small")[0]
    path = to_onnx_with_cache(network, folder / "fp32.onnx")
    texts = [
        load("course-text", split).text.long().unfold(0, PAST + 2, 17)
        for split in ("train", "test")
    ]
    opened = export.session(path)
    nothing = np.zeros((len(network.layers), TEXTS, network.groups, 0, network.size), np.float32)

    def steps(rows):
        rows = rows[: len(rows) // TEXTS * TEXTS].numpy()
        batches = []
        for part in np.split(rows, len(rows) // TEXTS):
            _, keys, values = opened.run(
                None, {"tokens": part[:, :PAST], "keys": nothing, "values": nothing}
            )
            batches.append({"tokens": part[:, PAST : PAST + 1], "keys": keys, "values": values})
        return Calibration(tuple(batches), "course-text", rows[:, PAST + 1 :])

    held = texts[1][torch.randperm(len(texts[1]), generator=torch.Generator().manual_seed(0))][
        : JUDGED + TESTED
    ]
    return Case(
        name,
        path,
        steps(texts[0][:SEEN]),
        steps(held[: len(held) // 3]),
        steps(held[len(held) // 3 :]),
        axis=2,
    )


CASES = dict.fromkeys(MADE, foreign) | {"decoder": decoder}
