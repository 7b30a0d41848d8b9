"""VGGs with batch norm for small images: stacks of 3x3 convolutions, then linear layers.

In each stack, a max pool follows the last convolution. It stands before the batch norm and the
activation, so these compute on a quarter of the pixels.

The small VGG (98,682 parameters) is light enough to be trained dozens of times on two cores, which
experiments on the batch size need. The medium VGG (1,478,826 parameters, 30 million multiply-adds
for 28 x 28 pixels) is there to be compressed: four fifths of its weights are in one linear layer,
as in the first VGGs. Both are fastest in channels_last.

Source  Simonyan and Zisserman 2014, arXiv:1409.1556; batch norm: Ioffe and Szegedy 2015,
        arXiv:1502.03167; the place of the pool: Jordan 2024, arXiv:2404.00498
"""

from torch import nn


def vgg(stacks, *, hidden=None, channels=3, classes=10, activation=nn.ReLU):
    """Build a network of stacks of convolutions; each stack halves the image.

    stacks      widths of the convolutions, one tuple per stack: ((16,), (32,), (64, 64))
    hidden      number of units of a hidden linear layer, which reads 3 x 3 pixels of each channel.
                None: no hidden layer; the head reads the mean of each channel
    channels    of the input images
    activation  a zero-argument factory of a module
    input       (N, channels, H, W), H and W at least 2^len(stacks)
    output      (N, classes) logits
    """
    # The pool stands before the norm and the activation that end its stack.
    layers = []
    in_channels = channels
    for stack in stacks:
        for number, width in enumerate(stack, start=1):
            layers.append(nn.Conv2d(in_channels, width, 3, padding=1, bias=False))
            if number == len(stack):
                layers.append(nn.MaxPool2d(2))
            layers += [nn.BatchNorm2d(width), activation()]
            in_channels = width

    # The head sees averages, or, through a hidden layer, 3 x 3 pixels a channel.
    if hidden:
        layers += [nn.AdaptiveAvgPool2d(3), nn.Flatten()]
        layers += [
            nn.Linear(9 * in_channels, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            activation(),
        ]
        in_channels = hidden
    else:
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(in_channels, classes))
