"""Exercises of lesson 09: operators without arithmetic, bytes kept, a backward pass, a kernel,
one's own.
"""

from __future__ import annotations  # `tl.constexpr` is not looked up where Triton is missing

try:
    import triton.language as tl
except ImportError:  # no Triton for this system
    tl = None

import collections
import inspect
from unittest import mock

import torch

from labkit.lesson.exercises import (
    Exercise,
    Wrong,
    expect,
    non_contiguous_input,
    shorten,
    untouched,
)

UNTOUCHED = 777.0  # fills the memory that a kernel writes to, and what lies behind it
POINTS = (-19.0, -5.5, -3.02, -2.98, -1.7, -1.5, 0.0, 1.0, 2.98, 3.02)  # each piece, near each seam


def additions(x, count):
    for _ in range(count):
        x = x + 1
    return x


def verify_additions(answer):
    x = torch.arange(6.0).reshape(2, 3)
    for count in (1, 15, 4):
        operators = _Operators()
        with operators:
            y = answer(x, count)
        expect(isinstance(y, torch.Tensor), f"Expected a torch tensor like x; found {shorten(y)}.")
        expect(
            y.shape == x.shape,
            f"Expected a torch tensor of shape {tuple(x.shape)}; found {tuple(y.shape)}.",
        )
        expect(torch.equal(x, torch.arange(6.0).reshape(2, 3)), "Your function changes x in place.")
        off = (y - x - count).abs().max().item()
        expect(
            off == 0,
            f"With count={count} every number should be {count} more; yours is off by {off:g}.",
        )
        names = operators.names
        told = (
            f"With count={count} torch should run {count} operators; it ran {len(names)}: "
            f"{shorten(names)}."
        )
        expect(len(names) == count, told)
        written = len(operators.written)
        expect(
            written == count,
            f"Each operator should write a new tensor, as those of FastSwish do; your {count} "
            f"write {written}.",
        )


