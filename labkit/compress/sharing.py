"""Weight sharing: each layer's weights take one of a few shared values, its centroids.

What     k-means in one dimension, begun with centroids at equal distances; training then moves the centroids: the
         gradient of a centroid is the sum of the gradients of its weights
When     the file shall be small: 4 bits say which centroid a weight has
Cost     one sort of the weights; a few hundred steps of training
Not when time is to be saved: the kernels compute with floats, looked up before
Source   Han et al. 2016, arXiv:1510.00149
"""

import numpy as np
import torch

from labkit.compress.magnitude import prunable
from labkit.errors import LabError
from labkit.methods import Hooks


def kmeans(values, count, *, rounds=200):
    """Cluster numbers: (centroids, index of each number's centroid).

    values   (n,) finite floats, at least one
    count    centroids, at least 1
    rounds   most rounds; it ends sooner when nothing changes
    returns  (count,) float64 and (n,) int64. Begun linearly from the smallest value to the largest; a centroid without
             numbers stays where it is. On sorted numbers a cluster is a range, so that a round takes `count` steps
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0 or count < 1 or not np.isfinite(values).all():
        raise LabError(
            "These numbers cannot be clustered.",
            expected="finite numbers, and at least one centroid",
            found=f"{values.size} numbers, {count} centroids",
        )
    ordered = np.sort(values)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    centroids = np.linspace(ordered[0], ordered[-1], count)
    for _ in range(rounds):
        edges = np.searchsorted(ordered, (centroids[1:] + centroids[:-1]) / 2)
        edges = np.concatenate([[0], edges, [len(ordered)]])
        sizes = np.diff(edges)
        moved = np.where(sizes > 0, np.diff(sums[edges]) / np.maximum(sizes, 1), centroids)
        if np.array_equal(moved, centroids):
            break
        centroids = moved
    return centroids, np.searchsorted((centroids[1:] + centroids[:-1]) / 2, values, side="right")


@torch.no_grad()
def share(model, bits=4):
    """Replace the weights other than 0 of each prunable layer by at most 2^bits shared values, in place: the model.

    bits  1 to 8
    """
    if not 1 <= bits <= 8:
        raise LabError(f"{bits} bits are no size of a codebook.", expected="1 to 8", found=bits)
    for weight in prunable(model).values():
        kept = weight != 0
        if len(weight[kept].unique()) > 2**bits:
            centroids, index = kmeans(weight[kept].cpu().numpy(), 2**bits)
            weight[kept] = torch.from_numpy(centroids[index]).to(weight)
    return model


class SharedWeights(Hooks):
    """Shares the weights, then trains the centroids: `fit(..., hooks={"share": SharedWeights(4)})`.

    bits  2^bits shared values a layer, besides the 0 of what was pruned
    Every optimizer of `fit` that treats each weight by itself (adamw, sgd) then moves the centroids.
    """

    def __init__(self, bits=4):
        super().__init__(bits)

    def begin(self, model):
        share(model, self.value)
        self.groups = {name: _groups(weight.detach()) for name, weight in prunable(model).items()}
        return model

    @torch.no_grad()
    def before_update(self, model):
        """Each weight gets the gradient of its centroid; what was pruned gets none."""
        for name, weight in prunable(model).items():
            (places, index, _), gradient = self.groups[name], torch.zeros_like(weight.grad).flatten()
            gradient[places] = torch.bincount(index, weight.grad.flatten()[places]).to(gradient)[index]
            weight.grad.copy_(gradient.view(weight.shape))

    @torch.no_grad()
    def after_update(self, model):
        """Give each group the value of its first weight: vector units may round its last bit otherwise."""
        for name, weight in prunable(model).items():
            (places, index, first), flat = self.groups[name], torch.zeros_like(weight).flatten()
            flat[places] = weight.flatten()[places[first]][index]
            weight.copy_(flat.view(weight.shape))

    def state_dict(self):
        return {"groups": self.groups}

    def load_state_dict(self, state):
        for name, groups in state["groups"].items():
            self.groups[name] = tuple(part.to(self.groups[name][0].device) for part in groups)


def _groups(weight):
    """By equal values: (places of the weights other than 0 in the flat tensor, the group of each, and for groups
    0, 1, ... which of the places is the first)."""
    places = weight.flatten().nonzero()[:, 0]
    index = weight.flatten()[places].unique(return_inverse=True)[1]
    order = index.argsort(stable=True)
    starts = torch.cat([order.new_ones(len(order[:1]), dtype=torch.bool), index[order].diff() != 0])
    return places, index, order[starts]
