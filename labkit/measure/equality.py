"""Do two functions do the same work? Checked before anything is timed, so that nothing unequal is compared.

Each arm is run on the same inputs. Refused are: another batch size, shape or dtype; NaN; values that differ beyond
the tolerance; answers that change from call to call (dropout left on); answers that were stored and not computed.
Arrays of NumPy are looked at as tensors that share their memory. `torch.testing.assert_close` would not do: it compares
two outputs that are there, so it finds neither stored answers nor those that change from call to call, and its messages
do not name the likely mistake (another batch size, a transposed output, a softmax missing or too many).
"""

from collections.abc import Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from labkit.errors import MeasureError

CHECKED = 3  # of the rotating inputs
STALE = "it gives the same answer to another input, as if the result were cached"


class _Leaf(NamedTuple):
    """One array of an output: where it was, what it was, and its values as float64."""

    place: str
    dtype: str
    values: Any


def check_same_work(arms, calls, *, tolerance, batch=None, run=lambda fn, args: fn(*args)):
    """Raise a MeasureError that says what differs unless all arms do the same work.

    arms       {name: fn}; the first is what the others are held against
    calls      argument tuples, of which the first three are tried, and the first reversed
    tolerance  largest difference allowed, relative to the largest absolute value of the first arm's output
    batch      leading dimension every output must have, or None
    run        (fn, args) -> output; how to call, when something has to be done before
    """
    first, *_ = arms
    earlier = {}
    for number, args in enumerate((calls[0], *calls[:CHECKED])):
        if number == 1 and not _in_memory(args):
            continue
        with _reversed(args) if number == 1 else nullcontext():
            found = {name: _checked_answer(name, fn, args, tolerance, run) for name, fn in arms.items()}
        shape = tuple(found[first][0].values.shape)
        if batch is not None and shape[:1] != (batch,):
            what = f"{first!r} does not work on a batch of {batch}."
            raise MeasureError(what, expected=f"shape ({batch}, ...)", found=f"shape {shape}")
        for name in arms:
            text = _difference(found[first], found[name], tolerance)
            if text and earlier:
                kept = {each: not _difference(earlier[each], found[each], tolerance) for each in (first, name)}
                if kept[first] and not kept[name]:
                    _refuse(first, name, STALE)
                text = STALE if kept[name] and not kept[first] else f"when the input changes, {text}"
            if text:
                _refuse(name, first, text)
        earlier = earlier or found


def _refuse(name, first, text):
    raise MeasureError(
        f"{name!r} does not do the same work as {first!r}.",
        expected=f"outputs like those of {first!r}, within the tolerance",
        found=text,
        fix="make both compute the same thing, or state a tolerance that fits the precision",
    )


def _checked_answer(name, fn, args, tolerance, run):
    """The leaves of what `fn` answers, which must be the same twice, and computed."""
    once = run(fn, args)
    found = _leaves(once)
    again = run(fn, args)
    if text := _difference(found, _leaves(again), tolerance):
        raise MeasureError(
            f"{name!r} answers differently to the same input.",
            expected="the same output from two calls",
            found=text,
            fix="switch dropout off with model.eval(); undo what a call changes, or seed it, with Plan(before=...)",
        )
    given = {array.data_ptr() for array in _in_memory(args)}
    for old, new in zip(_in_memory(once), _in_memory(again), strict=True):
        if old.data_ptr() == new.data_ptr() and new.data_ptr() not in given:
            _check_overwrites(name, new, lambda: run(fn, args))
    return found


def _check_overwrites(name, output, call):
    """An output in the same memory as the last one gets values no computation gives: who computes puts it right."""
    real = output.is_floating_point() or output.is_complex()
    wrong = (output * float("nan") if real else output == 0).to(output.dtype)
    [kept], [fake] = _leaves(output), _leaves(wrong)
    with _changed(output, wrong):
        found = _leaves(call())
    if not _close(kept.values, fake.values) and any(_close(fake.values, leaf.values) for leaf in found):
        raise MeasureError(
            f"{name!r} returns a stored result: it computes nothing when it is called again.",
            expected="an output made by this call",
            found="the memory of the last output, untouched (a cached result)",
            fix="take the cache out of what is timed",
        )


