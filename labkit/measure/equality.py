"""Do two functions do the same work? Checked before anything is timed, so that nothing unequal is compared.

Each arm is run on the same inputs. Refused are: another batch size, shape or dtype; NaN; values that differ beyond
the tolerance; answers that change from call to call (dropout left on); answers that were stored and not computed.
"""

from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from labkit.errors import MeasureError

CHECKED_INPUTS = 3  # of the rotating ones


@dataclass(frozen=True)
class Leaf:
    """One array of an output: where it was, what it was, and its values as float64."""

    place: str
    dtype: str
    values: np.ndarray


def check_same_work(arms, calls, *, tolerance, batch=None, run=None):
    """Raise a MeasureError that says what differs unless all arms do the same work.

    arms       {name: fn}; the first is what the others are held against
    calls      argument tuples
    tolerance  largest difference allowed, relative to the largest absolute value of the first arm's output
    batch      leading dimension every output must have, or None
    run        (fn, args) -> output; how to call, when something has to be done before
    """
    run = run or (lambda fn, args: fn(*args))
    first, *_ = arms
    earlier = {}
    for args in calls[:CHECKED_INPUTS]:
        wanted = None
        for name, fn in arms.items():
            found = leaves(run(fn, args))
            check_repeats(name, found, leaves(run(fn, args)), tolerance)
            if wanted is None:
                wanted = found
                check_batch(name, found, batch)
            elif text := difference(wanted, found, tolerance):
                stale = name in earlier and not difference(earlier[name], found, tolerance)
                refuse(name, first, f"{STALE}, while {first!r} follows" if stale else text)
            earlier[name] = found
    for name, fn in arms.items():
        check_computes(name, fn, calls[0], run)
    check_follows_input(arms, calls[0], run, tolerance)


STALE = "it gives the same answer to another input, as if the result were cached"


def refuse(name, first, text):
    raise MeasureError(
        f"{name!r} does not do the same work as {first!r}: {text}.",
        expected=f"outputs like those of {first!r}, within the tolerance",
        found=text,
        fix="make both compute the same thing, or state a tolerance that fits the precision",
    )


def check_batch(name, found, batch):
    """The leading dimension must be the batch size that was stated."""
    shape = found[0].values.shape
    if batch is not None and shape[:1] != (batch,):
        raise MeasureError(
            f"{name!r} does not work on a batch of {batch}.", expected=f"shape ({batch}, ...)", found=f"shape {shape}"
        )


def check_repeats(name, once, again, tolerance):
    """The same input must give the same answer."""
    if text := difference(once, again, tolerance):
        raise MeasureError(
            f"{name!r} answers differently to the same input.",
            expected="the same output from two calls",
            found=text,
            fix="switch dropout off with model.eval(); undo what a call changes, or seed it, with Plan(before=...)",
        )


def check_computes(name, fn, args, run):
    """An output in the same memory as the last one is overwritten: whoever computes puts it right again."""
    first = run(fn, args)
    second = run(fn, args)
    for old, new in zip(arrays(first), arrays(second), strict=True):
        shared = any(address(new) == address(given) for given in arrays(args))
        if address(old) != address(new) or shared or not writeable(new):
            continue
        [kept], [fake] = leaves(new), leaves(scrambled(new))
        with changed(new, scrambled(new)):
            third = leaves(run(fn, args))
        stale = not same(kept.values, fake.values) and any(same(fake.values, leaf.values) for leaf in third)
        if stale:
            raise MeasureError(
                f"{name!r} returns a stored result: it computes nothing when it is called again.",
                expected="an output made by this call",
                found="the memory of the last output, untouched (a cached result)",
                fix="take the cache out of what is timed",
            )


def check_follows_input(arms, args, run, tolerance):
    """Reverse the inputs in place: every arm must give the new answer, not the one it had."""
    given = [array for array in arrays(args) if writeable(array)]
    if not given:
        return
    (first, fn), *others = arms.items()
    before = {name: leaves(run(each, args)) for name, each in arms.items()}
    with ExitStack() as undo:
        for array in given:
            undo.enter_context(changed(array, reversed_values(array)))
        wanted = leaves(run(fn, args))
        moved = difference(before[first], wanted, tolerance)
        for name, other in others:
            found = leaves(run(other, args))
            if text := difference(wanted, found, tolerance):
                stale = moved and not difference(before[name], found, tolerance)
                refuse(name, first, f"{STALE}, while {first!r} follows" if stale else f"when the input changes, {text}")


# ---- what differs


def difference(wanted, found, tolerance):
    """In words, how `found` differs from `wanted` (lists of leaves); None when it does not."""
    if len(wanted) != len(found):
        return f"{len(found)} outputs instead of {len(wanted)}"
    texts = (leaf_difference(a, b, tolerance) for a, b in zip(wanted, found, strict=True))
    return next((text for text in texts if text), None)


