"""How near is an engine's answer to the right answer, and how near must it be?"""

import numpy as np

from labkit.engines import fidelity
from labkit.export.variation import ROUNDING

# SQNR in dB. In fp32 on a CPU, engines were seen to agree within 105 dB; a GPU may round products
# to TF32.
EXACT_DB = 60.0
ON_GPU_DB = 40.0


def limit_db(served):
    """Return the least SQNR, in dB, that the answers of a `Served` have to reach.

    In fp32 an engine may differ by rounding only, so its limit is higher.
    """
    if served.precision != "fp32":
        return fidelity.ENGINE_DB
    return EXACT_DB if served.device.startswith("cpu") else ON_GPU_DB


def agreement(right, answer, served):
    """Return (SQNR of an engine's answer, the least SQNR that is enough), both in dB.

    The SQNR is usually that of the whole output. In fp32 each channel must reach
    `fidelity.ENGINE_DB` as well, for a channel that varies little hardly counts in the figure of
    the whole: where the whole is good enough but the weakest channel is not, the two numbers are
    those of the channel.

    right, answer  tensors: one output of the network and of the engine
    served         the `Served` that answered
    """
    db, limit = _agreement_db(right, answer), limit_db(served)
    if served.precision != "fp32" or not db >= limit:
        return db, limit

    # A difference that rounding explains counts as none: a channel that hardly varies has little
    # beside which it could be small.
    right = right.cpu().double()
    answer = answer.cpu().double()
    if not right.ndim or not right.isfinite().all():
        return db, limit
    rounding = ROUNDING * right.abs().amax(0, keepdim=True)
    rounded = right.where((answer - right).abs() <= rounding, answer)
    weakest = fidelity.between(
        np.atleast_1d(right.numpy()), np.atleast_1d(rounded.numpy())
    ).lowest_db
    if weakest < fidelity.ENGINE_DB:
        return weakest, fidelity.ENGINE_DB
    return db, limit


def agree(right, answer, served):
    """Return True where an engine's answer is near enough to the right answer: see `agreement`."""
    db, limit = agreement(right, answer, served)
    return db >= limit


def _agreement_db(right, answer):
    """Return the SQNR of an engine's answer, in dB.

    Infinite where all numbers are equal; NaN equals NaN. Minus infinite where the shapes differ, or
    where two numbers differ and one of them is not finite.
    """
    right = right.cpu().double().numpy()
    answer = answer.cpu().double().numpy()
    if right.shape != answer.shape:
        return -np.inf
    same = (right == answer) | (np.isnan(right) & np.isnan(answer))
    if same.all():
        return np.inf
    if not np.isfinite(right[~same]).all() or not np.isfinite(answer[~same]).all():
        return -np.inf

    # Numbers that are not finite are equal in both: they do not count. A single number is a row of
    # its own.
    both_finite = np.isfinite(right)
    right = np.atleast_1d(np.where(both_finite, right, 0))
    answer = np.atleast_1d(np.where(both_finite, answer, 0))
    compared = fidelity.between(right, answer)
    return compared.db
