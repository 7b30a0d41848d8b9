"""Testing a network: which images of a set it gets right."""

from typing import Any

import torch
from torch import nn


def accuracy(model: nn.Module, data: Any, **settings: Any) -> float:
    """Return the fraction of `data` (an ImageSet) the model gets right, 0 to 1; settings: as in
    `right_answers`.
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
    """Return (N,) bool: which of `data` (an ImageSet) the model gets right. It is left on the
    device, in eval mode.

    size  of the images, as in `ImageSet.batches`
    """
    model.to(device).eval()
    batches = data.batches(batch, device=device, size=size)
    return (
        torch.cat([model(images).argmax(1) == labels for images, labels in batches]).cpu().numpy()
    )
