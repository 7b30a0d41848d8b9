"""A plain convolutional network for small images, in three sizes.

It has three blocks of two convolutions with batch norm and ReLU. Each block halves the image, and
has twice the channels of the block before. One linear layer follows.
"""

from collections.abc import Callable

from torch import nn

SIZES = {"cnn-small": 4, "cnn-medium": 16, "cnn-large": 48}  # name: channels after the first block


def cnn(
    width: int, *, channels: int = 1, classes: int = 10, activation: Callable = nn.ReLU
) -> nn.Sequential:
    """Build a network of three blocks with `width`, 2 `width` and 4 `width` channels.

    channels    of the input images
    activation  a zero-argument factory of a module
    input       (N, channels, H, W), H and W at least 8
    output      (N, classes) logits
    """
    widths = [width, 2 * width, 4 * width]
    blocks = [
        block(in_channels, out_channels, activation)
        for in_channels, out_channels in zip([channels, *widths], widths, strict=False)
    ]
    return nn.Sequential(
        *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes)
    )


def block(in_channels, out_channels, activation=nn.ReLU):
    """Build a block: (N, in_channels, H, W) -> (N, out_channels, ceil(H/2), ceil(W/2)).

    activation  a zero-argument factory of a module
    """
    return nn.Sequential(
        *convolution(in_channels, out_channels, activation),
        *convolution(out_channels, out_channels, activation, stride=2),
    )


def convolution(in_channels, out_channels, activation=None, *, size=3, stride=1, groups=1):
    """Return the list [convolution without bias, batch norm, activation] of layers.

    activation  a zero-argument factory of a module; None: no activation
    size        side of the kernel; `size // 2` zeros are added at each border of the image
    """
    conv = nn.Conv2d(
        in_channels, out_channels, size, stride=stride, padding=size // 2, groups=groups, bias=False
    )
    layers = [conv, nn.BatchNorm2d(out_channels)]
    if activation:
        layers.append(activation())
    return layers


def tiny(width: int = 8) -> nn.Sequential:
    """Build the smallest useful network: three convolutions with batch norm and ReLU.

    Each convolution halves the image. The network has about a tenth of the multiply-adds of
    `cnn(width)`, so that it can be trained to the end in seconds. With the default width it has
    6,274 weights. Input (N, 1, H, W), output (N, 10) logits.
    """
    widths = [width, 2 * width, 4 * width]
    layers = []
    for in_channels, out_channels in zip([1, *widths], widths, strict=False):
        layers += convolution(in_channels, out_channels, nn.ReLU, stride=2)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))
