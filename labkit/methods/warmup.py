"""Warm-up: start with a small learning rate.

What     none: the full rate from the first step. constant: a small rate for the first steps, then
         the full rate. gradual: a straight line up to the full rate
When     large batches with a scaled learning rate: at the start the weights change fast, and long
         steps would lead astray
Cost     no computation, but a few epochs below the full rate
Not when the rate is small anyway. Of the two forms gradual is safer: a constant warm-up ends in a
         jump of the rate, which can undo its effect
Source   Goyal et al. 2017, section 2.2, arXiv:1706.02677
"""


def warmup_factor(step, warmup_steps, kind):
    """Return the fraction of the full learning rate at a step, above 0 and at most 1.

    step          number of the step, from 0
    warmup_steps  number of steps of the warm-up; at step `warmup_steps` and after it, the factor is
                  1
    kind          "none", "constant" or "gradual"

    A constant warm-up has a factor of 0.1. In the source the factor is the small batch over the
    large one. A gradual warm-up rises by 1 / warmup_steps in each step, so its last step has a
    factor of 1 already.
    """
    if kind == "none" or step >= warmup_steps:
        return 1.0
    if kind == "constant":
        return 0.1
    return (step + 1) / warmup_steps