def _Operators():
    """A mode that notes the operators that torch runs in it, and the storages that they write."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operators(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names, self.outputs = [], []  # outputs stay alive, so that no address comes twice

        @property
        def written(self):
            return {output.untyped_storage().data_ptr() for output in self.outputs}

        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            result = operator(*args, **(kwargs or {}))
            self.names.append(operator.name())
            self.outputs.append(result)
            return result

    return Operators()


def kept_bytes(layer, x):
    import torch

    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x)  # what `pack` returns holds the memory until then, so that none is used twice
    return sum(kept.values())


class _Square(torch.nn.Module):
    def forward(self, x):
        return x * x


class _Choice(torch.nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, 0.0)


class _OfAView(torch.nn.Module):
    def forward(self, x):
        return x[:, :3].exp() * x[:, 3:].sin()


class _Chain(torch.nn.Module):
    def forward(self, x):
        x = x.repeat(1000, 1)  # memory of this size is used again as soon as it is free
        for _ in range(12):
            x = x.tanh()
        return x


def verify_kept_bytes(answer):
    """Layers whose bytes were worked out by hand; x is float32 of shape (8, 6): 192 bytes."""
    nn = torch.nn
    with torch.random.fork_rng(devices=[]):
        first, second = nn.Linear(6, 2), nn.Linear(6, 2)
    cases = {
        "ReLU keeps its output": (nn.ReLU(), 192),
        "x * x keeps x for both factors: one tensor, counted once": (_Square(), 192),
        "a linear layer keeps its input; its weight is there anyway": (first, 192),
        "GELU keeps x, and the linear layer behind it GELU's output": (
            nn.Sequential(nn.GELU(), first),
            384,
        ),
        "ReLU's output serves the linear layer, too": (nn.Sequential(nn.ReLU(), second), 192),
        "a choice keeps its mask, of one byte per number": (_Choice(), 48),
        "views of x keep the memory of x; the exponential and the sine are 96 bytes each": (
            _OfAView(),
            384,
        ),
        "each of 12 tanh keeps its own result (if `pack` returns no tensor, memory is freed on the "
        "way and used again)": (_Chain(), 12 * 192_000),
    }
    for words, (layer, wanted) in cases.items():
        found = answer(layer, torch.linspace(-2, 2, 48).reshape(8, 6).requires_grad_())
        expect(
            isinstance(found, int),
            f"{words}: expected a whole number of bytes, found {shorten(found)}.",
        )
        expect(found == wanted, f"{words}: {wanted} bytes; yours are {found}.")
    inner = torch.linspace(-2, 2, 48).reshape(8, 6).requires_grad_() * 1
    expect(
        answer(nn.Tanh(), inner) == 192,
        "An x that other layers computed is kept no otherwise: 192 bytes for tanh.",
    )


class LeanFastSwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        middle = x * (x * 2.9 / 18 + 3.1 / 6)
        tail = -0.1 / (1 - 4.5 * (x + 3))
        return torch.where(x >= 3, x, torch.where(x >= -3, middle, tail))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        middle = x * 2.9 / 9 + 3.1 / 6
        tail = -0.45 / (1 - 4.5 * (x + 3)) ** 2
        slope = torch.where(x >= 3, 1.0, torch.where(x >= -3, middle, tail))
        return grad * slope


def verify_LeanFastSwish(cls):
    from labkit.measure import saved_for_backward
    from labkit.methods.fastswish import naive

    own = inspect.isclass(cls) and issubclass(cls, torch.autograd.Function)
    expect(own, f"Expected a class derived from torch.autograd.Function; found {shorten(cls)}.")
    answer_to, points = untouched(cls.apply), torch.tensor(POINTS, dtype=torch.float64)
    for x in (
        points,
        points.reshape(2, 5),
        points.float().reshape(5, 1, 2),
        points.reshape(2, 5).T,
    ):
        with non_contiguous_input("x of shape (5, 2), transposed", x):
            y = answer_to(x.clone().requires_grad_())
        like = isinstance(y, torch.Tensor) and (y.shape, y.dtype) == (x.shape, x.dtype)
        expect(
            like,
            f"Expected a torch tensor like x, of shape {tuple(x.shape)} and {x.dtype}; found "
            f"{shorten(y)}.",
        )
        error = (y.detach() - naive(x)).abs().flatten()
        at, wanted, found = (
            float(part.flatten()[error.argmax()]) for part in (x, naive(x), y.detach())
        )
        close = error.max() <= (1e-12 if x.dtype == torch.float64 else 1e-5)
        expect(
            close,
            f"In {x.dtype}, the value at {at:g} should be {wanted:.10g}; yours is {found:.10g}.",
        )
    check_gradient(cls.apply, points.reshape(2, 5).requires_grad_())
    inner = torch.randn(4096, requires_grad=True) * 2  # kept by nobody else
    saved, relu = (saved_for_backward(fn, inner) for fn in (cls.apply, torch.relu))
    saved += _bytes_on_ctx(_functions_behind(cls.apply(inner)), inner) if saved else 0
    expect(
        saved > 0,
        "Nothing was saved by ctx.save_for_backward: what else hangs on ctx is not "
        "counted, nor freed.",
    )
    told = f"You keep {saved / relu:.3g} times the bytes that ReLU keeps; 1.07 times is the limit."
    expect(saved <= 1.07 * relu, told)


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
    places, count = {x.untyped_storage().data_ptr()}, 0
    for node in nodes:
        for value in vars(node).values() if hasattr(node, "__dict__") else ():
            if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in places:
                places.add(value.untyped_storage().data_ptr())
                count += value.untyped_storage().nbytes()
    return count


def check_gradient(function, x):
    """gradcheck; when it fails, the gradient against differences of the values says where."""
    from labkit.methods.fastswish import naive

    try:
        (found,) = torch.autograd.grad(function(x).sum(), x)
        (exact,) = torch.autograd.grad(naive(x).sum(), x)
        if torch.autograd.gradcheck(function, x, raise_exception=False):
            if float((found - exact).abs().max()) > 1e-9:
                _expect_slopes(
                    found,
                    exact,
                    "Your slopes have fewer digits than x, which is float64. The most is missing",
                )
            return
        (doubled,) = torch.autograd.grad(2 * function(x).sum(), x)
    except RuntimeError as error:
        raise Wrong(f"The backward pass raised: {error}") from None
    above, below = (function(x.detach() + step).detach() for step in (1e-6, -1e-6))
    wanted = (above - below) / 2e-6
    if torch.allclose(found, wanted, atol=1e-4) and not torch.allclose(
        doubled, 2 * wanted, atol=1e-4
    ):
        raise Wrong(
            "The slopes are right, but your backward ignores the gradient that comes in: twice "
            "that gradient must give "
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
    positions = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = positions < count
    x = tl.load(x_pointer + positions, mask=inside)
    x = x + tl.load(bias_pointer + positions % channels, mask=inside)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + positions, y, mask=inside)


def jitted(kernel):
    """A kernel with @triton.jit, whether it has it already or not; interpreted where there is no
    GPU for it.
    """
    import os

    import triton

    from labkit.device import runs_triton

    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "0" if runs_triton() else "1"
    try:
        written = getattr(kernel, "fn", kernel)  # one that was compiled could not be interpreted
        return triton.jit(written) if inspect.isfunction(written) else kernel
    finally:
        os.environ.pop("TRITON_INTERPRET") if before is None else os.environ.update(
            TRITON_INTERPRET=before
        )


def _names_in(kernel):
    """The names that a kernel's code looks up."""
    code = getattr(getattr(kernel, "fn", kernel), "__code__", None)
    return code.co_names if code else ()


