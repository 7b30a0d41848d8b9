"""Count the multiply-adds of a network for one input: the same number on every machine."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def multiply_adds(model: "nn.Module", example: Any) -> int:
    """Count the multiply-adds of one call of a network, in convolutions and matrix products.

    model    a torch module; it runs in eval mode, and its mode is restored
    example  a batch of inputs; a batch of one image gives the count per image

    The count is half of the number of torch's FlopCounterMode, which counts the multiplication and
    the addition. Norms, activations, biases and pools are not counted.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    training = model.training
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(example)
    model.train(training)
    return counter.get_total_flops() // 2  # torch counts the multiplication and the addition
