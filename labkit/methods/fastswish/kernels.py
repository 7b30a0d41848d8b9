"""FastSwish as Triton kernels, forward and backward.

Each kernel reads its inputs once and writes its output once. The module is imported only where
Triton is installed. With `TRITON_INTERPRET=1`, set before the import, the kernels run as Python on
a CPU: slow, and good for tests and for reading along.
"""

import torch
import triton
import triton.language as tl

from labkit import device as devices
from labkit.methods.fastswish import formula, register

BLOCK = 1024  # elements a program works on
A, B, K, V = (tl.constexpr(number) for number in (formula.A, formula.B, formula.K, formula.V))


@triton.jit
def _forward_kernel(x_pointer, y_pointer, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = _in_fp32_at_least(tl.load(x_pointer + offsets, mask=inside))
    tail = -V / (1 - K * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (A * x + B), tail))
    tl.store(y_pointer + offsets, y.to(y_pointer.dtype.element_ty), mask=inside)


@triton.jit
def _backward_kernel(grad_pointer, x_pointer, out_pointer, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = _in_fp32_at_least(tl.load(x_pointer + offsets, mask=inside))
    grad = _in_fp32_at_least(tl.load(grad_pointer + offsets, mask=inside))
    under = 1 - K * (x + 3)
    slope = tl.where(x >= 3, 1.0, tl.where(x >= -3, 2 * A * x + B, -V * K / (under * under)))
    tl.store(out_pointer + offsets, (grad * slope).to(out_pointer.dtype.element_ty), mask=inside)


@triton.jit
def _in_fp32_at_least(x):
    """Return x in fp32, or x itself if it is fp64."""
    return x if x.dtype == tl.float64 else x.to(tl.float32)


def _launch(kernel, *tensors):
    """Run a kernel over all elements of some tensors, `BLOCK` elements in each of its programs.

    tensors  inputs and output of the kernel, all with the same shape and strides
    """
    count = tensors[0].numel()
    if count:
        with devices.selected(tensors[0]):
            kernel[(triton.cdiv(count, BLOCK),)](*tensors, count, BLOCK=BLOCK)


def forward(x):
    """Return FastSwish of x.

    x  any shape and strides, on a GPU; fp16, bf16, fp32 or fp64
    """
    x = _dense(x)
    y = torch.empty_like(x)
    _launch(_forward_kernel, x, y)
    return y


def backward(grad, x):
    """Return the gradient with respect to x, in the shape and dtype of x.

    grad  gradient with respect to FastSwish of x
    """
    x = _dense(x)
    if grad.stride() != x.stride():
        grad = torch.empty_like(x).copy_(grad)
    out = torch.empty_like(x)
    _launch(_backward_kernel, grad, x, out)
    return out


def _dense(x):
    """Return x if its elements fill a block of memory without gaps, else a contiguous copy."""
    if torch.empty_like(x).stride() == x.stride():
        return x
    return x.contiguous()


register("fastswish_triton", forward, backward)


def triton_form(x):
    return torch.ops.labkit.fastswish_triton(x)
