"""Learning-rate scaling: a larger batch takes fewer steps, so each may be longer.

What     multiply the learning rate by k (linear) or by the square root of k when the batch is k times as large
When     linear: SGD with momentum, up to some thousand images a batch; square root: Adam, LAMB, or if linear diverges
Cost     none
Not when the rate is already the largest that does not diverge; the first steps need a warm-up
Source   linear: Goyal et al. 2017, arXiv:1706.02677; square root: Krizhevsky 2014, arXiv:1404.5997, and Hoffer et al.
         2017, arXiv:1705.08741
"""

from labkit.errors import LabError

RULES = {
    "none": lambda times: 1.0,
    "linear": lambda times: times,  # k short steps along one gradient are one that is k times as long
    "sqrt": lambda times: times**0.5,  # keeps the variance of a step: its noise falls with the root of the batch
}


def scaled(base_rate, batch, base_batch, rule):
    """The learning rate for `batch`, from one that is good for `base_batch`; rule is none, linear or sqrt."""
    if rule not in RULES:
        raise LabError(f"There is no scaling rule {rule!r}.", expected=" or ".join(RULES), found=rule)
    if batch <= 0 or base_batch <= 0:
        raise LabError(
            "A batch has at least one image.", expected="batch sizes above 0", found=f"{batch} and {base_batch}"
        )
    return base_rate * RULES[rule](batch / base_batch)
