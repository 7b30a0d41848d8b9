"""Gradual pruning: a little more of the network goes every few steps while it trains on.

What     the sparsity rises along a cubic curve, fast at first and slowly at the end; training heals in between
When     90 % and more of the weights shall go
Cost     one sort of the weights every few steps; an epoch or more of training
Not when a few percent or a half go: once, by magnitude, does as well
Source   Zhu and Gupta 2017, arXiv:1710.01878
"""

from labkit.methods import Hooks


def cubic_sparsity(step, *, steps, final, initial=0.0, start=0):
    """The sparsity at `step`: final + (initial - final) * (1 - (step - start) / steps)^3.

    steps    how many steps the rise takes, at least 1; `initial` before it, `final` after it
    returns  a share from `initial` to `final`
    """
    raise NotImplementedError


class GradualPruning(Hooks):
    """Prunes by magnitude during a training: `fit(..., hooks={"prune": GradualPruning(0.9, steps=1000)})`.

    sparsity  share of the prunable weights that has gone at the end, 0 to 1
    steps     training steps over which the sparsity rises
    start     the step at which it begins to rise
    every     steps between two prunings
    scope     "global" or "layer", as in `magnitude_masks`
    What is pruned stays 0 after every step, whatever the optimizer's momentum wants. The sparsity begins with what the
    network has already, so that a pruned network trained with steps=1 only keeps its mask. A checkpoint keeps masks.
    """

    def __init__(self, sparsity, *, steps, start=0, every=10, scope="global"):
        raise NotImplementedError
