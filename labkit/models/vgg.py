"""A small VGG with batch norm: stacks of 3x3 convolutions, a max pool after each stack, one linear layer.

Light enough to be trained dozens of times on two cores, which experiments on the batch size need.

Source  Simonyan and Zisserman 2014, arXiv:1409.1556; batch norm: Ioffe and Szegedy 2015, arXiv:1502.03167
"""

from torch import nn


def vgg(stacks, *, channels=3, classes=10, activation=nn.ReLU):
    """A network of stacks of convolutions, the image halved after each.

    stacks      widths of the convolutions, one tuple a stack: ((16,), (32,), (64, 64))
    channels    of the input images
    activation  a zero-argument factory of a module
    input       (N, channels, H, W), H and W at least 2^len(stacks)
    output      (N, classes) logits
    """
    layers, before = [], channels
    for stack in stacks:
        for width in stack:
            layers += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), activation()]
            before = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def vgg_small(width=16, *, channels=1, classes=10, activation=nn.ReLU):
    """Four convolutions of `width`, 2 `width`, 4 `width` and 8 `width` channels; 98,442 parameters for 1 channel."""
    stacks = ((width,), (2 * width,), (4 * width,), (8 * width,))
    return vgg(stacks, channels=channels, classes=classes, activation=activation)
