"""Networks of few multiply-adds for small images: depthwise-separable (MobileNet) and shuffled
(ShuffleNet).

A 3x3 convolution from C to K channels costs 9 C K multiply-adds per pixel. Taken apart into a 3x3
convolution of each channel on its own (9 C) and a 1x1 convolution across channels (C K), it costs
about a ninth. ShuffleNet splits the 1x1 convolution into groups as well, and shuffles the channels
so that the groups hear of each other. Bytes moved fall far less than multiply-adds: such layers
wait for memory, and are not faster by the same factor.

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
    """Build a convolution to `width` channels, then blocks to 2, 2, 4 and 4 times `width`; the
    image is halved twice.

    separable   False: the plain counterpart, each block one 3x3 convolution across all channels
    channels    of the input images
    activation  a zero-argument factory of a module
    input       (N, channels, H, W)
    output      (N, classes) logits
    """
    block = _separable if separable else convolution
    layers = convolution(channels, width, activation)
    before = width
    for after, stride in ((2 * width, 2), (2 * width, 1), (4 * width, 2), (4 * width, 1)):
        layers += block(before, after, activation, stride=stride)
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def _separable(before, after, activation, *, stride=1):
    """Return layers (N, before, H, W) -> (N, after, H / stride, W / stride): each channel alone,
    then 1x1 across.
    """
    depthwise = convolution(before, before, activation, stride=stride, groups=before)
    return depthwise + convolution(before, after, activation, size=1)


def shufflenet(
    width: int = 96,
    *,
    groups: int = 4,
    units: int = 3,
    channels: int = 1,
    classes: int = 10,
    activation: Callable = nn.ReLU,
) -> nn.Sequential:
    """Build a convolution to `width` / 4 channels, then two stages of `units` units, to `width` and
    2 `width` channels.

    groups      of the 1x1 convolutions; `width` is a multiple of 16 times as many
    channels    of the input images
    activation  a zero-argument factory of a module
    input       (N, channels, H, W)
    output      (N, classes) logits
    """
    layers = convolution(channels, width // 4, activation)
    before = width // 4
    for after in (width, 2 * width):
        for unit in range(units):
            stride = 1 if unit else 2  # the first unit of a stage halves the image
            layers.append(_ShuffleUnit(before, after, groups, activation, stride=stride))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class _ShuffleUnit(nn.Module):
    """1x1 in groups to a quarter of the channels, shuffle, 3x3 depthwise, 1x1 in groups; beside it
    the input itself.

    stride  1: the input is added; 2: its average over 3x3 pixels stands beside the new channels
    """

    def __init__(self, before, after, groups, activation, *, stride):
        super().__init__()
        self.groups = groups
        self.stride = stride
        middle = after // 4
        self.squeeze = nn.Sequential(
            *convolution(before, middle, activation, size=1, groups=groups)
        )
        self.depthwise = nn.Sequential(*convolution(middle, middle, stride=stride, groups=middle))
        new = after if stride == 1 else after - before
        self.expand = nn.Sequential(*convolution(middle, new, size=1, groups=groups))
        self.pool = nn.AvgPool2d(3, stride, padding=1)
        self.activation = activation()

    def forward(self, x):  # (N, before, H, W) -> (N, after, H / stride, W / stride)
        new = self.expand(self.depthwise(shuffled(self.squeeze(x), self.groups)))
        joined = x + new if self.stride == 1 else torch.cat([self.pool(x), new], dim=1)
        return self.activation(joined)


def shuffled(x, groups):
    """Deal the channels of (N, C, H, W) out to the groups: each group gets some of every group
    before.
    """
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)
