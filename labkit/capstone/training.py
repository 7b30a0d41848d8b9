"""Trains a recipe once and measures the time, on a split of all images that the seed draws."""

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from labkit import device
from labkit.capstone.recipe import Recipe
from labkit.train.config import TrainConfig

if TYPE_CHECKING:
    import torch

    from labkit.data import ImageSet

MAX_MEMORY = 8 << 30  # bytes that a training may take beyond what its process begins with, on a CPU


def train_once(recipe: Recipe, dataset: str, tested: int, seed: int) -> tuple[float, float]:
    """Train a recipe once, in a process that trains nothing else.

    On a CPU the process computes on one thread, and its memory is limited.

    dataset  name of the data set
    tested   number of images that are kept as test images
    seed     decides which images these are, the first weights and the order of the images
    returns  (seconds of the training, accuracy on the test images, 0 to 1)
    """
    import torch

    from labkit import models
    from labkit.export import inspection
    from labkit.train import fit

    training_device = device.pick()
    images = all_images(dataset)
    if device.kind(training_device) == "cpu":
        torch.set_num_threads(1)
        inspection.limit_memory(MAX_MEMORY)  # not with a GPU, whose driver reserves far more
    shape = tuple(images.images.shape[1:])

    # Libraries begin before the clock does.
    torch.manual_seed(0)
    warm_up, _ = models.build("cnn-small", like=shape)
    fit(warm_up, images.subset(512), TrainConfig(batch=128), device=training_device)
    return train_on(images, recipe, tested, seed, training_device)


def train_on(
    images: "ImageSet", recipe: Recipe, tested: int, seed: int, training_device: "torch.device"
) -> tuple[float, float]:
    """Split images by the seed into two parts, train a recipe on one and test it on the other.

    images   all images of the data set
    tested   number of test images
    seed     as in `train_once`
    returns  (seconds of the training, accuracy on the test images, 0 to 1)
    """
    import torch

    from labkit import models
    from labkit.train import accuracy, fit

    # The split of this seed, then the training that counts.
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    test = images.take(order[:tested])
    train = images.take(order[tested:][: recipe.images])
    torch.manual_seed(seed)
    shape = tuple(images.images.shape[1:])
    network, _ = models.build(recipe.network, classes=len(images.classes), like=shape)
    config = replace(recipe.config, seed=seed % 2**20)
    history = fit(network, train, config, device=training_device)
    test_accuracy = accuracy(
        history.model or network, test, device=training_device, size=config.size
    )
    return history.seconds, test_accuracy


@cache
def all_images(dataset: str) -> "ImageSet":
    """Return the training and the test images of a data set as one `ImageSet`.

    The judge splits them anew for each seed.
    """
    import torch

    from labkit.data import load

    train = load(dataset, "train")
    test = load(dataset, "test")
    images = torch.cat([train.images, test.images])
    labels = torch.cat([train.labels, test.labels])
    return replace(train, images=images, labels=labels)
