"""How near is an engine's answer to the right one, and how near must it be?"""

import numpy as np

from labkit.engines import fidelity
from labkit.export.variation import ROUNDING

# SQNR in dB. In fp32 on a CPU, engines were seen to agree within 105 dB; a GPU may round products
# to TF32.
EXACT_DB = 60.0
ON_GPU_DB = 40.0


def limit_db(served):
    """Return the SQNR that an engine has to reach: in fp32 it may differ by rounding only."""
    if served.precision != "fp32":
        return fidelity.ENGINE_DB
    return EXACT_DB if served.device.startswith("cpu") else ON_GPU_DB


def agreement(right, answer, served):
    """Return the SQNR of an engine's answer, and the least that is enough, in dB.

    In fp32 it is the weakest channel's where that is too low: one whose variation is lost in the
    figure of the whole.
    """
    db, limit = _agreement_db(right, answer), limit_db(served)
    if served.precision != "fp32" or not db >= limit:
        return db, limit

    # What rounding explains counts as equal: in a channel that hardly varies it would be much.
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
    """Return True where an engine's answer counts as the same."""
    db, limit = agreement(right, answer, served)
    return db >= limit


def _agreement_db(right, answer):
    """Return the SQNR of an answer in dB: -inf for another shape, or a number that is not finite
    where it should be.
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
