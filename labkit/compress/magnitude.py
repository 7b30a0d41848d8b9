"""Magnitude pruning: sets the weights nearest to zero to zero.

What     a chosen share of the weights, the sparsity, is set to 0. These are the weights with the
         smallest absolute values, either of the whole network or of each layer. Or they are the
         weights with the smallest LAMP scores; this score compares a weight with the larger weights
         of its own layer
When     a file or a download must be smaller. It is also the first baseline, and a strong one, for
         every other method of pruning
Cost     one sort of the weights; at high sparsity, fine-tuning
Not when time is to be saved: dense kernels multiply by the zeros as well. Remove whole channels
         instead
Source   Han et al. 2015, arXiv:1506.02626; LAMP: Lee et al. 2020, arXiv:2010.07611
"""

import torch
from torch import nn

from labkit.errors import LabError, require_known

SCOPES = ("global", "layer", "lamp")


def prunable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return {name: weight} of the convolutions and linear layers of a network.

    They stand in the order of the network's modules. Biases and norms are not prunable.
    """
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    weights = {}
    for name, layer in model.named_modules():
        if isinstance(layer, kinds):
            weights[f"{name}.weight".lstrip(".")] = layer.weight  # a layer alone has no name
    return weights


def magnitude_masks(model, sparsity, *, scope="global"):
    """Return {name: bool mask} of the prunable weights of a network: True for weights that stay.

    sparsity  share of the prunable weights that is removed, 0 to 1
    scope     "global": one threshold of the absolute value for all layers; "layer": the same share
              of each layer; "lamp": one threshold of the LAMP score for all layers, which spares
              small layers
    """
    score_of = torch.abs
    if scope == "lamp":
        score_of, scope = _lamp_scores, "global"
    scores = {name: score_of(weight.detach()) for name, weight in prunable(model).items()}
    return top_masks(scores, sparsity, scope=scope)


def _lamp_scores(weight):
    """Return the LAMP score of each weight of a layer, float64 in the shape of the weight.

    The score of a weight w is w^2 divided by the sum of the squares of w and of all larger weights
    of the layer. The largest weight has the score 1. The score is the share of the remaining
    squared weights that the layer loses if w is removed after all smaller weights.
    """
    flat = weight.flatten().abs().float()
    nonzero = flat.nonzero()[:, 0]  # a weight that is 0 already scores 0 and need not be sorted
    # The bits of floats above 0, read as integers, have the same order, and torch sorts integers
    # five times as fast.
    sizes, order = flat[nonzero].view(torch.int32).sort()
    squares = sizes.view(torch.float32).double().square()
    no_smaller = squares.flip(0).cumsum(0).flip(0)
    scores = torch.zeros_like(flat, dtype=torch.double)
    scores[nonzero[order]] = squares / no_smaller
    return scores.view(weight.shape)


def top_masks(scores, sparsity, *, scope="global"):
    """Return masks that are True for the highest of some scores: {name: bool mask}.

    scores    {name: tensor of scores}
    sparsity  share of the scores whose mask is False, 0 to 1. The number of these scores is rounded
              to a whole number
    scope     "global": the share is that of all tensors together; "layer": it is that of each
              tensor
    Raises    LabError: a sparsity outside 0 to 1, or an unknown scope
    """
    if not 0 <= sparsity <= 1:
        raise LabError(
            f"A sparsity of {sparsity} means nothing.",
            expected="a share from 0 to 1",
            found=sparsity,
        )
    require_known(scope, SCOPES[:2], "scope")
    if scope == "layer":
        return {
            name: _top(score.flatten(), sparsity).view(score.shape)
            for name, score in scores.items()
        }
    # One threshold for all: the tensors are joined, masked, and split again.
    joined = torch.cat([score.flatten() for score in scores.values()])
    flat_masks = _top(joined, sparsity).split([score.numel() for score in scores.values()])
    masks = {}
    for (name, score), flat_mask in zip(scores.items(), flat_masks, strict=True):
        masks[name] = flat_mask.view(score.shape)
    return masks


def _top(scores, sparsity):
    """Return a bool mask of a vector: False for the share `sparsity` of the lowest scores."""
    mask = torch.zeros_like(scores, dtype=torch.bool)
    remaining = len(scores) - round(sparsity * len(scores))
    mask[scores.topk(remaining, sorted=False).indices] = True
    return mask


@torch.no_grad()
def apply_masks(model, masks):
    """Set the weights whose mask is False to 0, in place. Returns the model."""
    weights = prunable(model)
    for name, mask in masks.items():
        weights[name].masked_fill_(~mask.to(weights[name].device), 0)
    return model


def masks_of(model):
    """Return {name: bool mask} of the prunable weights: True for weights that are not 0."""
    return {name: weight.detach() != 0 for name, weight in prunable(model).items()}


def sparsity_of(model):
    """Return the share of a network's prunable weights that are 0."""
    weights = prunable(model).values()
    nonzero = sum(int(weight.count_nonzero()) for weight in weights)
    return 1 - nonzero / sum(weight.numel() for weight in weights)