def verify_fused_kernel(answer):
    from labkit.device import pick, runs_triton
    from labkit.methods.fastswish import naive

    expect(
        tl is not None,
        "Triton is not installed here, so no kernel can be checked. Read the solution instead.",
    )
    kernel, device = jitted(answer), pick() if runs_triton() else "cpu"
    foreign = {"torch", "np", "numpy"} & set(_names_in(kernel))
    expect(
        not foreign,
        f"A kernel knows Triton's language alone, and yours names {shorten(sorted(foreign))}: "
        "take tl.where for torch.where.",
    )
    dice = torch.Generator().manual_seed(0)
    for rows, channels, block in ((8, 16, 32), (5, 24, 64), (3, 7, 16), (37, 61, 2048)):
        count = rows * channels
        programs = -(-count // block)
        x, bias = (
            4 * torch.randn(rows, channels, generator=dice),
            2 * torch.randn(channels, generator=dice),
        )
        x, bias = x.to(device), bias.to(device)
        y = torch.full((programs * block + 64,), UNTOUCHED, device=device)
        given, longer = (
            torch.cat([part.flatten(), torch.full((block,), 1e3, device=device)])
            for part in (x, bias)
        )
        moves, read = _memory_accesses(kernel, programs, (given, longer, y, count, channels), block)
        found, wanted = y[:count].view(rows, channels), naive(x + bias)
        case = f"{rows} rows of {channels} channels in {programs} blocks of {block}"
        expect((found != UNTOUCHED).all(), f"{case}: some results were never stored.")
        worst = int((found - wanted).abs().argmax())
        numbers = [float(part.flatten()[worst]) for part in (x + bias, wanted, found)]
        expect(
            torch.allclose(found, wanted, atol=1e-5),
            f"{case}: where x + bias is {numbers[0]:.4g}, y should be {numbers[1]:.4g}; yours is "
            f"{numbers[2]:.4g}.",
        )
        expect(
            (y[count:] == UNTOUCHED).all(),
            f"{case}: you also write beyond the end. What does the mask forbid?",
        )
        kept = torch.equal(given[:count], x.flatten()) and torch.equal(longer[:channels], bias)
        expect(kept, f"{case}: the kernel writes into its inputs.")
        expect(
            moves == (2, 1),
            f"{case}: one load of x, one of the bias and one store are wanted; "
            f"your kernel has {moves[0]} loads and {moves[1]} stores per program.",
        )
        words = (
            f"{case}: x and the bias have {2 * count} numbers to be read, and your loads read "
            f"{read}. Each program"
        )
        words += (
            " reads BLOCK places, and every load wants the mask: behind the end "
            "lies memory of others."
        )
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


def my_activation(x):
    import torch

    return torch.relu(x) ** 2


def verify_my_activation(answer):
    x = torch.linspace(-8, 8, 33, requires_grad=True)
    y = untouched(answer)(x)
    like = isinstance(y, torch.Tensor) and y.shape == x.shape and y.dtype == x.dtype
    expect(
        like, f"Expected a float32 tensor of the shape of x, {tuple(x.shape)}; found {shorten(y)}."
    )
    expect(bool(y.isfinite().all()), "Between -8 and 8 every value should be a finite number.")
    expect(y.requires_grad, "The result has no gradient, so nothing before it could learn.")
    (slope,) = torch.autograd.grad(y.sum(), x)
    expect(
        bool(slope.isfinite().all()),
        "Between -8 and 8 every slope should be a finite number; NaN spreads.",
    )
    expect(
        float(slope.std()) > 0.01,
        "It is a straight line: with it a network of many layers is one layer.",
    )
    alone = torch.cat([answer(part.detach()) for part in x.split(1)])
    expect(
        bool((alone - y.detach()).abs().max() <= 1e-5), "It has to work on each number by itself."
    )


EXERCISES = (
    Exercise(
        id="additions",
        task="Write the control: so many operators, with next to no arithmetic.",
        difficulty=1,
        minutes=3,
        hint="A loop of `count` rounds; x = x + 1 is one operator, and makes a new tensor.",
        reference=additions,
        verify=verify_additions,
    ),
    Exercise(
        id="kept-bytes",
        task="Count the bytes that autograd keeps for the backward pass of a layer.",
        difficulty=2,
        importance=3,
        minutes=10,
        hint=(
            "A dictionary {address: bytes} counts each memory once. In `pack` take "
            "tensor.untyped_storage(): it has "
            ".data_ptr() and .nbytes(). Leave out the addresses of layer.parameters()."
        ),
        reference=kept_bytes,
        verify=verify_kept_bytes,
    ),
    Exercise(
        id="lean-fastswish",
        task="Write FastSwish as an autograd.Function whose backward pass keeps no "
        "more than ReLU's.",
        difficulty=3,
        importance=3,
        minutes=15,
        hint=(
            "One tensor from which everything follows is enough: x. Differentiate the three "
            "pieces on paper, choose "
            "among them with torch.where, and multiply by the gradient that comes in."
        ),
        reference=LeanFastSwish,
        verify=verify_LeanFastSwish,
        imports="import torch",
    ),
    Exercise(
        id="fused-kernel",
        task="Write a Triton kernel that adds a bias to each channel and applies FastSwish, in "
        "one pass over memory.",
        difficulty=3,
        minutes=15,
        hint=(
            "Begin with the kernel of HardSwish. One more load, at `positions % channels`, gives "
            "the bias; FastSwish "
            "is two tl.where, as in the formula. Every load and the store want the mask."
        ),
        reference=fused_kernel,
        verify=verify_fused_kernel,
        imports="import triton.language as tl",
    ),
    Exercise(
        id="my-activation",
        task="Write an activation of your own, from any operators of torch.",
        difficulty=1,
        minutes=4,
        hint="torch.relu(x) ** 2, x * torch.tanh(F.softplus(x)), sines, ...",
        reference=my_activation,
        verify=verify_my_activation,
        judged_by="the table below",
    ),
)
