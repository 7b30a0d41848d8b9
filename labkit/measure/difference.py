"""Say in words how two outputs differ.

The text names the first tensor that differs, the size of the difference, and the likely mistake.
"""

import itertools

import numpy as np

from labkit.errors import MeasureError

MAX_DIMENSIONS = 5  # of tensors whose transpositions are tried: 120 orders
CAUSE_TOLERANCE = 0.02  # a mistake is named only if the outputs agree this well without it


def flatten(output):
    """Copy each array or number of a nested output to the CPU. Returns {name: tensor}.

    The names are written for error messages: "the output" if there is one tensor, "output 'logits'"
    if there are several.

    Raises  MeasureError: the output is None, or holds something that is not a number
    """
    import torch
    from torch.utils._pytree import keystr, tree_flatten_with_path

    leaves, _ = tree_flatten_with_path(output)
    tensors = {}
    for path, value in leaves:
        if value is None:
            raise MeasureError(
                "A function returns nothing, so there is no answer to compare.",
                fix="return its result",
            )
        if not isinstance(value, torch.Tensor):
            if np.asarray(value).dtype.kind not in "biuf":  # booleans, integers, floats
                raise MeasureError(
                    "An output cannot be compared.",
                    expected="tensors, arrays or numbers",
                    found=type(value).__name__,
                )
            value = torch.from_numpy(np.array(value))
        if value.layout != torch.strided:
            value = value.to_dense()
        name = "the output"
        if len(leaves) > 1:
            name = f"output {keystr(path)[1:-1]}"
        tensors[name] = value.detach().cpu().clone()
    return tensors


def difference_of(expected, actual, tolerance):
    """Return the first difference between two outputs as a text, or None if they are equal.

    expected, actual  {name: tensor}, as `flatten` returned them
    tolerance         largest difference allowed, relative to the largest value of the tensor in
                      `expected`
    """
    if len(expected) != len(actual):
        return f"{len(actual)} outputs instead of {len(expected)}"
    names = dict(zip(actual, expected, strict=True))  # a tuple beside a dictionary: by position
    if expected.keys() & actual.keys():
        if expected.keys() != actual.keys():
            return f"{', '.join(actual)} instead of {', '.join(expected)}"
        names = dict(zip(actual, actual, strict=True))
    for name, expected_name in names.items():
        difference = _tensor_difference(expected[expected_name], actual[name], tolerance)
        if difference:
            return f"{name} {difference}"
    return None


def _tensor_difference(expected, actual, tolerance):
    """Return how a tensor differs from the expected one, as the end of a sentence.

    Where a common mistake explains the difference, such as a missing softmax, the text names the
    mistake. Returns None where the tensors are equal within the tolerance.
    """
    expected_shape = tuple(expected.shape)
    shape = tuple(actual.shape)
    if expected_shape != shape:
        if expected_shape and shape and expected_shape[1:] == shape[1:]:
            return (
                f"has batch size {shape[0]} instead of {expected_shape[0]} (shape {shape} instead "
                f"of {expected_shape})"
            )
        if _is_transposed(expected, actual, max(tolerance, 1e-5)):
            return f"is transposed: shape {shape} instead of {expected_shape}"
        return f"has shape {shape} instead of {expected_shape}"
    if expected.dtype != actual.dtype:
        return f"has dtype {actual.dtype} instead of {expected.dtype}".replace("torch.", "")

    if not expected.isnan().equal(actual.isnan()):
        return f"has {actual.isnan().sum()} NaN instead of {expected.isnan().sum()}"
    if close(expected, actual, tolerance):
        return None
    cause_tolerance = max(min(tolerance, CAUSE_TOLERANCE), 1e-5)
    likely = _likely_mistake(expected, actual, cause_tolerance)
    expected = _as_doubles(expected)
    actual = _as_doubles(actual)

    # Equal infinities give a difference of NaN, which is none.
    error = ((expected - actual).abs() / _largest(expected)).nan_to_num(nan=0.0, posinf=np.inf)
    share = (error > tolerance).double().mean()
    message = (
        f"differs by up to {100 * error.max():.3g} % of the largest value (tolerance "
        f"{100 * tolerance:.3g} %), "
        f"in {100 * share:.0f} % of the places"
    )

    if likely:
        message += f": {likely}"
    return message


def _is_transposed(expected, actual, tolerance):
    """Return True if `actual` is `expected` with its dimensions in another order."""
    if sorted(expected.shape) != sorted(actual.shape) or expected.ndim > MAX_DIMENSIONS:
        return False
    orders = itertools.permutations(range(expected.ndim))
    return any(close(expected.permute(order), actual, tolerance) for order in orders)


def _as_doubles(tensor):
    """Return a tensor as float64.

    A complex tensor gets a last dimension of size 2, with the real and the imaginary part.
    """
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double()


def _likely_mistake(expected, actual, tolerance):
    """Name the common mistake that explains how two tensors of one shape differ, or return None.

    Each mistake is undone in turn: transposed dimensions, a missing softmax, a softmax too many.
    The mistake that is named is the first one without which the tensors agree within `tolerance`.
    Tensors that agree as they are hold no mistake, only rounding.
    """
    if close(expected, actual, tolerance):
        return None
    if actual.ndim >= 2 and close(expected, actual.mT, tolerance):
        return "it is transposed"
    if 2 < actual.ndim <= MAX_DIMENSIONS:
        for order in itertools.permutations(range(actual.ndim)):
            if close(expected.permute(order), actual, tolerance):
                return f"its dimensions are in the order {order}"
    if expected.is_complex():
        return None
    expected = _as_doubles(expected)
    actual = _as_doubles(actual)
    if actual.ndim == 0 or actual.shape[-1] == 1:  # the softmax of one number is 1, whatever it is
        return None
    if close(expected, actual.softmax(-1), tolerance):
        return "a softmax is missing"
    if close(expected.softmax(-1), actual, tolerance):
        return "it has a softmax too many"
    return None


def _largest(values):
    """Return the largest finite absolute value; 1 for a tensor that is empty or all zeros."""
    if not values.numel():
        return 1.0
    return float(values.abs().where(values.isfinite(), 0.0).amax()) or 1.0


def close(expected, actual, tolerance=0.0):
    """Return True if no number differs by more than `tolerance` times the largest of `expected`."""
    if expected.shape != actual.shape:
        return False
    if (
        not expected.is_floating_point()
        and not expected.is_complex()
        and expected.dtype == actual.dtype
    ):
        if expected.equal(actual):
            return True
        if tolerance == 0:  # integers beyond 2^53 would be equal in double precision
            return False
    expected = _as_doubles(expected)
    actual = _as_doubles(actual)
    atol = tolerance * _largest(expected)
    return bool(actual.isclose(expected, rtol=0, atol=atol, equal_nan=True).all())
