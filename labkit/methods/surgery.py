"""Exchange layers of a finished network for others."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def replaced(model: "nn.Module", kind: type, make: Callable) -> "nn.Module":
    """Exchange every layer of class `kind`, in place, for `make(layer)`. Returns the model.

    Layers that `kind` holds inside are not looked at. A layer used in several places becomes one
    new layer there too.
    """
    return _replaced(model, kind, make, {})  # {layer: the one in its place}


def twin(model):
    """Return a copy of a model to change layers of; both share weights and statistics."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def _replaced(model, kind, make, replacements):
    if isinstance(model, kind):
        if model not in replacements:
            replacements[model] = make(model)
        return replacements[model]
    for name, child in model.named_children():
        new = _replaced(child, kind, make, replacements)
        if new is not child:
            setattr(model, name, new)
    return model
