"""Recompute the running statistics of batch norm, and correct them for batches cut into parts.

The same is done for other norms with running statistics.
"""

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
    """Return the layers with float buffers that are neither batch norm nor instance norm.

    A training may change their buffers: such a layer may be a user's own norm.
    """
    return [
        layer
        for layer in model.modules()
        if not isinstance(layer, _NormBase)
        and any(buffer.is_floating_point() for buffer in layer.buffers(recurse=False))
    ]


def _set_momentum_of_plain_mean(layer, _inputs):
    """Set the momentum of a norm so that its statistics become plain means over all batches.

    This is a forward pre-hook, called before each batch. Batch norm computes plain means where its
    momentum is None. Instance norm would take None as 0, and does not count batches. So this hook
    counts them, and sets the momentum 1 / n before batch n.
    """
    if isinstance(layer, _BatchNorm):
        layer.momentum = None
        return
    layer.num_batches_tracked += 1
    layer.momentum = 1 / int(layer.num_batches_tracked)


@contextmanager
def statistics_anew(model: nn.Module) -> Iterator[None]:
    """Recompute running statistics as plain means over the batches that pass through the model.

    This is a context manager: call the model on the batches within it. In
    `torch.optim.swa_utils.update_bn` the whole model is in training mode. Here only norms are, so
    that dropout does nothing, and the result is the same each time.

    Another layer with float buffers, such as a user's own norm, is in training mode too. Its
    statistics do not begin anew, and it keeps its own momentum. A layer that is in eval mode even
    when the model trains keeps its statistics. At the end the model is in the mode in which it was
    before.
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
    """Recompute running statistics as plain means over batches of images, by `statistics_anew`.

    batches  iterable of images, (N, C, H, W) each; nothing is read for a model without running
             statistics
    """
    if not _tracking_norms(model) and not _other_layers_with_buffers(model):
        return
    with statistics_anew(model):
        for images in batches:
            model(images)


def moved_by_parts(model: nn.Module, count: int) -> nn.Module:
    """Return a model whose running statistics move correctly when a batch comes in `count` parts.

    Each part moves the statistics. With a momentum of 1 - (1 - m)^(1 / count) per part, all parts
    together move them as far as one whole batch with momentum m. The result is a copy that shares
    weights and statistics with `model`. It is `model` itself where `count` is 1, or where no layer
    has running statistics.
    """
    if count == 1 or not _tracking_norms(model):
        return model
    trained = copy_sharing_weights(model)
    for layer in _tracking_norms(trained):
        if layer.momentum is not None:  # None: a plain mean over all parts already
            layer.momentum = 1 - (1 - layer.momentum) ** (1 / count)
    return trained