def leaf_difference(wanted, found, tolerance):
    a, b, where = wanted.values, found.values, found.place
    if a.shape != b.shape:
        return f"{where} {shape_difference(a.shape, b.shape)}"
    if wanted.dtype != found.dtype:
        return f"{where} has dtype {found.dtype} instead of {wanted.dtype}"
    for what, test in (("NaN", np.isnan), ("infinite values", np.isinf)):
        if not np.array_equal(test(a), test(b)):
            return f"{where} has {int(test(b).sum())} {what} instead of {int(test(a).sum())}"
    finite = np.isfinite(a)
    if not same(a[~finite], b[~finite]):
        return f"{where} has infinite values of the other sign"
    error = np.abs(a[finite] - b[finite])
    scale = np.abs(a[finite]).max(initial=0.0) or 1.0
    if error.max(initial=0.0) <= tolerance * scale:
        return None
    return f"{where} {value_difference(a, b, error / scale, tolerance)}"


def shape_difference(a, b):
    if a and b and a[1:] == b[1:]:
        return f"has batch size {b[0]} instead of {a[0]} (shape {b} instead of {a})"
    if sorted(a) == sorted(b):
        return f"is transposed: shape {b} instead of {a}"
    return f"has shape {b} instead of {a}"


def value_difference(a, b, relative, tolerance):
    """The known mistakes by name, then the size of the difference."""
    hints = []
    if a.ndim == 2 and a.shape[0] == a.shape[1] and near(a, b.T, tolerance):
        hints.append("it is transposed")
    if a.ndim and near(a, softmax(b), tolerance):
        hints.append("a softmax is missing")
    if a.ndim and near(softmax(a), b, tolerance):
        hints.append("it has a softmax too many")
    size = (
        f"differs by up to {100 * relative.max():.3g} % of the largest value "
        f"(tolerance {100 * tolerance:.3g} %), in {100 * np.mean(relative > tolerance):.0f} % of the places"
    )
    return f"{size}: {', '.join(hints)}" if hints else size


def near(a, b, tolerance):
    return np.abs(a - b).max(initial=0.0) <= max(tolerance, 1e-5) * (np.abs(a).max(initial=0.0) or 1.0)


def same(a, b):
    return np.array_equal(a, b, equal_nan=True)


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


# ---- arrays of torch and of NumPy alike


def leaves(output, place="the output"):
    """The arrays of a nested output, copied; one array in a list counts as the array."""
    if output is None:
        raise MeasureError(
            "A function returns nothing, so nobody can see whether it does the work.", fix="return its result"
        )
    if isinstance(output, Mapping):
        return [leaf for key, value in output.items() for leaf in leaves(value, f"output {key!r}")]
    if isinstance(output, (list, tuple)):
        if len(output) == 1:
            return leaves(output[0], place)
        return [leaf for index, value in enumerate(output) for leaf in leaves(value, f"output {index}")]
    if is_tensor(output):
        return [Leaf(place, str(output.dtype).removeprefix("torch."), output.detach().cpu().double().numpy().copy())]
    values = np.asarray(output)
    if values.dtype.kind not in "biuf":
        raise MeasureError(
            "An output cannot be compared.", expected="tensors, arrays or numbers", found=type(output).__name__
        )
    return [Leaf(place, str(values.dtype), np.array(values, dtype=float))]


def arrays(values):
    """The tensors and arrays in a nested value, themselves."""
    if is_tensor(values) or isinstance(values, np.ndarray):
        return [values]
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        return []
    return [array for value in values for array in arrays(value)]


def is_tensor(value):
    return hasattr(value, "untyped_storage")


def address(array):
    return array.data_ptr() if is_tensor(array) else array.ctypes.data


def writeable(array):
    if is_tensor(array):
        return array.is_contiguous() and array.numel() > 0
    return array.flags.writeable and array.size > 0


def reversed_values(array):
    """The same values in the opposite order: tokens stay tokens and images stay in range."""
    if is_tensor(array):
        return array.detach().flatten().flip(0).reshape(array.shape)
    return array.reshape(-1)[::-1].reshape(array.shape).copy()


def scrambled(array):
    """Values no computation gives: NaN, or for whole numbers each moved by one."""
    if is_tensor(array):
        real = array.is_floating_point() or array.is_complex()
        return array.detach() * float("nan") if real else array.detach() == 0
    return array * np.nan if array.dtype.kind in "fc" else array == 0


@contextmanager
def changed(array, values):
    """Put other values into the array's memory, and its own back at the end."""
    kept = array.detach().clone() if is_tensor(array) else array.copy()
    write(array, values)
    try:
        yield
    finally:
        write(array, kept)


def write(array, values):
    if is_tensor(array):
        import torch

        with torch.inference_mode():
            array.copy_(values)
    else:
        array[...] = values
