"""Do two functions do the same work? Checked before anything is timed, so that nothing unequal is compared.

Each arm is run on the same inputs. Refused are: another batch size, shape or dtype; NaN; values that differ beyond
the tolerance; answers that change from call to call (dropout left on); answers that were stored and not computed.
"""

from contextlib import ExitStack

import numpy as np

from labkit.errors import MeasureError
from labkit.measure.arrays import address, arrays, changed, leaves, reversed_values, scrambled, writeable

CHECKED = 3  # of the rotating ones


def check_same_work(arms, calls, *, tolerance, batch=None, run=None):
    """Raise a MeasureError that says what differs unless all arms do the same work.

    arms       {name: fn}; the first is what the others are held against
    calls      argument tuples, of which the first three are tried
    tolerance  largest difference allowed, relative to the largest absolute value of the first arm's output
    batch      leading dimension every output must have, or None
    run        (fn, args) -> output; how to call, when something has to be done before
    """
    run = run or (lambda fn, args: fn(*args))
    first, *_ = arms
    answers = [
        {name: checked_answer(name, fn, args, tolerance, run) for name, fn in arms.items()} for args in calls[:CHECKED]
    ]
    for index, found in enumerate(answers):
        check_batch(first, found[first], batch)
        for name in arms:
            if text := difference(found[first], found[name], tolerance):
                stale = index and not difference(answers[0][name], found[name], tolerance)
                refuse(name, first, f"{STALE}, while {first!r} follows" if stale else text)
    check_follows_input(arms, calls[0], run, answers[0], tolerance)


def checked_answer(name, fn, args, tolerance, run):
    """The leaves of what `fn` answers, which must be the same twice, and computed."""
    once = run(fn, args)
    found = leaves(once)
    again = run(fn, args)
    if text := difference(found, leaves(again), tolerance):
        raise MeasureError(
            f"{name!r} answers differently to the same input.",
            expected="the same output from two calls",
            found=text,
            fix="switch dropout off with model.eval(); undo what a call changes, or seed it, with Plan(before=...)",
        )
    check_computes(name, fn, args, run, (once, again))
    return found


STALE = "it gives the same answer to another input, as if the result were cached"


def refuse(name, first, text):
    raise MeasureError(
        f"{name!r} does not do the same work as {first!r}.",
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


def check_computes(name, fn, args, run, outputs):
    """An output in the same memory as the last one is overwritten: whoever computes puts it right again."""
    for old, new in zip(*map(arrays, outputs), strict=True):
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


def check_follows_input(arms, args, run, before, tolerance):
    """Reverse the inputs in place: every arm must give the new answer, not the one it had."""
    given = [array for array in arrays(args) if writeable(array)]
    if not given:
        return
    (first, fn), *others = arms.items()
    with ExitStack() as undo:
        for array in given:
            undo.enter_context(changed(array, reversed_values(array)))
        wanted = leaves(run(fn, args))
        moved = difference(before[first], wanted, tolerance)
        for name, other in others:
            found = leaves(run(other, args))
            if text := difference(wanted, found, tolerance):
                also = difference(before[name], found, tolerance)
                if bool(moved) != bool(also):
                    stale, alive = (name, first) if moved else (first, name)
                    refuse(stale, alive, f"{STALE}, while {alive!r} follows")
                refuse(name, first, f"when the input changes, {text}")


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
