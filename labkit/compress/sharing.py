"""Weight sharing: each layer's weights take one of a few shared values, its centroids.

What     k-means in one dimension, begun with centroids at equal distances; training then moves the centroids: the
         gradient of a centroid is the sum of the gradients of its weights
When     the file shall be small: 4 bits say which centroid a weight has
Cost     a few passes over the weights; a few hundred steps of training
Not when time is to be saved: the kernels compute with floats, looked up before
Source   Han et al. 2016, arXiv:1510.00149
"""

from labkit.methods import Hooks


def kmeans(values, count, *, rounds=50):
    """Cluster numbers: (centroids, index of each number's nearest centroid).

    values   (n,) floats
    count    centroids, at least 1
    rounds   most rounds; it ends sooner when nothing changes
    returns  (count,) sorted floats and (n,) int64; begun linearly from the smallest to the largest value
    """
    raise NotImplementedError


def share(model, bits=4):
    """Replace the weights other than 0 of each prunable layer by 2^bits shared values, in place: the model."""
    raise NotImplementedError


class SharedWeights(Hooks):
    """Trains the centroids: `fit(..., hooks={"share": SharedWeights(bits=4)})`.

    bits  2^bits shared values a layer, besides 0 for what was pruned
    """

    def __init__(self, bits=4):
        raise NotImplementedError