@contextmanager
def _reversed(args):
    """The arrays among the arguments the other way round, in place: tokens stay tokens and images stay in range."""
    with ExitStack() as undo:
        for array in _in_memory(args):
            undo.enter_context(_changed(array, array.flatten().flip(0).reshape(array.shape)))
        yield


@contextmanager
def _changed(array, values):
    """Put other values into a tensor's memory, and its own back at the end."""
    import torch

    kept = array.clone()
    with torch.inference_mode():
        array.copy_(values)
    try:
        yield
    finally:
        with torch.inference_mode():
            array.copy_(kept)


def _named(value, place="the output"):
    """[(place, what stands there)] of a nested value; one array in a list counts as the array."""
    if isinstance(value, Mapping):
        parts = [(f"output {key!r}", each) for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"output {index}" if len(value) > 1 else place, each) for index, each in enumerate(value)]
    else:
        return [(place, value)]
    return [pair for where, each in parts for pair in _named(each, where)]


def _leaves(output):
    """The arrays and numbers of a nested output, copied: a list of `_Leaf`."""
    import torch

    found = []
    for place, value in _named(output):
        if value is None:
            what = "A function returns nothing, so nobody can see whether it does the work."
            raise MeasureError(what, fix="return its result")
        if not isinstance(value, torch.Tensor):
            if np.asarray(value).dtype.kind not in "biuf":
                what, expected = "An output cannot be compared.", "tensors, arrays or numbers"
                raise MeasureError(what, expected=expected, found=type(value).__name__)
            value = torch.from_numpy(np.array(value))
        found.append(_Leaf(place, str(value.dtype).removeprefix("torch."), value.detach().cpu().double().clone()))
    return found


def _in_memory(values):
    """The tensors and arrays of a nested value that can be written to, as tensors in the same memory."""
    import torch

    found = []
    for _, value in _named(values):
        if isinstance(value, np.ndarray) and value.flags.writeable and value.flags.c_contiguous:
            value = torch.from_numpy(value)
        if isinstance(value, torch.Tensor) and value.is_contiguous() and value.numel():
            found.append(value.detach())
    return found


def _difference(wanted, found, tolerance):
    """In words, how `found` differs from `wanted` (lists of leaves); None when it does not."""
    if len(wanted) != len(found):
        return f"{len(found)} outputs instead of {len(wanted)}"
    for old, new in zip(wanted, found, strict=True):
        if text := _leaf_difference(old, new, tolerance):
            return f"{new.place} {text}"
    return None


def _leaf_difference(wanted, found, tolerance):
    a, b = wanted.values, found.values
    old, new = tuple(a.shape), tuple(b.shape)
    if old != new:
        if old and new and old[1:] == new[1:]:
            return f"has batch size {new[0]} instead of {old[0]} (shape {new} instead of {old})"
        return f"{'is transposed:' if sorted(old) == sorted(new) else 'has'} shape {new} instead of {old}"
    if wanted.dtype != found.dtype:
        return f"has dtype {found.dtype} instead of {wanted.dtype}"
    if not a.isnan().equal(b.isnan()):
        return f"has {b.isnan().sum()} NaN instead of {a.isnan().sum()}"
    if _close(a, b, tolerance):
        return None
    error = ((a - b).abs() / _largest(a)).nan_to_num(nan=0.0, posinf=np.inf)
    share = (error > tolerance).double().mean()
    text = f"differs by up to {100 * error.max():.3g} % of the largest value (tolerance {100 * tolerance:.3g} %), "
    mistakes = {"it is transposed": (a, b.T if b.ndim == 2 else b)}
    if b.ndim:
        mistakes["a softmax is missing"] = (a, b.softmax(-1))
        mistakes["it has a softmax too many"] = (a.softmax(-1), b)
    known = [name for name, pair in mistakes.items() if _close(*pair, max(tolerance, 1e-5))]
    return f"{text}in {100 * share:.0f} % of the places" + "".join(f": {name}" for name in known)


def _largest(values):
    """The largest finite absolute value, or 1 where all are 0."""
    return float(values.abs().where(values.isfinite(), 0.0).amax()) or 1.0 if values.numel() else 1.0


def _close(a, b, tolerance=0.0):
    """Whether two tensors are equal, or differ by no more than so much of the largest value of `a`."""
    return a.shape == b.shape and bool(a.isclose(b, rtol=0, atol=tolerance * _largest(a), equal_nan=True).all())
