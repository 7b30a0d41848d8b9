"""Low-rank factorisation: a layer becomes two thinner ones.

What     the SVD of a weight matrix, cut off at a rank; a k x k convolution becomes k x 1 and 1 x k, or k x k and 1 x 1
When     layers are wide and their singular values fall fast: large linear layers above all
Cost     an SVD a layer; one more call a layer, which a small network may feel more than the saved multiply-adds
Not when the singular values fall slowly; without fine-tuning, a few percent of accuracy go
Source   Jaderberg et al. 2014, arXiv:1405.3866 (k x 1, 1 x k); Zhang et al. 2015, arXiv:1505.06798 (k x k, 1 x 1)
"""

import copy

import torch
from torch import nn

from labkit.errors import LabError


def rank_of(singular, energy):
    """The smallest rank, at least 1, that keeps the share `energy` (0 to 1) of the squares of the singular values."""
    kept = singular.double().square().cumsum(0)
    return min(int((kept < energy * kept[-1]).sum()) + 1, len(singular))


@torch.no_grad()
def factorize_layer(layer, *, energy=None, share=None, split="space"):
    """Two layers in place of one: an `nn.Sequential`; the layer itself where two would hold no fewer weights.

    layer   an nn.Linear, or an nn.Conv2d without groups and dilation
    energy  share of the squares of the singular values to keep, 0 to 1
    share   share of the weights to keep, 0 to 1; one of the two is given
    split   of a convolution: "space" (k x 1, then 1 x k) or "channel" (k x k to few channels, then 1 x 1)
    """
    wanted = energy if share is None else share
    if (energy is None) == (share is None) or not 0 < wanted <= 1 or split not in ("space", "channel"):
        raise LabError(
            "It is not clear how far to factorize.",
            expected="either energy or share, above 0 and at most 1; split space or channel",
            found=f"energy {energy}, share {share}, split {split!r}",
        )
    matrix = _matrix(layer, split)
    left, singular, right = torch.linalg.svd(matrix, full_matrices=False)
    per_rank = sum(matrix.shape)
    rank = rank_of(singular, energy) if share is None else max(1, int(share * matrix.numel() / per_rank))
    if rank * per_rank >= matrix.numel():
        return layer
    root = singular[:rank].sqrt()  # half of the scale to either side
    return _pair(layer, split, left[:, :rank] * root, right[:rank] * root[:, None])


def _matrix(layer, split):
    """The weight as a matrix (what the second layer sees, what the first one sees)."""
    if isinstance(layer, nn.Linear):
        return layer.weight  # (out, in)
    if split == "channel":
        return layer.weight.flatten(1)  # (out, in * kh * kw)
    return layer.weight.permute(0, 3, 1, 2).flatten(2).flatten(0, 1)  # (out * kw, in * kh)


def _pair(layer, split, second, first):
    """The two layers that multiply with `first` (rank, ...) and then with `second` (..., rank)."""
    rank, bias = len(first), layer.bias is not None
    if isinstance(layer, nn.Linear):
        pair = nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=bias)
    else:
        (high, wide), (down, across), (above, beside) = layer.kernel_size, layer.stride, layer.padding
        sides = [((high, 1), (down, 1), (above, 0)), ((1, wide), (1, across), (0, beside))]
        if split == "channel":
            sides = [(layer.kernel_size, layer.stride, layer.padding), (1, 1, 0)]
            second = second[:, None, :]
        else:
            second = second.unflatten(0, (layer.out_channels, wide))
        pair = (
            nn.Conv2d(layer.in_channels, rank, *sides[0], bias=False),
            nn.Conv2d(rank, layer.out_channels, *sides[1], bias=bias),
        )
        second = second.movedim(1, -1)[:, :, None, :]  # (out, rank, 1, wide)
    pair = nn.Sequential(*pair).to(layer.weight)
    pair[0].weight.copy_(first.view(pair[0].weight.shape))
    pair[1].weight.copy_(second)
    if bias:
        pair[1].bias.copy_(layer.bias)
    return pair


def factorize(model, *, energy=None, share=None, split="space"):
    """A copy of the model with each linear layer and convolution as `factorize_layer` makes it."""
    model = copy.deepcopy(model)
    for name, layer in list(model.named_modules()):
        plain = isinstance(layer, nn.Conv2d) and layer.groups == 1 and layer.dilation == (1, 1)
        if name and (isinstance(layer, nn.Linear) or (plain and not isinstance(layer.padding, str))):
            model.set_submodule(name, factorize_layer(layer, energy=energy, share=share, split=split))
    return model
