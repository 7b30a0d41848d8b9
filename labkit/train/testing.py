"""Test a network: which images of a set it classifies correctly."""

from typing import Any

import torch
from torch import nn


def accuracy(model: nn.Module, data: Any, **settings: Any) -> float:
    """Return the fraction of the images that the model classifies correctly, 0 to 1.

    data      a `labkit.data.ImageSet`
    settings  as in `right_answers`
    """
    return float(right_answers(model, data, **settings).mean())


@torch.inference_mode()
def right_answers(
    model: nn.Module,
    data: Any,
    *,
    device: torch.device | str = "cpu",
    batch: int = 500,
    size: int | None = None,
) -> Any:
    """Return for each image whether the model classifies it correctly: an (N,) bool array.

    The model is left on the device, in eval mode.

    data   a `labkit.data.ImageSet`
    batch  images per call of the model
    size   resize the images to so many pixels a side; None: do not resize
    """
    model.to(device).eval()
    batches = data.batches(batch, device=device, size=size)
    return (
        torch.cat([model(images).argmax(1) == labels for images, labels in batches]).cpu().numpy()
    )
