"""FastSwish: HardSwish whose gradient does not die for very negative inputs.

What     x for x >= 3;  x (A x + B) for -3 <= x < 3;  -V / (1 - K (x + 3)) below -3, which
         approaches 0 without reaching it. V = 0.1, K = 4.5, A = (3 - V) / 18, B = (3 + V) / 6:
         value and slope are continuous at -3
When     units fall into the flat part of HardSwish or ReLU and have to come back
Cost     about that of ReLU, if computed in one pass over memory; several times that of ReLU, if
         computed operator by operator
Not when few units die (count them first): the accuracy is then that of HardSwish
Why so   HardSwish is 0 at -3. A smooth tail that starts at 0 there and returns to 0 would have a
         slope of 0 somewhere below -3 (Rolle's theorem). So the middle piece goes down to -V at -3,
         and the tail rises from there. One point of slope 0 remains: BOTTOM, where the middle piece
         turns
Source   the name and the purpose: a README on "the training and inference speed of a simple deep
         neural network" (undated, author not named). It draws the function and gives no formula, so
         this formula is the course's own. HardSwish: Howard et al. 2019, arXiv:1905.02244

The function is computed in five forms that agree (`FORMS`), and in a sixth that is less exact.
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
FROM_OUTPUT = "output and a bit"  # a sixth form: keeps least, but is less exact near BOTTOM


class FastSwish(nn.Module):
    """The activation as a layer.

    name  the form that computes it: one of `FORMS`, or `FROM_OUTPUT`
    """

    def __init__(self, name="function"):
        super().__init__()
        self.name = name
        self.function = form(name)

    def forward(self, x):
        return self.function(x)

    def extra_repr(self):
        return self.name


def form(name: str) -> Callable:
    """Return one form of FastSwish: a function from a tensor to a tensor of its shape and dtype.

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


class _FromInput(torch.autograd.Function):
    """FastSwish that keeps only its input; the backward pass computes the slope from it."""

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
    """FastSwish that keeps only its output and one bit per element for the backward pass.

    The layer that reads the output keeps the output anyway, so only the bits need memory. The bit
    says whether x was below BOTTOM; `slope_from_value` needs it to compute the slope.

    Cost    gradients near BOTTOM are less exact: errors up to 3e-4 in fp32, 0.06 in bf16
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
    """Pack a bool tensor of n elements, of any shape, into a uint8 tensor of ceil(n / 8) bytes."""
    flat = flags.flatten()
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % 8)).view(-1, 8)
    return (flat * _powers(flags.device)).sum(1, dtype=torch.uint8)


def _unpack(bits, shape):
    """Return the bool tensor of the given shape that `_pack` packed."""
    flags = (bits[:, None] & _powers(bits.device)) > 0
    return flags.flatten()[: shape.numel()].view(shape)


def _powers(device):
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)


# --- as an operator of torch: torch.compile and torch.export treat it as one node ---


def register(name, forward, backward):
    """Register two functions as operators of torch, labkit::NAME and labkit::NAME_backward.

    name      NAME
    forward   function of a float tensor x; it returns FastSwish of x, in the shape and dtype of x
    backward  function of (grad, x), where grad is the gradient with respect to the output; it
              returns the gradient with respect to x, in the shape and dtype of x
    """
    as_operator = torch.library.custom_op
    forward = as_operator(
        f"labkit::{name}", forward, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    schema = "(Tensor grad, Tensor x) -> Tensor"
    backward = as_operator(f"labkit::{name}_backward", backward, mutates_args=(), schema=schema)
    forward.register_fake(torch.empty_like)  # for torch.compile: only shapes and dtypes
    backward.register_fake(lambda grad, x: torch.empty_like(x))

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    forward.register_autograd(
        lambda ctx, grad: backward(grad, *ctx.saved_tensors), setup_context=keep
    )


register("fastswish", value, gradient)


def to_onnx(x):
    """Compute FastSwish in operators of ONNX, for `onnx_translations`.

    For x >= -3, ONNX's HardSigmoid with alpha A and beta B is min(A x + B, 1). Its product with x
    is therefore FastSwish for all x >= -3.
    """
    from onnxscript import opset20 as op

    def number(value):
        return op.CastLike(op.Constant(value_float=value), x)

    upper = op.Mul(x, op.HardSigmoid(x, alpha=A, beta=B))
    below = op.Mul(op.Add(x, number(3.0)), number(K))
    return op.Where(op.Less(x, number(-3.0)), op.Div(number(V), op.Sub(below, number(1.0))), upper)


def onnx_translations() -> dict:
    """Return {operator of torch: function of onnxscript} for the export of FastSwish to ONNX.

    Pass this dictionary to `torch.onnx.export` as `custom_translation_table`.
    """
    operators = [torch.ops.labkit.fastswish]
    if hasattr(torch.ops.labkit, "fastswish_triton"):
        operators.append(torch.ops.labkit.fastswish_triton)
    return {operator.default: to_onnx for operator in operators}


# Plain functions, not `apply` of a class of torch: a layer that holds a function can be copied.
def _function_form(x):
    return _FromInput.apply(x)


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
