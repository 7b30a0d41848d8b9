"""Warm-up: start with a small learning rate.

What     none; constant: a small rate for the first steps, then the full rate; gradual: a straight
         line up to the full rate
When     large batches with a scaled learning rate: at the start the weights change fast and long
         steps go astray
Cost     none; a few epochs below the full rate
Not when the rate is small anyway; a constant warm-up ends in a jump that can undo it, gradual is
         the safer form
Source   Goyal et al. 2017, section 2.2, arXiv:1706.02677
"""


def warmup_factor(step, warmup_steps, kind):
    """Return the fraction of the full learning rate at a step, above 0 and at most 1.

    step          number of the step, from 0
    warmup_steps  number of steps that are warm-up. From this step on the factor is 1; a gradual
                  warm-up reaches 1 in the step before
    kind          "none", "constant" or "gradual"

    A constant warm-up has a tenth of the rate. In the source it has the rate of the small batch, 1
    over the scaling.
    """
    if kind == "none" or step >= warmup_steps:
        return 1.0
    if kind == "constant":
        return 0.1
    return (step + 1) / warmup_steps
