"""ResNet by torchvision, with a head for any number of classes and a stem for small images.

Source  He et al. 2015, arXiv:1512.03385; the stem for 32 x 32 pixels as in its section 4.2
"""

import torchvision
from torch import nn

from labkit.methods.surgery import replaced


def resnet(depth, *, channels=3, classes=1000, small_images=False, activation=None):
    """An untrained ResNet.

    depth         18, 34, 50, 101 or 152
    channels      of the input images
    small_images  start with a 3x3 convolution of stride 1 and no pooling, for about 28 to 64 pixels; the usual start
                  (7x7, stride 2, then pooling) would leave 7 x 7 of 28 x 28 pixels before the first block
    activation    a zero-argument factory of a module in place of ReLU
    input         (N, channels, H, W)
    output        (N, classes) logits
    """
    model = getattr(torchvision.models, f"resnet{depth}")(weights=None, num_classes=classes)
    if small_images:
        model.conv1, model.maxpool = _first_layer(channels, 3, stride=1), nn.Identity()
    elif channels != 3:
        model.conv1 = _first_layer(channels, 7, stride=2)
    return replaced(model, nn.ReLU, lambda old: activation()) if activation else model


def _first_layer(channels, kernel, *, stride):
    """(N, channels, H, W) -> (N, 64, H / stride, W / stride), with torchvision's initial weights."""
    layer = nn.Conv2d(channels, 64, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
