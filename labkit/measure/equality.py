"""Do two functions do the same work? Checked before anything is timed, so that nothing unequal is compared.

Each arm is called twice on each of the first three inputs. Where one input is given, the arms are also called on a
reversed copy of it. Refused are: another batch size, shape or dtype; NaN; values that differ beyond the tolerance;
answers that change from call to call (dropout left on); answers that were stored and not computed.

The inputs are never written to. An output is, in one case: where two calls return the same memory, its values are
overwritten before a third call, and put back after it. Only so does a stored answer differ from one that is computed
into the same memory each time.

`torch.testing.assert_close` would not do: it compares two outputs that are there, so it finds neither stored answers
nor those that change from call to call, and its messages do not name the likely mistake (another batch size, a
transposed output, a softmax missing or too many).
"""

import numpy as np

from labkit.errors import MeasureError

CHECKED = 3  # of the rotating inputs
STALE = "it gives the same answer to another input, as if the result were cached"


def check_same_work(arms, calls, *, tolerance, batch=None, run=lambda fn, args: fn(*args)):
    """Raise a MeasureError that says what differs unless all arms do the same work.

    arms       {name: fn}; the first is what the others are held against
    calls      argument tuples, of which the first three are tried
    tolerance  largest difference allowed, relative to the largest absolute value of the first arm's output
    batch      leading dimension every output must have, or None
    run        (fn, args) -> output; how to call
    """
    first = next(iter(arms))
    earlier = None
    for args in _tried(calls):
        found = {name: _checked_answer(name, fn, args, tolerance, run) for name, fn in arms.items()}
        shape = tuple(next(iter(found[first].values())).shape)
        if batch is not None and shape[:1] != (batch,):
            what = f"{first!r} does not work on a batch of {batch}."
            raise MeasureError(what, expected=f"shape ({batch}, ...)", found=f"shape {shape}")
        for name in arms:
            text = _difference(found[first], found[name], tolerance)
            if text and earlier:
                stale = [arm for arm in (first, name) if not _difference(earlier[arm], found[arm], tolerance)]
                if stale == [first]:
                    raise _refusal(first, name, STALE)
                text = STALE if stale == [name] else f"when the input changes, {text}"
            if text:
                raise _refusal(name, first, text)
        earlier = earlier or found


def _tried(calls):
    """The argument tuples that every arm is called with."""
    if len(calls) > 1 or not _arrays(calls[0]):
        return calls[:CHECKED]
    return [calls[0], _reversed_copy(calls[0])]


def _reversed_copy(args):
    """The arguments with the values of each array in reverse order: tokens stay tokens and images stay in range."""
    import torch
    from torch.utils._pytree import tree_map

    def reverse(value):
        if isinstance(value, np.ndarray):
            return np.flip(value).copy()
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().flip(list(range(value.ndim))).requires_grad_(value.requires_grad)

    return tree_map(reverse, args)


def _refusal(name, first, text):
    return MeasureError(
        f"{name!r} does not do the same work as {first!r}.",
        expected=f"outputs like those of {first!r}, within the tolerance",
        found=text,
        fix="make both compute the same thing, or state a tolerance that fits the precision",
    )


def _checked_answer(name, fn, args, tolerance, run):
    """The `_leaves` of what `fn` answers, which must be the same twice, and computed."""
    once = run(fn, args)
    found = _leaves(once)
    again = run(fn, args)
    text = _difference(found, _leaves(again), tolerance)
    if text:
        raise MeasureError(
            f"{name!r} answers differently to the same input.",
            expected="the same output from two calls",
            found=text,
            fix="switch dropout off with model.eval(); undo in the call what it changes, or seed it there",
        )
    inputs = {array.data_ptr() for array in _arrays(args)}
    for old, new in zip(_arrays(once), _arrays(again), strict=True):
        if old.data_ptr() == new.data_ptr() and new.data_ptr() not in inputs:
            _check_overwrites(name, new, lambda: run(fn, args))
    return found


def _check_overwrites(name, output, call):
    """Raise a MeasureError unless `call` writes its answer into the memory of `output` once more."""
    import torch

    real = output.is_floating_point() or output.is_complex()
    wrong = (output * float("nan") if real else output == 0).to(output.dtype)
    right = output.clone()
    with torch.inference_mode():
        output.copy_(wrong)
    try:
        found = _leaves(call())
    finally:
        with torch.inference_mode():
            output.copy_(right)
    if not _close(right, wrong) and any(_close(wrong.cpu(), leaf) for leaf in found.values()):
        raise MeasureError(
            f"{name!r} returns a stored result: it computes nothing when it is called again.",
            expected="an output made by this call",
            found="the memory of the last output, untouched (a cached result)",
            fix="take the cache out of what is timed",
        )


def _arrays(values):
    """The tensors and arrays of a nested value that can be written to, as tensors in the same memory."""
    import torch
    from torch.utils._pytree import tree_leaves

    found = []
    for value in tree_leaves(values):
        if isinstance(value, np.ndarray) and value.flags.writeable and value.flags.c_contiguous:
            value = torch.from_numpy(value)
        if isinstance(value, torch.Tensor) and value.is_contiguous() and value.numel():
            found.append(value.detach())
    return found


def _leaves(output):
    """{place: a copy on the CPU} of the arrays and numbers of a nested output."""
    import torch
    from torch.utils._pytree import keystr, tree_flatten_with_path

    pairs, _ = tree_flatten_with_path(output)
    found = {}
    for path, value in pairs:
        if value is None:
            what = "A function returns nothing, so there is no answer to compare."
            raise MeasureError(what, fix="return its result")
        if not isinstance(value, torch.Tensor):
            if np.asarray(value).dtype.kind not in "biuf":
                what, expected = "An output cannot be compared.", "tensors, arrays or numbers"
                raise MeasureError(what, expected=expected, found=type(value).__name__)
            value = torch.from_numpy(np.array(value))
        place = f"output {keystr(path)[1:-1]}" if len(pairs) > 1 else "the output"
        found[place] = value.detach().cpu().clone()
    return found


def _difference(wanted, found, tolerance):
    """In words, how `found` differs from `wanted` (both `_leaves`); None when it does not."""
    if len(wanted) != len(found):
        return f"{len(found)} outputs instead of {len(wanted)}"
    for old, (place, new) in zip(wanted.values(), found.items(), strict=True):
        if text := _leaf_difference(old, new, tolerance):
            return f"{place} {text}"
    return None


def _leaf_difference(wanted, found, tolerance):
    old, new = tuple(wanted.shape), tuple(found.shape)
    if old != new:
        if old and new and old[1:] == new[1:]:
            return f"has batch size {new[0]} instead of {old[0]} (shape {new} instead of {old})"
        return f"{'is transposed:' if sorted(old) == sorted(new) else 'has'} shape {new} instead of {old}"
    if wanted.dtype != found.dtype:
        return f"has dtype {found.dtype} instead of {wanted.dtype}".replace("torch.", "")
    a, b = wanted.double(), found.double()
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
    """True when two tensors differ by at most this share of the largest value of `a`."""
    a, b = a.double(), b.double()
    return a.shape == b.shape and bool(a.isclose(b, rtol=0, atol=tolerance * _largest(a), equal_nan=True).all())
