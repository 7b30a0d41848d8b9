"""Low-rank factorisation: a layer becomes two thinner ones.

What     the SVD of a weight matrix, cut off at a rank; a k x k convolution becomes k x 1 and 1 x k, or k x k and 1 x 1
When     layers are wide and their singular values fall fast: large linear layers above all
Cost     an SVD a layer; one more call a layer, which a small network may feel more than the saved multiply-adds
Not when the kernel is small and the singular values fall slowly; fine-tune, or a few percent of accuracy go
Source   Jaderberg et al. 2014, arXiv:1405.3866 (k x 1, 1 x k); Zhang et al. 2015, arXiv:1505.06798 (k x k, 1 x 1)
"""


def rank_of(singular, *, energy):
    """The smallest rank that keeps the share `energy` (0 to 1) of the sum of squares of the singular values."""
    raise NotImplementedError


def factorized(layer, *, energy=None, share=None, split="space"):
    """Two layers in place of one: an `nn.Sequential`; the layer itself where that would hold no fewer weights.

    layer   an nn.Linear or an nn.Conv2d without groups
    energy  share of the squared weights to keep, 0 to 1
    share   share of the weights to keep, 0 to 1; one of the two is given
    split   of a convolution: "space" (k x 1 then 1 x k) or "channel" (k x k to few channels, then 1 x 1)
    """
    raise NotImplementedError


def low_rank(model, *, energy=None, share=None, split="space"):
    """A copy of the model with each linear layer and convolution factorised as by `factorized`."""
    raise NotImplementedError
