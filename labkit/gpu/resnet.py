"""ResNet with bottleneck blocks in plain torch, by default ResNet-50. It needs no torchvision.

Source  He et al. 2015, arXiv:1512.03385. The stride is that of the 3x3 convolution, as in
        torchvision
"""

from collections.abc import Sequence

import torch
from torch import nn


class Bottleneck(nn.Module):
    """A residual block: 1x1, 3x3 and 1x1 convolutions, whose result is added to the input.

    Each convolution is followed by a batch norm. If the shapes differ, the input passes a 1x1
    convolution before the sum.

    in_channels  channels of the input
    width        channels of the 3x3 convolution; the output has four times as many
    stride       stride of the 3x3 convolution
    """

    def __init__(self, in_channels: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != 4 * width:
            convolution = nn.Conv2d(in_channels, 4 * width, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        return self.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A ResNet: a first convolution, stages of blocks, the mean over the pixels, a linear layer.

    depths   number of blocks in each stage; (3, 4, 6, 3) is ResNet-50
    width    `width` of the blocks in the first stage. Each further stage doubles it, and halves
             height and width of the image
    classes  number of classes
    input    (N, 3, H, W)
    output   (N, classes) logits
    """

    def __init__(
        self, depths: Sequence[int] = (3, 4, 6, 3), *, width: int = 64, classes: int = 1000
    ):
        super().__init__()
        # The stem.
        self.conv = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)

        # The stages; the first block of each but the first halves the image.
        blocks = []
        in_channels = width
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Bottleneck(in_channels, width * 2**stage, stride))
                in_channels = 4 * width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(in_channels, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.pool(self.relu(self.norm(self.conv(x)))))
        return self.head(x.mean((2, 3)))
