"""Recomputed activation: its output is computed again in the backward pass instead of stored.

What     GELU, SiLU, HardSwish and FastSwish keep their input x for the backward pass, and the layer
         after them keeps their output y. Here only x is kept, and y is computed from x once more
         when the layer needs it
When     training is short of memory; it works for every activation that keeps its input
Cost     one more pass over memory per layer, in the backward pass; results stay the same bit for
         bit
Not when the activation keeps its output (ReLU: nothing to gain), or inside torch.compile, where it
         is not applied
Source   selective recomputation, Korthikanti et al. 2022, arXiv:2205.05198
"""

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

_READERS = (nn.Linear, nn.Conv2d)


class Recomputed(nn.Module):
    """Compute `layer(activation(x))`, and keep x instead of activation(x) for the backward pass."""

    def __init__(self, activation, layer):
        super().__init__()
        self.activation = activation
        self.layer = layer

    def forward(self, x):
        y = self.activation(x)
        if torch.compiler.is_compiling():
            return self.layer(y)
        pack, unpack = _hooks_without(y, self.activation, x)
        with saved_tensors_hooks(pack, unpack):
            return self.layer(y)


def _hooks_without(y, activation, x):
    """Return hooks (pack, unpack) for `saved_tensors_hooks` that save every tensor except y.

    Of y, or of a view of y, only the layout is saved. Where the backward pass needs it, it is
    computed again as activation(x).
    """
    address = y.untyped_storage().data_ptr()

    def pack(tensor):
        if tensor.untyped_storage().data_ptr() != address:
            return tensor
        return tensor.size(), tensor.stride(), tensor.storage_offset()

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        size, stride, offset = packed
        with torch.no_grad():
            return activation(x).as_strided(size, stride, offset)

    return pack, unpack


def with_recompute(model: nn.Module, kind: type) -> nn.Module:
    """Make each activation of class `kind` recomputed, in place. Returns the model.

    An activation is joined with the layer after it, if both stand in an `nn.Sequential` and the
    layer is linear or a 2d convolution. The names in the model's state_dict change; the weights
    stay.
    """
    for sequence in [module for module in model.modules() if isinstance(module, nn.Sequential)]:
        for index in range(len(sequence) - 1):
            activation = sequence[index]
            layer = sequence[index + 1]
            if isinstance(activation, kind) and isinstance(layer, _READERS):
                sequence[index] = nn.Identity()
                sequence[index + 1] = Recomputed(activation, layer)
    return model
