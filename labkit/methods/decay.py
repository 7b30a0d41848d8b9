"""Decay: end with a small learning rate.

What     constant: no decay. cosine: from the full rate down to 0 along half a cosine. step: after
         1/3, 2/3 and 8/9 of the steps the rate is divided by 10
When     always: long steps find the valley, short steps its floor; cosine has nothing to tune
Cost     none
Not when the number of steps is not known beforehand: the factor depends on it
Source   cosine: Loshchilov and Hutter 2016, arXiv:1608.03983; step: epochs 30, 60 and 80 of 90 in
         Goyal et al. 2017, arXiv:1706.02677
"""

import math

_DROPS = (1 / 3, 2 / 3, 8 / 9)  # of "step", as shares of the steps


def decay_factor(step, steps, kind):
    """Return the fraction of the full learning rate at a step, 0 to 1.

    step   number of the step, from 0
    steps  number of steps of the training
    kind   "constant", "cosine" or "step"
    """
    if kind == "constant":
        return 1.0
    progress = min(step / steps, 1.0)  # share of the steps that are done
    if kind == "cosine":
        return (1 + math.cos(math.pi * progress)) / 2
    drops = sum(progress >= drop for drop in _DROPS)
    return 0.1**drops
