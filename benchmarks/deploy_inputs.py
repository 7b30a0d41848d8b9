"""Inputs of every network: those its INT8 ranges are observed on, and others it is judged on.

Small networks get Fashion-MNIST. Networks for ImageNet get crops of the one photograph that comes
with matplotlib: it tells a broken file from a sound one, and nothing of accuracy. The encoder,
untrained, gets random tokens.
"""

import numpy as np
import torch
from matplotlib import cbook
from PIL import Image

from labkit import models, quantize
from labkit.data import load

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation of its pixels
# what other networks were trained with
SCALES = {"efficientnet-lite0": ((127 / 255,) * 3, (128 / 255,) * 3)}
SEEN, HELD_OUT = 64, 32


def calibration(name):
    """A `Calibration` of 64 inputs."""
    return quantize.Calibration((inputs(name, "train", SEEN),), "benchmark inputs")


def held_out(name):
    """Other inputs of the same kind, as batches of 1, 7 and 24."""
    return torch.from_numpy(inputs(name, "test", HELD_OUT)).split([1, 7, 24])


def inputs(name, split, count):
    """(count, ...) float32 images or int64 tokens."""
    _, shape = models.build(name)
    if len(shape) == 1:
        return models.example(name, count, seed=0 if split == "train" else 1).numpy()
    if shape[0] == 1:
        images, _ = next(iter(load("fashion-mnist", split, limit=count).batches(count)))
        return images.numpy()
    return crops(
        count, shape[1], seed=0 if split == "train" else 1, scale=SCALES.get(name, IMAGENET)
    )


def crops(count, side, seed, scale):
    """(count, 3, side, side) float32, normalised by this (mean, deviation): square pieces of a
    portrait, scaled.
    """
    portrait = Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")
    random, found = np.random.default_rng(seed), []
    for _ in range(count):
        size = int(random.integers(160, 480))
        left, top = (int(random.integers(0, length - size + 1)) for length in portrait.size)
        piece = portrait.crop((left, top, left + size, top + size)).resize((side, side))
        found.append((np.asarray(piece) / 255 - scale[0]) / scale[1])
    return np.stack(found).transpose(0, 3, 1, 2).astype(np.float32)
