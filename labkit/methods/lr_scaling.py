"""Learning-rate scaling: a larger batch takes fewer steps, so each may be longer.

What     multiply the learning rate by k (linear) or by the square root of k when the batch is k times as large
When     linear: SGD with momentum, up to some thousand images per batch; square root: Adam, LAMB, or if linear diverges
Cost     none
Not when the rate is already the largest that does not diverge; the first steps need a warm-up
Source   linear: Goyal et al. 2017, arXiv:1706.02677; square root: Krizhevsky 2014, arXiv:1404.5997, and Hoffer et al.
         2017, arXiv:1705.08741
"""


def scaled(base_rate, batch, base_batch, rule):
    """The learning rate for `batch`, from one that is good for `base_batch`; rule is none, linear or sqrt."""
    times = batch / base_batch
    # linear: k short steps along one gradient are one that is k times as long
    # sqrt: keeps the variance of a step, whose noise falls with the root of the batch
    return base_rate * {"none": 1.0, "linear": times, "sqrt": times**0.5}[rule]
