"""ResNet by torchvision, with any number of classes, and a first layer for small images.

Source  He et al. 2015, arXiv:1512.03385; the first layer for 32 x 32 pixels: its section 4.2
"""

import torchvision
from torch import nn

from labkit.errors import Unavailable
from labkit.methods.surgery import replaced

_PUBLISHED_CLASSES = 1000  # of ImageNet


def resnet(depth, *, channels=None, classes=_PUBLISHED_CLASSES, activation=None, pretrained=False):
    """Build a ResNet, untrained by default.

    depth       18, 34, 50, 101 or 152
    channels    None: 3 channels, and the usual start (a 7x7 convolution of stride 2, then pooling).
                A number: so many channels, and a start for small images, about 28 to 64 pixels a
                side: a 3x3 convolution of stride 1 and no pooling. The usual start would shrink 28
                x 28 pixels to 7 x 7 before the first block
    activation  a zero-argument factory of a module in place of ReLU; None: ReLU
    pretrained  True: begin with the ImageNet weights that torchvision publishes, downloaded once
                and checked. Possible with the usual start only. With other than 1000 classes the
                head is untrained
    input       (N, channels, H, W)
    output      (N, classes) logits
    Raises      Unavailable: the published weights cannot be downloaded, or are damaged
    """
    model = getattr(torchvision.models, f"resnet{depth}")(weights=None, num_classes=classes)
    if pretrained:
        weights = _published(depth)
        if classes != _PUBLISHED_CLASSES:
            weights |= model.fc.state_dict(prefix="fc.")
        model.load_state_dict(weights)
    if channels is not None:
        model.conv1, model.maxpool = (
            nn.Conv2d(channels, 64, 3, padding=1, bias=False),
            nn.Identity(),
        )
        # the initial weights that torchvision draws
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    return replaced(model, nn.ReLU, lambda old: activation()) if activation else model


def _published(depth):
    """Return the state dict of the ImageNet weights that torchvision publishes.

    Raises  Unavailable: the weights cannot be fetched, or are not the published ones
    """
    entry = torchvision.models.get_model_weights(f"resnet{depth}").DEFAULT
    try:
        return dict(entry.get_state_dict(map_location="cpu", check_hash=True, weights_only=True))
    except (OSError, RuntimeError) as error:  # no network; another hash than in the file's name
        raise Unavailable(
            f"The ImageNet weights of resnet{depth} cannot be fetched.",
            expected=entry.url,
            found=str(error),
            fix="run this once where there is a network, or choose efficientnet-lite0, whose "
            "weights are installed",
        ) from error
