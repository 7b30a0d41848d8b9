"""Measure how near an engine's answer is to the right answer, and say how near it must be."""

import numpy as np

from labkit.engines import fidelity
from labkit.export.variation import ROUNDING

# SQNR in dB. In fp32 on a CPU, engines were seen to agree within 105 dB; a GPU may round products
# to TF32.
EXACT_DB = 60.0
ON_GPU_DB = 40.0


def limit_db(served):
    """Return the least SQNR, in dB, that the answers of a `Served` must have.

    The limit is higher for fp32, because there an engine may differ only by rounding.
    """
    if served.precision != "fp32":
        return fidelity.ENGINE_DB
    return EXACT_DB if served.device.startswith("cpu") else ON_GPU_DB


def agreement(right, answer, served):
    """Return (SQNR of an engine's answer, least SQNR that is enough), both in dB.

    Usually both numbers are those of the whole output. In fp32 each channel is judged as well,
    because a channel that varies little hardly changes the SQNR of the whole. If the whole reaches
    its limit and the weakest channel is below `fidelity.ENGINE_DB`, both numbers are those of this
    channel.

    right, answer  tensors: one output of the network, and the same output of the engine
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
    """Return True if an engine's answer reaches the limit of `agreement`.

    right, answer, served  as in `agreement`
    """
    db, limit = agreement(right, answer, served)
    return db >= limit


def _agreement_db(right, answer):
    """Return the SQNR of an engine's answer, in dB.

    It is infinite if all numbers are equal, where NaN counts as equal to NaN. It is minus infinite
    if the shapes differ, or if two numbers differ of which one is infinite or NaN.
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
