"""Weight sharing: each layer's weights take one of a few shared values, its centroids.

What     k-means in one dimension, begun with centroids at equal distances; training then moves the centroids: the
         gradient of a centroid is the sum of the gradients of its weights
When     the file shall be small: 4 bits say which centroid a weight has
Cost     one sort of the weights; a few hundred steps of training
Not when time is to be saved: the kernels compute with floats, which are looked up first
Source   Han et al. 2016, arXiv:1510.00149
"""

import numpy as np
import torch

from labkit.compress.magnitude import prunable
from labkit.methods import Hooks

_ROUNDS = 200  # at most; k-means ends sooner when nothing changes


def _kmeans(values, count):
    """Cluster numbers: (centroids, index of each number's centroid).

    values   (n,) finite floats, at least one
    count    centroids, at least 1
    returns  (count,) float64 and (n,) int64. The centroids begin at equal distances from the smallest number to the
             largest; one without numbers stays where it is. The numbers are sorted, so that a cluster is a range of
             them, and a round takes `count` steps
    """
    values = np.asarray(values, dtype=np.float64)
    ordered = np.sort(values)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    centroids = np.linspace(ordered[0], ordered[-1], count)
    for _ in range(_ROUNDS):
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
    for weight in prunable(model).values():
        kept = weight != 0
        if len(weight[kept].unique()) > 2**bits:
            centroids, index = _kmeans(weight[kept].cpu().numpy(), 2**bits)
            weight[kept] = torch.from_numpy(centroids[index]).to(weight)
    return model


class SharedWeights(Hooks):
    """Shares the weights, then trains the centroids: `fit(..., hooks={"share": SharedWeights(4)})`.

    bits  2^bits shared values a layer, besides the 0 of what was pruned
    An optimizer that treats each weight by itself (adamw, sgd) then moves the centroids.
    """

    def __init__(self, bits=4):
        super().__init__(bits)

    def begin(self, model):
        share(model, self.value)
        self.groups = {name: _groups(weight.detach()) for name, weight in prunable(model).items()}
        return model

    @torch.no_grad()
    def before_update(self, model):
        """Each weight gets the gradient of its centroid: the sum over the group. Pruned weights get none."""
        for name, weight in prunable(model).items():
            kept, group = self.groups[name]
            sums = torch.bincount(group, weight.grad[kept])
            weight.grad.zero_()
            weight.grad[kept] = sums.to(weight)[group]

    @torch.no_grad()
    def after_update(self, model):
        """Give each group its mean: the optimizer may round the last bit of equal weights differently."""
        for name, weight in prunable(model).items():
            kept, group = self.groups[name]
            means = torch.bincount(group, weight[kept].double()) / torch.bincount(group)
            weight[kept] = means.to(weight)[group]

    def state_dict(self):
        return {"groups": self.groups}

    def load_state_dict(self, state):
        for name, groups in state["groups"].items():
            self.groups[name] = tuple(part.to(self.groups[name][0].device) for part in groups)


def _groups(weight):
    """(a mask of the weights other than 0, and for each of these the number of its group of equal weights)."""
    kept = weight != 0
    return kept, weight[kept].unique(return_inverse=True)[1]
