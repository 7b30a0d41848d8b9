"""ConvNeXt: a convolutional network in the shape of a transformer.

Source  Liu et al. 2022, arXiv:2201.03545. Left out here: layer scale, stochastic depth, and the
        norm after the stem; the depthwise convolution is 5x5 instead of 7x7.

`labkit.models.build` knows two such networks. convnext-homebrew (224 x 224 pixels in colour) has
18,166,472 parameters with 200 classes. convnext-mini (28 to 64 pixels a side) has 223,834
parameters with 1 channel and 10 classes, and runs quickly on a CPU.
"""

from collections.abc import Callable, Sequence

from torch import nn


def convnext(
    widths: Sequence[int],
    depths: Sequence[int],
    *,
    channels: int = 3,
    classes: int,
    activation: Callable = nn.GELU,
    stem: int = 4,
) -> nn.Module:
    """Build a ConvNeXt: a stem, then stages of blocks. Each stage but the first halves the image.

    widths      number of channels of each stage
    depths      number of blocks of each stage, as many numbers as `widths`
    channels    of the input images
    activation  a zero-argument factory of a module
    stem        side in pixels of the square patches that the first layer turns into one pixel each
    input       (N, channels, H, W); H and W at least stem * 2^(stages - 1)
    output      (N, classes) logits
    """
    layers = [nn.Conv2d(channels, widths[0], stem, stride=stem)]
    for in_channels, width, depth in zip([None, *widths], widths, depths, strict=False):
        if in_channels:
            layers += [LayerNorm2d(in_channels), nn.Conv2d(in_channels, width, 2, stride=2)]
        layers += [Block(width, activation) for _ in range(depth)]
    head = [PixelMean(), nn.LayerNorm(widths[-1], eps=1e-6), nn.Linear(widths[-1], classes)]
    return nn.Sequential(*layers, *head).apply(initialize)


class Block(nn.Module):
    """A depthwise 5x5 convolution, then an MLP over the channels of each pixel, added to the input.

    input and output  (N, width, H, W)
    """

    def __init__(self, width, activation):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), activation(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        mixed = self.depthwise(x).permute(0, 2, 3, 1)  # (N, H, W, width): no copy for channels_last
        return x + self.mlp(self.norm(mixed)).permute(0, 3, 1, 2)


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of (N, C, H, W)."""

    def __init__(self, width):
        super().__init__(width, eps=1e-6)

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class PixelMean(nn.Module):
    """Average the pixels of each channel: (N, C, H, W) -> (N, C)."""

    def forward(self, x):
        return x.mean((2, 3))


def initialize(layer):
    """Draw the paper's initial weights of a layer, if it is a convolution or linear.

    Weights are normal with standard deviation 0.02, cut off at -2 and 2. Biases are 0.
    """
    if isinstance(layer, (nn.Conv2d, nn.Linear)):
        nn.init.trunc_normal_(layer.weight, std=0.02)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
