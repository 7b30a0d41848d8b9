"""FastSwish: HardSwish whose gradient does not die for very negative inputs, in five forms that
agree.

What     x for x >= 3;  x (A x + B) for -3 <= x < 3;  -V / (1 - K (x + 3)) below, which nears 0
         without reaching it; V = 0.1, K = 4.5, A = (3 - V) / 18, B = (3 + V) / 6: value and slope
         are continuous at -3
When     units fall into the flat part of HardSwish or ReLU and have to come back
Cost     computed in one pass over memory about that of ReLU; operator by operator several times as
         much
Not when few units die (count them first): the accuracy is then that of HardSwish
Why so   a smooth tail from HardSwish's 0 at -3 back to 0 would be level somewhere (Rolle), so the
         middle piece gives way by up to V; being level cannot be avoided altogether: it is so at
         BOTTOM, where the middle piece turns
Source   the name and what it is for: a README on "the training and inference speed of a simple
         deep neural network" (undated, author not named), which draws it and gives no formula, so
         this one is the course's own; Howard et al. 2019, arXiv:1905.02244, for HardSwish
"""

from collections.abc import Callable

import torch
from torch import nn

from labkit import device
from labkit.device import packages
from labkit.errors import Unavailable, require_known
from labkit.methods.fastswish.formula import (
    BOTTOM,
    A,
    B,
    K,
    V,
    gradient,
    naive,
    rewrite,
    slope,
    slope_from_value,
    value,
)
from labkit.methods.recompute import Recomputed, with_recompute  # noqa: F401 (offered here, too)

FORMS = ("naive", "rewrite", "function", "operator", "triton")  # they agree within 1e-6 in fp32
FROM_OUTPUT = "output and a bit"  # the sixth: keeps least, but is less exact near BOTTOM


class FastSwish(nn.Module):
    """The activation as a layer, in one of the forms."""

    def __init__(self, name="function"):
        super().__init__()
        self.name = name
        self.function = form(name)

    def forward(self, x):
        return self.function(x)

    def extra_repr(self):
        return self.name


def form(name: str) -> Callable:
    """Return a form as a function from a tensor to one like it.

    name    one of `FORMS`, or `FROM_OUTPUT`
    Raises  Unavailable for "triton" without Triton, or without a GPU unless TRITON_INTERPRET=1
    """
    require_known(name, (*FORMS, FROM_OUTPUT), "form of FastSwish")
    if name == "triton":
        return _triton_form()
    return _OF_TORCH[name]


def _triton_form():
    problem = "Triton kernels cannot run here."
    fix = "on Linux with an NVIDIA GPU: pip install triton"
    triton = packages.imported("triton", problem=problem, fix=fix)
    if not (device.runs_triton() or triton.knobs.runtime.interpret):
        raise Unavailable(
            problem,
            expected="a GPU that Triton compiles for",
            found="none",
            fix="set TRITON_INTERPRET=1 before starting Python: the kernels then "
            "run, slowly, as Python",
        )
    from labkit.methods.fastswish.kernels import triton_form

    return triton_form


# --- with a backward pass written by hand ---


class _Written(torch.autograd.Function):
    """Keeps its input and nothing else; the slope is computed when it is needed."""

    @staticmethod
    def forward(x):
        return value(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives
            return grad * slope(x)
        return gradient(grad, x)


class _FromOutput(torch.autograd.Function):
    """Keeps its output, which the layer that reads it keeps anyway, and one bit an element.

    The bit says on which side of the lowest point x was; value and bit give the slope
    (`slope_from_value`).
    Cost    gradients near the lowest point are less exact: errors up to 3e-4 in fp32, 0.06 in bf16
    Source  the invertible activations of in-place batch norm, Bulò, Porzi, Kontschieder 2018,
            arXiv:1712.02616
    """

    @staticmethod
    def forward(x):
        return value(x), _pack(x < BOTTOM)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        y, bits = ctx.saved_tensors
        return grad * slope_from_value(y, _unpack(bits, y.shape))


def _pack(flags):
    """Return a bool tensor of n elements as ceil(n / 8) bytes."""
    flat = flags.flatten()
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % 8)).view(-1, 8)
    return (flat * _powers(flags.device)).sum(1, dtype=torch.uint8)


def _unpack(bits, shape):
    """Return the bool tensor of that shape that `_pack` made into bytes."""
    flags = (bits[:, None] & _powers(bits.device)) > 0
    return flags.flatten()[: shape.numel()].view(shape)


def _powers(device):
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)


# --- as an operator of torch's own kind: torch.compile and torch.export carry it through as one
# node ---


def register(name, forward, backward):
    """Make two functions operators of torch: FastSwish of x, labkit::NAME, and its gradient,
    labkit::NAME_backward.

    forward   x, any shape and float dtype -> like x
    backward  grad, x -> like x
    """
    as_operator = torch.library.custom_op
    forward = as_operator(
        f"labkit::{name}", forward, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    schema = "(Tensor grad, Tensor x) -> Tensor"
    backward = as_operator(f"labkit::{name}_backward", backward, mutates_args=(), schema=schema)
    forward.register_fake(torch.empty_like)  # the shapes
    backward.register_fake(lambda grad, x: torch.empty_like(x))

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    forward.register_autograd(
        lambda ctx, grad: backward(grad, *ctx.saved_tensors), setup_context=keep
    )


register("fastswish", value, gradient)


def to_onnx(x):
    """Compute FastSwish in eight operators of ONNX: HardSigmoid with A and B is min(A x + B, 1)
    where x >= -3.
    """
    from onnxscript import opset20 as op

    def number(value):
        return op.CastLike(op.Constant(value_float=value), x)

    upper = op.Mul(x, op.HardSigmoid(x, alpha=A, beta=B))
    below = op.Mul(op.Add(x, number(3.0)), number(K))
    return op.Where(op.Less(x, number(-3.0)), op.Div(number(V), op.Sub(below, number(1.0))), upper)


def onnx_translations() -> dict:
    """Return {operator of torch: function of onnxscript}, for
    `torch.onnx.export(custom_translation_table=...)`.
    """
    operators = [torch.ops.labkit.fastswish]
    if hasattr(torch.ops.labkit, "fastswish_triton"):
        operators.append(torch.ops.labkit.fastswish_triton)
    return {operator.default: to_onnx for operator in operators}


# Functions, not methods of torch: a layer that holds one can be copied.
def _function_form(x):
    return _Written.apply(x)


def _operator_form(x):
    return torch.ops.labkit.fastswish(x)


def _output_form(x):
    return _FromOutput.apply(x)[0]


_OF_TORCH = {
    "naive": naive,
    "rewrite": rewrite,
    "function": _function_form,
    "operator": _operator_form,
    FROM_OUTPUT: _output_form,
}
