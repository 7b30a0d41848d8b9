"""FastSwish as an operator of torch's own kind: `torch.ops.labkit.fastswish`.

`torch.compile` and `torch.export` carry it through as one opaque node: nothing breaks, and nothing is fused with it.
"""

import torch

from labkit.methods.fastswish.formula import A, B, K, V, gradient, value


@torch.library.custom_op("labkit::fastswish", mutates_args=())
def fastswish(x: torch.Tensor) -> torch.Tensor:
    """FastSwish of x, any shape and float dtype."""
    return value(x)


@torch.library.custom_op("labkit::fastswish_backward", mutates_args=())
def _fastswish_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient with respect to x; like x."""
    return gradient(grad, x)


def register(forward, backward):
    """Tell torch the shapes of a pair of operators (fake tensors) and that one is the gradient of the other."""
    forward.register_fake(torch.empty_like)
    backward.register_fake(lambda grad, x: torch.empty_like(x))

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    forward.register_autograd(lambda ctx, grad: backward(grad, *ctx.saved_tensors), setup_context=keep)


def to_onnx(x):
    """FastSwish in eight operators of ONNX: HardSigmoid with A and B is min(A x + B, 1) where x >= -3."""
    from onnxscript import opset20 as op

    def number(value):
        return op.CastLike(op.Constant(value_float=value), x)

    upper = op.Mul(x, op.HardSigmoid(x, alpha=A, beta=B))
    below = op.Mul(op.Add(x, number(3.0)), number(K))
    return op.Where(op.Less(x, number(-3.0)), op.Div(number(V), op.Sub(below, number(1.0))), upper)


register(fastswish, _fastswish_backward)


def operator_form(x):
    return torch.ops.labkit.fastswish(x)
