"""Ghost batch norm: batch norm over groups of a large batch.

What     in training, each group of `ghost_size` examples (a ghost) is normalised with its own mean
         and variance; at inference, running statistics normalise
When     large batches whose test accuracy falls behind that of small batches: each image meets the
         noise of a small batch again
Cost     compiled, about that of batch norm; eager on a CPU, one to two and a half times that of
         batch norm; at inference none
Not when the batch is already small; networks without batch norm; the gain is often small, measure
         it
Source   Hoffer, Hubara, Soudry 2017, arXiv:1705.08741

In each step the running mean moves by `momentum` towards the mean of the ghosts' means, and the
running variance towards the mean of the ghosts' (unbiased) variances. The paper moves them once for
each ghost in turn; with the same momentum they then forget earlier batches faster.
"""

import copy
import functools

import torch
from torch import nn
from torch.nn import functional as F

from labkit.errors import LabError
from labkit.methods import Hooks
from labkit.methods.surgery import copy_sharing_weights, replaced


def ghost_batch_norm(x, ghost_size, weight=None, bias=None, *, eps=1e-5):
    """Cut the batch into ghosts, normalise each ghost, and join the ghosts.

    x             (N, C), or (N, C, H, W); N a multiple of ghost_size
    ghost_size    examples per ghost
    weight, bias  (C,), applied after the normalisation; None: 1 and 0
    eps           added to the variance
    returns       a tensor of the shape of x. Without weight and bias, each channel of each ghost
                  has mean 0 and variance 1
    Raises        LabError: N is no multiple of ghost_size
    Source        Hoffer et al. 2017, arXiv:1705.08741
    """
    return _normalized(x, ghost_size, weight, bias, eps)[0]


def _normalized(x, ghost_size, weight, bias, eps):
    """Normalise a batch by ghosts. Returns (result, mean, variance).

    The arguments, and the result, are those of `ghost_batch_norm`. `mean`, (C,), is the mean of the
    ghosts' means. `variance`, (C,), is the mean of the ghosts' unbiased variances.
    """
    if ghost_size < 1 or len(x) % ghost_size:
        raise LabError(
            f"A batch of {len(x)} has no equal groups of {ghost_size}.",
            expected="a batch that is a multiple of the ghost size",
            found=f"{len(x)} examples, ghost size {ghost_size}",
            fix="choose another ghost size, or drop the last, smaller batch",
        )
    if torch.compiler.is_compiling():
        return _as_one_batch_norm(x, ghost_size, weight, bias, eps)
    mean, variance = x.new_zeros(2, x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32))
    ghosts = []
    for number, ghost in enumerate(x.split(ghost_size), start=1):
        momentum = 1 / number  # the running statistics become means over the ghosts
        ghosts.append(F.batch_norm(ghost, mean, variance, weight, bias, True, momentum, eps))
    return torch.cat(ghosts), mean, variance


def _as_one_batch_norm(x, ghost_size, weight, bias, eps):
    """Return (result, mean, variance) of `_normalized`, computed by one batch norm.

    This form is for torch.compile, which computes one batch norm in few passes over memory, but a
    loop over the ghosts in many. So each channel of each ghost becomes a channel of one wide batch
    norm.
    """
    channels = x.shape[1]
    ghosts = len(x) // ghost_size
    mean, variance = x.new_zeros(
        2, ghosts * channels, dtype=torch.promote_types(x.dtype, torch.float32)
    )
    weight = None if weight is None else weight.repeat(ghosts)
    bias = None if bias is None else bias.repeat(ghosts)

    # Add a dimension for the ghosts. In channels_last, the channels are moved to the end, where
    # they lie in memory.
    channels_last = x.is_contiguous(memory_format=torch.channels_last)
    if channels_last:
        pixels = x.permute(0, 2, 3, 1)
        groups = pixels.reshape(ghosts, -1, channels)
    else:
        pixels = x
        groups = pixels.unflatten(0, (ghosts, -1))
    y = F.batch_norm(
        groups.transpose(0, 1).flatten(1, 2), mean, variance, weight, bias, True, 1, eps
    )
    y = y.unflatten(1, (ghosts, channels)).transpose(0, 1).contiguous().view(pixels.shape)
    if channels_last:
        y = y.permute(0, 3, 1, 2)
    return y, mean.view(ghosts, channels).mean(0), variance.view(ghosts, channels).mean(0)


class _Ghosts:
    """The common part of the ghost batch norm layers for all shapes of input.

    In training each ghost is normalised with its own statistics. At inference the running
    statistics normalise, as in `nn.BatchNorm2d`.
    """

    def __init__(self, features, ghost_size, **settings):
        super().__init__(features, **settings)
        self.ghost_size = ghost_size

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        self._check_input_dim(x)
        y, mean, variance = _normalized(x, self.ghost_size, self.weight, self.bias, self.eps)
        if self.track_running_stats:
            self._remember(mean, variance)
        return y

    @torch.no_grad()
    def _remember(self, mean, variance):
        """Move the running statistics towards the mean and the variance of a batch."""
        self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)

    def extra_repr(self):
        return f"{super().extra_repr()}, ghost_size={self.ghost_size}"


class GhostBatchNorm1d(_Ghosts, nn.BatchNorm1d):
    """A batch norm layer for (N, features) that normalises each group of a batch in training.

    features    number of features; an input (N, features, L) is accepted, too
    ghost_size  examples per group; in training N must be a multiple of it
    """


class GhostBatchNorm2d(_Ghosts, nn.BatchNorm2d):
    """A batch norm layer for (N, features, H, W) that normalises each group of a batch in training.

    features    number of channels
    ghost_size  examples per group; in training N must be a multiple of it
    """


GHOSTS = {nn.BatchNorm1d: GhostBatchNorm1d, nn.BatchNorm2d: GhostBatchNorm2d}


def with_ghost_batch_norm(model: nn.Module, ghost_size: int) -> nn.Module:
    """Return a copy of a model with ghost batch norm in place of batch norm, 1d and 2d.

    The copy and `model` share weights and statistics.
    """

    def ghost(kind, old):
        new = copy.copy(old)
        new.__class__ = kind
        new.ghost_size = ghost_size
        return new

    changed = copy_sharing_weights(model)
    for kind, ghosts in GHOSTS.items():
        changed = replaced(changed, kind, functools.partial(ghost, ghosts))
    return changed


class Method(Hooks):
    """Train with ghost batch norm, by `TrainConfig(ghost_size=32)`."""

    def begin(self, model):
        return with_ghost_batch_norm(model, self.value)
