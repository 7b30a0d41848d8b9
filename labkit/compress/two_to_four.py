"""2:4 sparsity: two of every four neighbouring weights are zero, a pattern that some GPUs multiply at twice the rate.

What     in each group of four input channels of a weight, the two of smallest magnitude become 0
When     an NVIDIA GPU with sparse tensor cores serves large matrix products
Cost     half of the weights, whichever they are; a short fine-tuning
Not when there is no such GPU: nothing else has kernels for the pattern, and the zeros are multiplied as before
Source   Mishra et al. 2021, arXiv:2104.08378
"""

import torch

from labkit import device as devices
from labkit.compress.magnitude import prunable
from labkit.errors import LabError, Unavailable

_AMPERE = 8.0  # compute capability of the first generation with sparse tensor cores


def _two_to_four_mask(weight):
    """A bool mask that keeps the two largest of each four along the input channels.

    weight   (out, in, ...), `in` a multiple of 4
    returns  the same shape; in each four exactly two are True
    Raises   LabError when the input channels do not divide by 4
    """
    if weight.ndim < 2 or weight.shape[1] % 4:
        raise LabError(
            "This weight has no groups of four.",
            expected="a shape (out, in, ...) with `in` a multiple of 4",
            found=f"a shape of {tuple(weight.shape)}",
            fix="leave this layer whole",
        )
    fours = weight.detach().abs().movedim(1, -1).unflatten(-1, (-1, 4))
    mask = torch.zeros_like(fours, dtype=torch.bool).scatter_(-1, fours.topk(2).indices, True)
    return mask.flatten(-2).movedim(-1, 1)


def two_to_four_masks(model):
    """{name: bool mask} of the prunable weights; those whose input channels do not divide by 4 stay whole."""
    return {
        name: torch.ones_like(weight, dtype=torch.bool) if weight.shape[1] % 4 else _two_to_four_mask(weight)
        for name, weight in prunable(model).items()
    }


def require_sparse_tensor_cores():
    """Raise Unavailable where no kernel gains from 2:4 sparsity; its text is the reason of the row without a number."""
    found = devices.compute_capability()
    if found is None or float(found) < _AMPERE:
        raise Unavailable(
            "2:4 sparsity gains no time here: the zeros are multiplied as any other weight.",
            expected=f"an NVIDIA GPU with sparse tensor cores, compute capability {_AMPERE} or higher",
            found="no NVIDIA GPU" if found is None else f"compute capability {found}",
            fix="run it on such a GPU, with torch.sparse.to_sparse_semi_structured(weight.half())",
        )
