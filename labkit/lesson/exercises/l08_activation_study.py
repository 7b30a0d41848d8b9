"""Exercises of lesson 08: a backward pass that keeps one tensor, a fused Triton kernel."""

from __future__ import annotations  # `tl.constexpr` is not looked up where Triton is missing

try:
    import triton.language as tl
except ImportError:  # no Triton for this system
    tl = None

import collections
import inspect
from unittest import mock

from labkit.lesson.exercises import Exercise, Wrong, expect, in_pieces, shorten, untouched

UNTOUCHED = 777.0  # fills the memory that a kernel writes to, and what lies behind it
POINTS = (-19.0, -5.5, -3.02, -2.98, -1.7, -1.5, 0.0, 1.0, 2.98, 3.02)  # each piece, near each seam


def lean_fastswish(x):
    import torch

    def choose(x, upper, middle, tail):
        return torch.where(x >= 3, upper, torch.where(x >= -3, middle, tail))

    class Lean(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return choose(x, x, x * (x * (3 - 0.1) / 18 + (3 + 0.1) / 6), -0.1 / (1 - 4.5 * (x + 3)))

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * choose(x, 1.0, x * (3 - 0.1) / 9 + (3 + 0.1) / 6, -0.1 * 4.5 / (1 - 4.5 * (x + 3)) ** 2)

    return Lean.apply(x)


def verify_lean_fastswish(answer):
    import torch

    from labkit.measure import saved_for_backward
    from labkit.methods.fastswish import naive

    answer_to, points = untouched(answer), torch.tensor(POINTS, dtype=torch.float64)
    for x in (points, points.reshape(2, 5), points.float().reshape(5, 1, 2), points.reshape(2, 5).T):
        with in_pieces("x of shape (5, 2), transposed", x):
            y = answer_to(x.clone().requires_grad_())
        like = isinstance(y, torch.Tensor) and (y.shape, y.dtype) == (x.shape, x.dtype)
        expect(like, f"Expected a torch tensor like x, of shape {tuple(x.shape)} and {x.dtype}; found {shorten(y)}.")
        error = (y.detach() - naive(x)).abs().flatten()
        at, wanted, found = (float(part.flatten()[error.argmax()]) for part in (x, naive(x), y.detach()))
        close = error.max() <= (1e-12 if x.dtype == torch.float64 else 1e-5)
        expect(close, f"In {x.dtype}, the value at {at:g} should be {wanted:.10g}; yours is {found:.10g}.")
    check_gradient(answer, points.reshape(2, 5).requires_grad_())
    inner = torch.randn(4096, requires_grad=True) * 2  # kept by nobody else
    saved, relu = (saved_for_backward(fn, inner) for fn in (answer, torch.relu))
    behind = _functions_behind(answer(inner))
    own = any(isinstance(each, torch.autograd.function.BackwardCFunction) for each in behind)
    expect(own, "Expected a torch.autograd.Function with your own backward; found only derivatives by torch.")
    saved += _bytes_on_ctx(behind, inner) if saved else 0
    expect(saved > 0, "Nothing was saved by ctx.save_for_backward: what else hangs on ctx is not counted, nor freed.")
    expect(
        saved <= 1.07 * relu, f"You keep {saved / relu:.3g} times the bytes that ReLU keeps; 1.07 times is the limit."
    )


def _functions_behind(y):
    """What autograd calls on the way back from y: a list of nodes."""
    found, waiting = [], [y.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.append(node)
            waiting += [following for following, _ in node.next_functions]
    return found


def _bytes_on_ctx(nodes, x):
    """Bytes of the tensors that hang on the `ctx` of these functions, x itself left out."""
    import torch

    places, count = {x.untyped_storage().data_ptr()}, 0
    for node in nodes:
        for value in vars(node).values() if hasattr(node, "__dict__") else ():
            if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in places:
                places.add(value.untyped_storage().data_ptr())
                count += value.untyped_storage().nbytes()
    return count


def check_gradient(function, x):
    """gradcheck; when it fails, the gradient against differences of the values says where."""
    import torch

    from labkit.methods.fastswish import naive

    try:
        (found,) = torch.autograd.grad(function(x).sum(), x)
        (exact,) = torch.autograd.grad(naive(x).sum(), x)
        if torch.autograd.gradcheck(function, x, raise_exception=False):
            if float((found - exact).abs().max()) > 1e-9:
                _expect_slopes(
                    found, exact, "Your slopes have fewer digits than x, which is float64. The most is missing"
                )
            return
        (doubled,) = torch.autograd.grad(2 * function(x).sum(), x)
    except RuntimeError as error:
        raise Wrong(f"The backward pass raised: {error}") from None
    above, below = (function(x.detach() + step).detach() for step in (1e-6, -1e-6))
    wanted = (above - below) / 2e-6
    if torch.allclose(found, wanted, atol=1e-4) and not torch.allclose(doubled, 2 * wanted, atol=1e-4):
        raise Wrong(
            "The slopes are right, but your backward ignores the gradient that comes in: twice that gradient must give "
            "twice the result. Multiply the slope by `grad`."
        )
    _expect_slopes(found, wanted, "gradcheck fails, most")


def _expect_slopes(found, wanted, words):
    worst = int((found - wanted).abs().argmax())
    numbers = [float(each.flatten()[worst]) for each in (wanted, found)]
    raise Wrong(
        f"{words} at x = {POINTS[worst]}: there the slope is {numbers[0]:.10g}, "
        f"and your backward says {numbers[1]:.10g} for an incoming gradient of 1."
    )


def fused_kernel(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(bias_pointer + places % channels, mask=inside)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def jitted(kernel):
    """A kernel with @triton.jit, whether it has it already or not; interpreted where there is no GPU for it."""
    import os

    import triton

    from labkit.device import runs_triton

    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "0" if runs_triton() else "1"
    try:
        written = getattr(kernel, "fn", kernel)  # one that was compiled could not be interpreted
        return triton.jit(written) if inspect.isfunction(written) else kernel
    finally:
        os.environ.pop("TRITON_INTERPRET") if before is None else os.environ.update(TRITON_INTERPRET=before)


def verify_fused_kernel(answer):
    import torch

    from labkit.device import pick, runs_triton
    from labkit.methods.fastswish import naive

    expect(tl is not None, "Triton is not installed here, so no kernel can be checked. Read the solution instead.")
    kernel, device = jitted(answer), pick() if runs_triton() else "cpu"
    dice = torch.Generator().manual_seed(0)
    for rows, channels, block in ((8, 16, 32), (5, 24, 64), (3, 7, 16), (37, 61, 2048)):
        count = rows * channels
        programs = -(-count // block)
        x, bias = 4 * torch.randn(rows, channels, generator=dice), 2 * torch.randn(channels, generator=dice)
        x, bias = x.to(device), bias.to(device)
        y = torch.full((programs * block + 64,), UNTOUCHED, device=device)
        given, longer = (torch.cat([part.flatten(), torch.full((block,), 1e3, device=device)]) for part in (x, bias))
        moves, read = _memory_accesses(kernel, programs, (given, longer, y, count, channels), block)
        found, wanted = y[:count].view(rows, channels), naive(x + bias)
        case = f"{rows} rows of {channels} channels in {programs} blocks of {block}"
        expect((found != UNTOUCHED).all(), f"{case}: some results were never stored.")
        worst = int((found - wanted).abs().argmax())
        numbers = [float(part.flatten()[worst]) for part in (x + bias, wanted, found)]
        expect(
            torch.allclose(found, wanted, atol=1e-5),
            f"{case}: where x + bias is {numbers[0]:.4g}, y should be {numbers[1]:.4g}; yours is {numbers[2]:.4g}.",
        )
        expect((y[count:] == UNTOUCHED).all(), f"{case}: you also write beyond the end. What does the mask forbid?")
        kept = torch.equal(given[:count], x.flatten()) and torch.equal(longer[:channels], bias)
        expect(kept, f"{case}: the kernel writes into its inputs.")
        expect(
            moves == (2, 1),
            f"{case}: one load of x, one of the bias and one store are wanted; "
            f"your kernel has {moves[0]} loads and {moves[1]} stores per program.",
        )
        words = f"{case}: x and the bias have {2 * count} numbers to be read, and your loads read {read}. Each program"
        words += " reads BLOCK places, and every load wants the mask: behind the end lies memory of others."
        expect(read is None or read == 2 * count, words)


def _memory_accesses(kernel, programs, given, block):
    """Run a kernel: ((loads, stores) per program, numbers that all loads read).

    Counted by the interpreter; or in what was compiled for a GPU, which does not tell the second.
    """
    from labkit.device import runs_triton

    if runs_triton():
        text = kernel[(programs,)](*given, BLOCK=block).asm["ttir"]
        return (text.count("tt.load "), text.count("tt.store ")), None
    from triton.runtime.interpreter import interpreter_builder as builder

    counts = collections.Counter()

    def counted(name, mask):
        plain = getattr(builder, name)

        def call(*args):
            counts[name] += 1
            counts["lanes", name] += int(args[mask].data.sum())
            return plain(*args)

        return mock.patch.object(builder, name, call)

    with counted("create_masked_load", 1), counted("create_masked_store", 2):
        kernel[(programs,)](*given, BLOCK=block)
    calls = [counts[name] / programs for name in ("create_masked_load", "create_masked_store")]
    return tuple(calls), counts["lanes", "create_masked_load"]


EXERCISES = (
    Exercise(
        id="lean-fastswish",
        task="Write FastSwish as an autograd.Function whose backward pass keeps no more than ReLU's.",
        difficulty=3,
        minutes=15,
        hint=(
            "One tensor from which everything follows is enough: x. Differentiate the three pieces on paper, choose "
            "among them with torch.where, and multiply by the gradient that comes in."
        ),
        reference=lean_fastswish,
        verify=verify_lean_fastswish,
    ),
    Exercise(
        id="fused-kernel",
        task="Write a Triton kernel that adds a bias to each channel and applies FastSwish, in one pass over memory.",
        difficulty=3,
        minutes=20,
        hint=(
            "Begin with the kernel of HardSwish. One more load, at `places % channels`, gives the bias; FastSwish is "
            "two tl.where, as in the formula. Every load and the store want the mask."
        ),
        reference=fused_kernel,
        verify=verify_fused_kernel,
        imports="import triton.language as tl",
    ),
)
