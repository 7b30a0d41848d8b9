"""Decay: end with a small learning rate.

What     constant: none; cosine: down to 0 along half a cosine; step: a tenth, after 1/3, 2/3 and 8/9 of the steps
When     always: long steps find the valley, short ones its floor; cosine has nothing to tune
Cost     none
Not when the number of steps is not known beforehand: the factor depends on it
Source   cosine: Loshchilov and Hutter 2016, arXiv:1608.03983; step: epochs 30, 60 and 80 of 90 in Goyal et al. 2017,
         arXiv:1706.02677
"""

import math

_DROPS = (1 / 3, 2 / 3, 8 / 9)  # of the way


def decay_factor(step, steps, kind):
    """Fraction of the full learning rate at `step` (0-based, of `steps`), 0 to 1; kind is constant, cosine or step."""
    if kind == "constant":
        return 1.0
    way = min(step / steps, 1.0)
    if kind == "cosine":
        return (1 + math.cos(math.pi * way)) / 2
    return 0.1 ** sum(way >= drop for drop in _DROPS)
