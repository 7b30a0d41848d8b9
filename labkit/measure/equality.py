"""Check that functions do the same work, before they are timed.

Each function (an arm) is called twice on each of the first three inputs. If there is one input, the
arms are also called on a copy of it in reverse order. An arm is refused if

- its output has another batch size, shape or dtype than that of the first arm;
- its output has NaN in other places, or values that differ by more than the tolerance;
- its answer changes from call to call (dropout left on);
- its answer was stored instead of computed;
- it writes to its input: the arms share their inputs, so the next arm would work on other numbers.

The check itself never writes to an input. It writes to an output in one case: if two calls return
the same memory, the output is overwritten before a third call and restored after it. This
distinguishes a stored answer from one that is computed into the same memory in every call.

`torch.testing.assert_close` compares two outputs that exist already. It cannot find an answer that
was stored, nor an answer that changes from call to call. Its messages do not name the likely
mistake (another batch size, a transposed output, a softmax missing or too many).
"""

import functools
import math

import numpy as np

from labkit.errors import MeasureError
from labkit.measure.difference import close, difference_of, flatten

CHECKED_INPUTS = 3  # of the rotating inputs
STALE = "it gives the same answer to another input, as if the result were cached"


def check_same_work(
    arms, calls, *, tolerance, batch=None, run=lambda fn, arguments: fn(*arguments)
):
    """Raise a MeasureError that names the difference unless all arms do the same work.

    arms       {name: function}; all are compared with the first
    calls      list of argument tuples, of which the first three are used
    tolerance  largest difference allowed, relative to the largest absolute value of the first arm's
               output
    batch      leading dimension that every output must have; None: any
    run        function (fn, arguments) -> output that calls an arm
    """
    if not (tolerance >= 0 and math.isfinite(tolerance)):
        raise MeasureError(
            "The tolerance is no number to compare with.",
            expected="0 or more",
            found=str(tolerance),
        )
    first = next(iter(arms))
    previous_outputs = None  # {arm: its output for the first input}
    for arguments in _choose_calls(calls):
        outputs = {}
        for name, fn in arms.items():
            inputs = _writable_tensors((arguments, _bound_arguments(fn)))
            copies = [tensor.clone() for tensor in inputs]
            outputs[name] = _steady_output(name, fn, arguments, tolerance, run)
            if not all(map(close, copies, inputs)):
                raise MeasureError(
                    f"{name!r} writes to its input.",
                    expected="inputs that stay as they are: all arms share them",
                    found="other numbers in an input after the call",
                    fix="let the arm work on a copy of its own (x.clone()), or leave out what "
                    "works in place",
                )

        shape = tuple(next(iter(outputs[first].values())).shape)
        if batch is not None and shape[:1] != (batch,):
            raise MeasureError(
                f"{first!r} does not work on a batch of {batch}.",
                expected=f"shape ({batch}, ...)",
                found=f"shape {shape}",
            )

        for name in arms:
            difference = difference_of(outputs[first], outputs[name], tolerance)
            if difference and previous_outputs:
                # The arms agreed on the first input. An arm that answers the same to both inputs
                # is the wrong one.
                first_is_stale = not difference_of(
                    previous_outputs[first], outputs[first], tolerance
                )
                arm_is_stale = not difference_of(previous_outputs[name], outputs[name], tolerance)
                if first_is_stale and not arm_is_stale:
                    raise _refusal(first, name, STALE)
                if arm_is_stale and not first_is_stale:
                    difference = STALE
                else:
                    difference = f"when the input changes, {difference}"
            if difference:
                raise _refusal(name, first, difference)
        if previous_outputs is None:
            previous_outputs = outputs


def _bound_arguments(fn):
    """Return the arguments that `functools.partial` bound to a function: a list of tuples.

    A partial of a partial gives one tuple for each of the two.
    """
    bound = []
    while isinstance(fn, functools.partial):
        bound.append(fn.args)
        fn = fn.func
    return bound


def _refusal(name, reference, difference):
    return MeasureError(
        f"{name!r} does not do the same work as {reference!r}.",
        expected=f"outputs like those of {reference!r}, within the tolerance",
        found=difference,
        fix="make both compute the same thing, or state a tolerance that fits the precision",
    )


