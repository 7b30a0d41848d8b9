"""Small images as plain tensors: halved, scaled as the set says, the first ones, grey ones only."""

import pytest
import torch

from labkit.data import load, small_images
from labkit.errors import DataError


def test_each_pixel_is_the_mean_of_four_scaled_by_the_sets_own_numbers():
    data = load("fashion-mnist", "test")
    images, labels = small_images("fashion-mnist", "test", 20)
    first = data.images[0, 0].double()
    corner = first[:2, 4:6].mean() / 255  # the third pixel of the first row
    assert images[0, 2].item() == pytest.approx(
        ((corner - data.mean[0]) / data.std[0]).item(), abs=1e-5
    )
    assert (images.shape, images.dtype) == ((20, 196), torch.float32)
    assert torch.equal(labels, data.labels[:20])
    assert labels.dtype == torch.int64


def test_all_training_images_have_about_mean_0_and_deviation_1():
    images, labels = small_images("fashion-mnist")
    assert len(images) == len(labels) == 60_000
    assert abs(images.mean()) < 0.02
    assert 0.85 < images.std() < 1  # the mean of four pixels varies less than one


def test_colour_images_are_refused(monkeypatch):
    from labkit.data import _small

    colour = load("fashion-mnist", "test", limit=10)
    colour = type(colour)(
        **{**vars(colour), "images": colour.images.repeat(1, 3, 1, 1), "name": "cifar10"}
    )
    monkeypatch.setattr(_small, "load", lambda name, split: colour)
    with pytest.raises(DataError, match="3 channels"):
        small_images("cifar10")
