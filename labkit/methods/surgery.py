"""Replace layers of a finished network."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def replaced(model: "nn.Module", kind: type, make: Callable) -> "nn.Module":
    """Replace every layer of class `kind` by `make(layer)`, in place. Returns the model.

    A replaced layer is not searched for further layers of this class. A layer used in several
    places is replaced by the same new layer in all of them.
    """
    return _replaced(model, kind, make, {})  # {old layer: new layer}


def copy_sharing_weights(model):
    """Return a copy of a model that shares its weights and statistics with the model.

    The layers of the copy can be changed without changing those of the model.
    """
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