def _choose_calls(calls):
    """Return the argument tuples that every arm is called with, as a list.

    These are the first three of `calls`. If `calls` holds a single tuple with arrays, a second
    tuple is added: the same arrays in reverse order.
    """
    import torch

    # torch has no public name for its functions of nested values
    from torch.utils._pytree import tree_map

    if len(calls) > 1 or not _writable_tensors(calls[0]):
        return calls[:CHECKED_INPUTS]

    # Reversed values are another input whose tokens are in the vocabulary and whose images are in
    # range.
    def reverse(value):
        if isinstance(value, np.ndarray):
            return np.flip(value).copy()
        if isinstance(value, torch.Tensor):
            dimensions = list(range(value.ndim))
            return value.detach().flip(dimensions).requires_grad_(value.requires_grad)
        return value

    return [calls[0], tree_map(reverse, calls[0])]


def _steady_output(name, fn, arguments, tolerance, run):
    """Call `fn` twice with the same arguments, and return its output as {name: tensor}.

    The names are those of `flatten`.

    run     function (fn, arguments) -> output that makes the call
    Raises  MeasureError: the two outputs differ, or the second call returned a stored answer
    """
    output = run(fn, arguments)
    tensors = flatten(output)  # copies: the second call may write into the same memory
    second_output = run(fn, arguments)
    difference = difference_of(tensors, flatten(second_output), tolerance)
    if difference:
        raise MeasureError(
            f"{name!r} answers differently to the same input.",
            expected="the same output from two calls",
            found=difference,
            fix="switch dropout off with model.eval(); undo in the call what it "
            "changes, or seed it there",
        )

    # The same memory twice: a buffer that is filled in each call, an input that is passed through,
    # or a stored answer.
    inputs = _writable_tensors((arguments, _bound_arguments(fn)))
    input_addresses = {tensor.data_ptr() for tensor in inputs}
    pairs = zip(_writable_tensors(output), _writable_tensors(second_output), strict=True)
    for tensor, second_tensor in pairs:
        address = second_tensor.data_ptr()
        if address == tensor.data_ptr() and address not in input_addresses:
            _check_overwrites(name, second_tensor, lambda: run(fn, arguments))
    return tensors


def _check_overwrites(name, output, call):
    """Raise a MeasureError if a call returns a stored answer instead of computing one.

    The memory of `output` is filled with wrong values before the call. An arm that computes
    replaces them; a stored answer still holds them. The right values are restored at the end.

    output  tensor whose memory two calls have returned
    call    function () -> output that calls the arm once more
    """
    import torch

    # Fill the memory with values that the function cannot have computed: NaN, or 0 and 1 exchanged
    # for integers.
    correct = output.clone()
    if output.is_floating_point() or output.is_complex():
        wrong = output * float("nan")
    else:
        wrong = output == 0
    wrong = wrong.to(output.dtype)
    with torch.inference_mode():
        output.copy_(wrong)
    try:
        tensors = flatten(call())
    finally:
        with torch.inference_mode():
            output.copy_(correct)

    # A function that computes has replaced the wrong values; a stored answer still holds them.
    wrong_returned = any(close(wrong.cpu(), tensor) for tensor in tensors.values())
    if wrong_returned and not close(correct, wrong):
        raise MeasureError(
            f"{name!r} returns a stored result: it computes nothing when it is called again.",
            expected="an output made by this call",
            found="the memory of the last output, untouched (a cached result)",
            fix="take the cache out of what is timed",
        )


def _writable_tensors(values):
    """Return the contiguous tensors and arrays in nested values, as tensors on the same memory."""
    import torch
    from torch.utils._pytree import tree_leaves

    tensors = []
    for value in tree_leaves(values):
        if isinstance(value, np.ndarray) and value.flags.writeable and value.flags.c_contiguous:
            value = torch.from_numpy(value)
        # a sparse tensor has no memory of this kind
        strided = isinstance(value, torch.Tensor) and value.layout == torch.strided
        if strided and value.is_contiguous() and value.numel():
            tensors.append(value.detach())
    return tensors
