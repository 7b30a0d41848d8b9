"""Compute running statistics of norms: anew for other weights, and over parts of a batch."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from labkit.methods.surgery import copy_sharing_weights


def batch_norms(model: nn.Module) -> list:
    """Return the batch norm layers of a model, of any number of dimensions."""
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]


def _tracking_norms(model):
    """Return the layers of batch norm and instance norm that have running statistics."""
    return [
        layer
        for layer in model.modules()
        if isinstance(layer, _NormBase) and layer.running_mean is not None
    ]


def _other_layers_with_buffers(model):
    """Return the other layers with float buffers, which training may change: a user's own norm."""
    return [
        layer
        for layer in model.modules()
        if not isinstance(layer, _NormBase)
        and any(buffer.is_floating_point() for buffer in layer.buffers(recurse=False))
    ]


def _set_momentum_of_plain_mean(layer, _inputs):
    """Set the momentum of a norm to 1 / n in batch n, which gives a plain mean of its statistics.

    A forward pre-hook. Batch norm does this by itself with a momentum of None. For instance norm a
    momentum of None would mean 0, and it counts no batches, so both are done here.
    """
    if isinstance(layer, _BatchNorm):
        layer.momentum = None
        return
    layer.num_batches_tracked += 1
    layer.momentum = 1 / int(layer.num_batches_tracked)


@contextmanager
def statistics_anew(model: nn.Module) -> Iterator[None]:
    """Recompute running statistics as plain means over the batches that pass through the model.

    This is a context manager: call the model on the batches within it. It differs from
    `torch.optim.swa_utils.update_bn` in that only norms compute as in training: dropout draws
    nothing, so the result is the same each time. Other layers with float buffers compute as in
    training, too, and go on from what they hold, with their own momentum. A layer that stays in
    eval mode in training keeps its statistics. Afterwards the model is in the mode it was in.
    """
    was_training = model.training
    model.train()
    norms = [layer for layer in _tracking_norms(model) if layer.training]
    layers_with_buffers = [layer for layer in _other_layers_with_buffers(model) if layer.training]
    momenta = [layer.momentum for layer in norms]
    hooks = [layer.register_forward_pre_hook(_set_momentum_of_plain_mean) for layer in norms]
    model.eval()
    for layer in norms:
        layer.reset_running_stats()
        layer.train()
    for layer in layers_with_buffers:
        layer.training = True  # only this layer, not the layers in it
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer, momentum in zip(norms, momenta, strict=True):
            layer.momentum = momentum
        model.train(was_training)


@torch.no_grad()
def count_anew(model: nn.Module, batches: Iterable) -> None:
    """Recompute running statistics over batches of images, with `statistics_anew`.

    batches  iterable of images; a model without running statistics reads none
    """
    if not _tracking_norms(model) and not _other_layers_with_buffers(model):
        return
    with statistics_anew(model):
        for images in batches:
            model(images)


def moved_by_parts(model: nn.Module, count: int) -> nn.Module:
    """Return the model with a momentum for batches that pass through it in `count` parts.

    All parts together then move the running statistics as far as one whole batch does: with the
    momentum 1 - (1 - m)^(1 / count) per part, (1 - m) of the old statistics are left at the end.
    The result is a copy that shares weights and statistics; the model itself where it has no such
    norms or where there is one part.
    """
    if count == 1 or not _tracking_norms(model):
        return model
    trained = copy_sharing_weights(model)
    for layer in _tracking_norms(trained):
        if layer.momentum is not None:  # None: a plain mean over all parts already
            layer.momentum = 1 - (1 - layer.momentum) ** (1 / count)
    return trained
