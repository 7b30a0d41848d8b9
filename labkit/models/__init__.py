"""Networks of the course, one family per file.

`build` makes a network by name, and `example` an input for the network.
"""

import pkgutil
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit.errors import LabError, require_known

if TYPE_CHECKING:
    import torch
    from torch import nn


class Recipe(NamedTuple):
    """How `build` makes a network.

    maker     "file:function" of labkit.models
    settings  keyword arguments of that function
    shape     shape of an input, without the batch
    """

    maker: str
    settings: dict
    shape: tuple


SMALL, IMAGENET = (1, 28, 28), (3, 224, 224)
# networks that can begin with weights from ImageNet
WITH_WEIGHTS = ("efficientnet-lite0", "resnet50")
RECIPES = {
    "cnn-small": Recipe("cnn:cnn", {"width": 4}, SMALL),
    "cnn-medium": Recipe("cnn:cnn", {"width": 16}, SMALL),
    "cnn-large": Recipe("cnn:cnn", {"width": 48}, SMALL),
    "vgg-small": Recipe("vgg:vgg", {"stacks": ((16,), (32,), (64,), (128,)), "channels": 1}, SMALL),
    "vgg-medium": Recipe(
        "vgg:vgg",
        {"stacks": ((32, 32), (64, 64), (128, 128)), "hidden": 1024, "channels": 1},
        SMALL,
    ),
    "mobilenet-mini": Recipe("efficient:mobilenet", {}, SMALL),
    "mobilenet-plain": Recipe("efficient:mobilenet", {"separable": False}, SMALL),
    "shufflenet-mini": Recipe("efficient:shufflenet", {}, SMALL),
    "convnext-mini": Recipe(
        "convnext:convnext",
        {"widths": (24, 48, 96), "depths": (1, 2, 2), "channels": 1, "classes": 10, "stem": 2},
        SMALL,
    ),
    "convnext-homebrew": Recipe(
        "convnext:convnext",
        {"widths": (96, 192, 384, 768), "depths": (1, 3, 9, 1), "classes": 200},
        IMAGENET,
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
    """Return the names of all networks that `build` knows."""
    return tuple(RECIPES)


def build(
    name: str,
    *,
    classes: int | None = None,
    activation: Any = None,
    like: tuple | None = None,
    pretrained: Any = None,
) -> "tuple[nn.Module, tuple]":
    """Build a network by name. Returns (the network, the shape of its input without the batch).

    classes     number of outputs (logits) of the head; None: the default of the network
    activation  a zero-argument factory of a module, such as `nn.GELU`; None: the network's own
    like        (C, H, W) of the images that the network will see. A network for small images is
                built for C channels, and for H x W pixels if H equals W and is 28 to 64. Any other
                network ignores `like`; None: the network's own shape
    pretrained  True: begin with ImageNet's weights, which only efficientnet-lite0 and resnet50
                have. False: begin with random weights. None: efficientnet-lite0 begins with
                ImageNet's weights, all others with random weights. Those of efficientnet-lite0 came
                with the installation, those of resnet50 are downloaded
    Raises      LabError for an unknown name, and for pretrained=True with a network without
                published weights
    """
    recipe = recipe_of(name)
    # What the caller asks for: the head, the activation and the input.
    shape = recipe.shape
    wishes = {"classes": classes, "activation": activation}
    if like and shape == SMALL:
        channels, height, width = like
        side = shape[-1]
        if height == width and 28 <= height <= 64:
            side = height
        wishes["channels"] = channels
        shape = (channels, side, side)
    maker = pkgutil.resolve_name(f"labkit.models.{recipe.maker}")
    if name in WITH_WEIGHTS:
        wishes["pretrained"] = pretrained
    elif pretrained:
        raise LabError(
            f"{name} has no published weights here.",
            expected="a network with weights from ImageNet",
            found=name,
            fix=f"choose {' or '.join(WITH_WEIGHTS)}, or train from the start",
        )

    # The recipe's settings stay where the caller asks for nothing.
    settings = dict(recipe.settings)
    for key, wish in wishes.items():
        if wish is not None:
            settings[key] = wish
    return maker(**settings), shape


def example(name: str, batch: int, seed: int = 0, *, shape: tuple | None = None) -> "torch.Tensor":
    """Draw a batch of inputs for a network, always the same for one seed.

    batch    number of inputs
    shape    shape of an input, without the batch; None: that of the network's recipe
    returns  floats (N, C, H, W), or int64 tokens (N, T)
    """
    import torch

    shape = shape or recipe_of(name).shape
    generator = torch.Generator().manual_seed(seed)
    if name in RECIPES and RECIPES[name].maker == "decoder:Decoder":
        return torch.randint(256, (batch, *shape), generator=generator)  # bytes
    if len(shape) == 1:
        from labkit.models.encoder import random_tokens

        return random_tokens(batch, *shape, generator=generator)
    return torch.randn(batch, *shape, generator=generator)


def recipe_of(name):
    """Return the `Recipe` of a network. Raises a LabError with all names for an unknown name."""
    require_known(name, RECIPES, "network")
    return RECIPES[name]
