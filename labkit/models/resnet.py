"""ResNet by torchvision, with a head for any number of classes and a stem for small images.

Source  He et al. 2015, arXiv:1512.03385; the stem for 32 x 32 pixels as in its section 4.2
"""

import torchvision
from torch import nn

from labkit.methods.surgery import replaced


def resnet(depth, *, channels=None, classes=1000, activation=None):
    """An untrained ResNet.

    depth       18, 34, 50, 101 or 152
    channels    of small images, about 28 to 64 pixels a side: the network then starts with a 3x3 convolution of stride
                1 and no pooling; the usual start (7x7, stride 2, then pooling) would leave 7 x 7 of 28 x 28 pixels
                before the first block. None: 3 channels, and the usual start
    activation  a zero-argument factory of a module in place of ReLU
    input       (N, channels, H, W)
    output      (N, classes) logits
    """
    model = getattr(torchvision.models, f"resnet{depth}")(weights=None, num_classes=classes)
    if channels is not None:
        model.conv1, model.maxpool = nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.Identity()
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision begins
    return replaced(model, nn.ReLU, lambda old: activation()) if activation else model
