"""Networks of few multiply-adds for small images, in the manner of MobileNet and ShuffleNet.

A 3x3 convolution from C to K channels costs 9 C K multiply-adds per pixel. MobileNet replaces it by
a depthwise-separable convolution, which costs about a ninth: a 3x3 convolution of each channel on
its own (9 C), then a 1x1 convolution across channels (C K). ShuffleNet also splits the 1x1
convolution into groups of channels, and then shuffles the channels so that information crosses
between the groups. The bytes that these layers move fall far less than their multiply-adds. So the
layers wait for memory, and their time falls by a smaller factor than the multiply-adds.

Source  Howard et al. 2017, arXiv:1704.04861; Zhang et al. 2017, arXiv:1707.01083
"""

from collections.abc import Callable

import torch
from torch import nn

from labkit.models.cnn import convolution


def mobilenet(
    width: int = 32,
    *,
    separable: bool = True,
    channels: int = 1,
    classes: int = 10,
    activation: Callable = nn.ReLU,
) -> nn.Sequential:
    """Build a small MobileNet: a convolution, then four separable blocks.

    The convolution has `width` channels, the blocks 2, 2, 4 and 4 times as many. Two of the blocks
    halve the image.

    separable   False: the plain counterpart, each block one 3x3 convolution across all channels
    channels    of the input images
    activation  a zero-argument factory of a module
    input       (N, channels, H, W)
    output      (N, classes) logits
    """
    block = _separable if separable else convolution
    layers = convolution(channels, width, activation)
    in_channels = width
    for out_channels, stride in ((2 * width, 2), (2 * width, 1), (4 * width, 2), (4 * width, 1)):
        layers += block(in_channels, out_channels, activation, stride=stride)
        in_channels = out_channels
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(in_channels, classes)
    )


def _separable(in_channels, out_channels, activation, *, stride=1):
    """Return the list of layers of a separable block: a 3x3 depthwise convolution, then a 1x1 one.

    Input (N, in_channels, H, W), output (N, out_channels, H / stride, W / stride).
    """
    depthwise = convolution(in_channels, in_channels, activation, stride=stride, groups=in_channels)
    return depthwise + convolution(in_channels, out_channels, activation, size=1)


def shufflenet(
    width: int = 96,
    *,
    groups: int = 4,
    units: int = 3,
    channels: int = 1,
    classes: int = 10,
    activation: Callable = nn.ReLU,
) -> nn.Sequential:
    """Build a small ShuffleNet: a convolution, then two stages of `units` units.

    The convolution has `width` / 4 channels. The units of the first stage have `width` channels,
    those of the second 2 `width`. Each stage halves the image.

    width       a multiple of 4 * groups
    groups      number of groups of the 1x1 convolutions
    channels    of the input images
    activation  a zero-argument factory of a module
    input       (N, channels, H, W)
    output      (N, classes) logits
    """
    layers = convolution(channels, width // 4, activation)
    in_channels = width // 4
    for out_channels in (width, 2 * width):
        for unit in range(units):
            stride = 1 if unit else 2  # the first unit of a stage halves the image
            layers.append(
                _ShuffleUnit(in_channels, out_channels, groups, activation, stride=stride)
            )
            in_channels = out_channels
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(in_channels, classes)
    )


class _ShuffleUnit(nn.Module):
    """A unit of ShuffleNet: convolutions on one branch, and the unchanged input on the other.

    The convolutions are: 1x1 in groups, to a quarter of the output channels; a shuffle of the
    channels; 3x3 depthwise; 1x1 in groups.

    stride  1: the two branches are added. 2: the input is averaged over 3x3 pixels to half the
            side, and the results of both branches are concatenated as channels
    """

    def __init__(self, in_channels, out_channels, groups, activation, *, stride):
        super().__init__()
        self.groups = groups
        self.stride = stride
        middle = out_channels // 4
        self.squeeze = nn.Sequential(
            *convolution(in_channels, middle, activation, size=1, groups=groups)
        )
        self.depthwise = nn.Sequential(*convolution(middle, middle, stride=stride, groups=middle))
        new = out_channels if stride == 1 else out_channels - in_channels
        self.expand = nn.Sequential(*convolution(middle, new, size=1, groups=groups))
        self.pool = nn.AvgPool2d(3, stride, padding=1)
        self.activation = activation()

    def forward(self, x):  # (N, in_channels, H, W) -> (N, out_channels, H / stride, W / stride)
        new = self.expand(self.depthwise(shuffled(self.squeeze(x), self.groups)))
        joined = x + new if self.stride == 1 else torch.cat([self.pool(x), new], dim=1)
        return self.activation(joined)


def shuffled(x, groups):
    """Reorder the channels of (N, C, H, W) so that each new group has channels of every old group.

    groups  number of groups, which divides C
    """
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)
