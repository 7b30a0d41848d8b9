"""2:4 sparsity: two of every four neighbouring weights are zero, a pattern that some GPUs multiply at twice the rate.

What     in each group of four input channels of a weight, the two of smallest magnitude become 0
When     an NVIDIA GPU with sparse tensor cores serves large matrix products
Cost     half of the weights, whichever they are; a short fine-tuning
Not when there is no such GPU: nothing else has kernels for the pattern, and the zeros are multiplied as before
Source   Mishra et al. 2021, arXiv:2104.08378
"""


def two_to_four_mask(weight):
    """A bool mask that keeps the two largest of each four along the input channels.

    weight   (out, in, ...), `in` a multiple of 4
    returns  the same shape, exactly half of it True
    Raises   LabError when the input channels do not divide by 4
    """
    raise NotImplementedError


def two_to_four_masks(model):
    """{name: bool mask} of the prunable weights whose input channels divide by 4; the others stay whole."""
    raise NotImplementedError


def require_sparse_tensor_cores():
    """Raise Unavailable, with the reason, where 2:4 sparsity has no faster kernel: the reason of its row."""
    raise NotImplementedError
