"""Running statistics of norms: counted anew for weights that no step has trained, and moved by
parts of a batch.
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
    """The layers of batch norm and instance norm that have running statistics."""
    return [
        layer
        for layer in model.modules()
        if isinstance(layer, _NormBase) and layer.running_mean is not None
    ]


def _others_with_buffers(model):
    """The other layers with floats that are no weights, such as a norm of one's own: training
    may move them.
    """
    return [
        layer
        for layer in model.modules()
        if not isinstance(layer, _NormBase)
        and any(buffer.is_floating_point() for buffer in layer.buffers(recurse=False))
    ]


def _share_of_the_next_batch(layer, _inputs):
    """Set the momentum of a norm to 1 / n in batch n, which makes a plain mean of its statistics.

    A momentum of None says the same to batch norm, and to instance norm that nothing moves and
    nothing is counted.
    """
    if isinstance(layer, _BatchNorm):
        layer.momentum = None
        return
    layer.num_batches_tracked += 1
    layer.momentum = 1 / int(layer.num_batches_tracked)


@contextmanager
def statistics_anew(model: nn.Module) -> Iterator[None]:
    """Within it, running statistics of batch and instance norm become plain means over the batches
    that pass through.

    Only these layers compute as in training: dropout draws nothing, and the result is the same each
    time. Otherwise it is `torch.optim.swa_utils.update_bn`. Other layers with buffers of floats
    compute as in training, too, and go on from what they hold at their own pace. A layer that stays
    in eval mode in training keeps what it has. Afterwards the model is in the mode it was in.
    """
    was_training = model.training
    model.train()
    norms = [layer for layer in _tracking_norms(model) if layer.training]
    layers_with_buffers = [layer for layer in _others_with_buffers(model) if layer.training]
    momenta = [layer.momentum for layer in norms]
    hooks = [layer.register_forward_pre_hook(_share_of_the_next_batch) for layer in norms]
    model.eval()
    for layer in norms:
        layer.reset_running_stats()
        layer.train()
    for layer in layers_with_buffers:
        layer.training = True  # the layer alone, not those in it
    yield
    for hook in hooks:
        hook.remove()
    for layer, momentum in zip(norms, momenta, strict=True):
        layer.momentum = momentum
    model.train(was_training)


@torch.no_grad()
def count_anew(model: nn.Module, batches: Iterable) -> None:
    """Count running statistics anew over batches of images; nothing is read where a model has
    none.
    """
    if not _tracking_norms(model) and not _others_with_buffers(model):
        return
    with statistics_anew(model):
        for images in batches:
            model(images)


def moved_by_parts(model: nn.Module, count: int) -> nn.Module:
    """Return the model with a momentum that moves running statistics as far in so many parts as
    before in one batch.

    With the momentum 1 - (1 - m)^(1 / count), (1 - m) of the old statistics are left after all
    parts. It is a copy that shares weights and statistics; without such norms, or with one part,
    the model itself.
    """
    if count == 1 or not _tracking_norms(model):
        return model
    trained = copy_sharing_weights(model)
    for layer in _tracking_norms(trained):
        if layer.momentum is not None:  # None: a plain mean over all parts already
            layer.momentum = 1 - (1 - layer.momentum) ** (1 / count)
    return trained
