"""Multiply-adds: how much a network's layers multiply and add for one input, the same on every
machine.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def multiply_adds(model: "nn.Module", example: Any) -> int:
    """Count the multiply-adds of one call in its convolutions and matrix products, by torch's own
    counter.

    model    a torch module; put back into the mode it was in
    example  a batch of inputs; with one image, the count per image
    returns  int; norms, activations, biases and pools are not counted
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    training = model.training
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(example)
    model.train(training)
    return counter.get_total_flops() // 2  # torch counts the multiplication and the addition
