"""Ghost batch norm: batch norm over groups of a large batch.

What     statistics per group of `ghost_size` examples in training, running statistics at inference
When     large batches whose test accuracy falls behind small ones: each image meets the noise of a small batch again
Cost     compiled, that of batch norm; eager on a CPU, one to two and a half times it; nothing more at inference
Not when the batch is already small; networks without batch norm; the gain is often small, measure it
Source   Hoffer, Hubara, Soudry 2017, arXiv:1705.08741

The running statistics move by `momentum` towards the mean, over the ghosts of a batch, of the ghosts' means and of
their (unbiased) variances. The paper moves them once for each ghost in turn; at equal momentum that forgets faster.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from labkit.errors import LabError
from labkit.methods import Hooks
from labkit.methods.surgery import replaced


def plain_ghost_batch_norm(x, ghost_size, weight=None, bias=None, eps=1e-5):
    """The idea as it is: cut the batch into ghosts, normalise each, join them. Arguments as of `ghost_batch_norm`."""
    ghosts = x.split(ghost_size)
    normalised = [F.batch_norm(ghost, None, None, weight, bias, training=True, eps=eps) for ghost in ghosts]
    return torch.cat(normalised)


def ghost_batch_norm(x, ghost_size, weight=None, bias=None, eps=1e-5):
    """Normalise each run of `ghost_size` examples on its own, then scale and shift each channel.

    x             (N, C, H, W); N a multiple of ghost_size
    ghost_size    examples per ghost batch
    weight, bias  (C,); None: 1 and 0
    eps           added to the variance
    returns       (N, C, H, W); per ghost batch and channel, before weight and bias: mean 0 and variance 1
    Source        Hoffer et al. 2017, arXiv:1705.08741

    It computes what `plain_ghost_batch_norm` does, with one call for all ghosts in place of one for each: forwards and
    backwards, 32 ghosts of 32 images take 1.2 times less time for 16 channels of 14 x 14 and 1.4 times less for 128 of
    1 x 1, compiled 1.7 times (on one thread of an AVX2 CPU; `benchmarks/training.py --only ghost` measures it here).
    """
    return _normalized(x, ghost_size, weight, bias, eps)[0]


def _normalized(x, ghost_size, weight, bias, eps):
    """(`ghost_batch_norm`, mean and biased variance of each ghost and channel, both (N / ghost_size, C))."""
    count, channels, height, width = x.shape
    if ghost_size < 1 or count % ghost_size:
        raise LabError(
            f"A batch of {count} has no equal groups of {ghost_size}.",
            expected="a batch that is a multiple of the ghost size",
            found=f"{count} examples, ghost size {ghost_size}",
            fix="choose another ghost size, or drop the last, smaller batch",
        )
    if x.is_contiguous(memory_format=torch.channels_last):  # channels last in a view too: columns to be summed
        groups, where = x.permute(0, 2, 3, 1).reshape(-1, ghost_size * height * width, channels), (1,)
    else:
        groups, where = x.reshape(-1, ghost_size, channels, height * width), (1, 3)
    shape = (1, 1, channels, 1)[: groups.ndim]
    weight = _wide(x).new_ones(shape) if weight is None else weight.view(shape)
    bias = torch.zeros_like(weight) if bias is None else bias.view(shape)
    y, mean, variance = _GroupNorm.apply(groups, weight, bias, where, eps)
    y = y.reshape(count, height, width, channels).permute(0, 3, 1, 2) if len(where) == 1 else y.view(x.shape)
    return y, mean.view(-1, channels), variance.view(-1, channels)


class _GroupNorm(torch.autograd.Function):
    """Normalise over the dimensions `where`; autograd's own backward would go over the data several times more.

    x             (G, ...): groups in the first dimension, channels in the third
    weight, bias  1 everywhere but in the third dimension
    returns       y like x, mean and biased variance of each group and channel (without gradient)
    """

    @staticmethod
    def forward(ctx, x, weight, bias, where, eps):
        centred, mean, variance = _statistics(x, where)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.where, ctx.eps = where, eps
        ctx.mark_non_differentiable(mean, variance)
        scale = weight * (variance + eps).rsqrt()
        return torch.addcmul(bias, centred, scale, out=centred).to(x.dtype), mean, variance

    @staticmethod
    def backward(ctx, slope, *_):
        x, weight, mean, variance = ctx.saved_tensors
        again = torch.is_grad_enabled()  # second derivatives are wanted
        if again:
            _, mean, variance = _statistics(x, ctx.where)  # they depend on x
        values, slope = _wide(x), _wide(slope)
        size = x[0].numel() // weight.numel()  # values under one mean
        inverse = (variance + ctx.eps).rsqrt()
        product = slope * values
        total = _summed(slope, ctx.where)
        along = (_summed(product, ctx.where) - mean * total) * inverse  # slope · normalised x
        # dx = scale * (slope - mean(slope) - normalised x * mean(slope * normalised x)), as a line in slope and x
        scale = weight * inverse
        tilt = -scale * inverse * along / size
        level = -scale * total / size - tilt * mean
        dx = torch.addcmul(level, slope, scale, out=None if again else product)  # new memory costs as much as a pass
        dx = torch.addcmul(dx, values, tilt, out=None if again else dx)
        return dx.to(x.dtype), along.sum(0, keepdim=True), total.sum(0, keepdim=True), None, None


def _statistics(x, where):
    """x minus its mean, the mean, and the biased variance over the dimensions `where`, of which sizes of 1 are kept."""
    total = _summed(_wide(x), where)
    size = x.numel() // total.numel()
    mean = total / size
    centred = x - mean
    return centred, mean, _summed(centred.square(), where) / size


def _summed(x, where):
    """The sum over the dimensions `where`, of which sizes of 1 are kept."""
    for dimension in reversed(where):  # one after the other, the innermost first, takes a third less time than at once
        x = x.sum(dimension, keepdim=True)
    return x


def _wide(x):
    """x in float32 at least, as batch norm computes whatever comes in."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class GhostBatchNorm2d(nn.BatchNorm2d):
    """A batch norm layer whose statistics are those of groups in training and the running ones at inference.

    features    channels of (N, features, H, W)
    ghost_size  examples per ghost batch; in training N must be a multiple of it
    """

    def __init__(self, features, ghost_size, **settings):
        super().__init__(features, **settings)
        self.ghost_size = ghost_size

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        y, mean, variance = _normalized(x, self.ghost_size, self.weight, self.bias, self.eps)
        if self.track_running_stats:
            self._remember(mean.mean(0), variance.mean(0), self.ghost_size * x[0, 0].numel())
        return y

    @torch.no_grad()
    def _remember(self, mean, variance, size):
        """Move the running statistics towards those of a batch whose ghosts have `size` values a channel."""
        self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance * (size / max(size - 1, 1)), share)

    def extra_repr(self):
        return f"{super().extra_repr()}, ghost_size={self.ghost_size}"


def with_ghost_batch_norm(model, ghost_size):
    """A model like `model` with `GhostBatchNorm2d` for every `nn.BatchNorm2d`; both share weights and statistics."""
    tensors = [*model.parameters(), *model.buffers()]
    twin = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})

    def ghost(old):
        new = GhostBatchNorm2d(
            old.num_features,
            ghost_size,
            eps=old.eps,
            momentum=old.momentum,
            affine=old.affine,
            track_running_stats=old.track_running_stats,
        ).train(old.training)
        for name, tensor in [*old.named_parameters(), *old.named_buffers()]:
            setattr(new, name, tensor)
        return new

    return replaced(twin, nn.BatchNorm2d, ghost)


class Method(Hooks):
    """In training: `TrainConfig(ghost_size=32)`."""

    def begin(self, model):
        return with_ghost_batch_norm(model, self.value)
