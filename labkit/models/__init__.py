"""Networks of the course, one family a file; `build` makes one by name, `example` an input for it."""

import pkgutil
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit.errors import LabError, require_known

if TYPE_CHECKING:
    import torch
    from torch import nn


class Recipe(NamedTuple):
    """How a network is made: by `maker`, "file:function" of labkit.models, for inputs of `shape` without the batch."""

    maker: str
    settings: dict
    shape: tuple


SMALL, IMAGENET = (1, 28, 28), (3, 224, 224)
RECIPES = {
    "cnn-small": Recipe("cnn:cnn", {"width": 4}, SMALL),
    "cnn-medium": Recipe("cnn:cnn", {"width": 16}, SMALL),
    "cnn-large": Recipe("cnn:cnn", {"width": 48}, SMALL),
    "vgg-small": Recipe("vgg:vgg", {"stacks": ((16,), (32,), (64,), (128,)), "channels": 1}, SMALL),
    "vgg-medium": Recipe("vgg:vgg", {"stacks": ((32, 32), (64, 64), (128, 128)), "hidden": 1024, "channels": 1}, SMALL),
    "mobilenet-mini": Recipe("efficient:mobilenet", {}, SMALL),
    "mobilenet-plain": Recipe("efficient:mobilenet", {"separable": False}, SMALL),
    "shufflenet-mini": Recipe("efficient:shufflenet", {}, SMALL),
    "convnext-mini": Recipe(
        "convnext:convnext",
        {"widths": (24, 48, 96), "depths": (1, 2, 2), "channels": 1, "classes": 10, "stem": 2},
        SMALL,
    ),
    "convnext-homebrew": Recipe(
        "convnext:convnext", {"widths": (96, 192, 384, 768), "depths": (1, 3, 9, 1), "classes": 200}, IMAGENET
    ),
    "resnet18": Recipe("resnet:resnet", {"depth": 18, "channels": 1, "classes": 10}, SMALL),
    "resnet50": Recipe("resnet:resnet", {"depth": 50}, IMAGENET),
    "efficientnet-lite0": Recipe("efficientnet:efficientnet_lite0", {}, IMAGENET),
    "encoder-small": Recipe("encoder:Encoder", {}, (128,)),
    "decoder-small": Recipe(
        "decoder:Decoder", {"width": 64, "layers": 1, "heads": 2, "groups": 1, "inner": 192}, (256,)
    ),
    "decoder-medium": Recipe("decoder:Decoder", {}, (256,)),
    "minilm": Recipe("minilm:minilm", {}, (128,)),
}


def names():
    """All networks that `build` knows."""
    return tuple(RECIPES)


def build(
    name: str, *, classes: int | None = None, activation: Any = None, like: tuple | None = None, pretrained: Any = None
) -> "tuple[nn.Module, tuple]":
    """(a network, the shape of its input without the batch) by name.

    classes     logits of the head; None: as many as the network is known for
    activation  a zero-argument factory of a module, such as `nn.GELU`; None: the network's own
    like        (C, H, W) of the images it will see. A network for small images takes their channels, and their size
                where that is 28 to 64 pixels a side; the others stay as they are known
    pretrained  begin with published weights, or not; None: with those it has. Only efficientnet-lite0 has the choice:
                its ImageNet weights come with the installation
    """
    recipe = recipe_of(name)
    wishes, shape = {"classes": classes, "activation": activation}, recipe.shape
    if like and shape == SMALL:
        channels, height, width = like
        side = height if height == width and 28 <= height <= 64 else shape[-1]
        wishes["channels"], shape = channels, (channels, side, side)
    maker = pkgutil.resolve_name(f"labkit.models.{recipe.maker}")
    if name == "efficientnet-lite0":
        wishes["pretrained"] = pretrained
    elif pretrained:
        raise LabError(
            f"{name} has no published weights here.",
            expected="a network with weights from ImageNet",
            found=name,
            fix="choose efficientnet-lite0, or train from the start",
        )
    return maker(**recipe.settings | {key: value for key, value in wishes.items() if value is not None}), shape


def example(name: str, batch: int, seed: int = 0, *, shape: tuple | None = None) -> "torch.Tensor":
    """A batch of random inputs for the network: floats (N, C, H, W), or int64 tokens (N, T), the same for one seed.

    shape  of an input, without the batch; None: as the network is known
    """
    import torch

    shape, random = shape or recipe_of(name).shape, torch.Generator().manual_seed(seed)
    if name in RECIPES and RECIPES[name].maker == "decoder:Decoder":
        return torch.randint(256, (batch, *shape), generator=random)  # bytes
    if len(shape) == 1:
        from labkit.models.encoder import random_tokens

        return random_tokens(batch, *shape, generator=random)
    return torch.randn(batch, *shape, generator=random)


def recipe_of(name):
    """The recipe of a name, or a LabError that lists the names."""
    require_known(name, RECIPES, "network")
    return RECIPES[name]
