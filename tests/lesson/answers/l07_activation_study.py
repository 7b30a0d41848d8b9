"""Answers to the exercises of lesson 07: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np

from labkit.lesson.exercises.l07_activation_study import hidden_bytes


def with_backward(backward, *, keep=lambda x, y: (x,)):
    """An answer with another backward pass, or one that keeps other tensors."""

    def answer(x):
        import torch

        from labkit.methods.fastswish import naive

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = naive(x)
                ctx.x = x
                ctx.save_for_backward(*keep(x, y))
                return y

            @staticmethod
            def backward(ctx, grad):
                return backward(grad, ctx.saved_tensors[0] if ctx.saved_tensors else ctx.x)

        return Function.apply(x)

    return answer


def slope(x):
    from labkit.methods.fastswish import slope

    return slope(x)


def middle_everywhere(grad, x):
    return grad * (x * 2.9 / 9 + 3.1 / 6).where(x < 3, x / x)


def forget_the_next_layer(way, images, height, width, channels, itemsize):
    return images * height * width * channels * (itemsize + (0.125 if "bit" in way else 0))


def take_a_bit_for_a_byte(way, images, height, width, channels, itemsize):
    numbers = images * height * width * channels
    return numbers * {"relu": itemsize, "gelu": 2 * itemsize, "recomputed": itemsize}.get(way, itemsize + 1)


def through_memory(load, store, places):
    store("t", places, load("x", places) + load("bias", places % 16))
    x = load("t", places)
    store("y", places, x * (x + 3).clip(0, 6) / 6)


def load_again(load, store, places):
    bias = load("bias", places % 16)
    store("y", places, (load("x", places) + bias) * (load("x", places) + bias + 3).clip(0, 6) / 6)


def forget_the_bias(load, store, places):
    x = load("x", places)
    store("y", places, x * (x + 3).clip(0, 6) / 6)


def bias_outside(load, store, places):
    x = load("x", places)
    store("y", places, x * (x + 3).clip(0, 6) / 6 + load("bias", places % 16))


def with_slope_from_masks(x):
    import torch

    class Masks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            from labkit.methods.fastswish import naive

            ctx.save_for_backward(x)
            return naive(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            upper, middle = (x >= 3).to(x.dtype), ((x >= -3) & (x < 3)).to(x.dtype)
            tail = 1 - upper - middle
            reach = (1 - 4.5 * (x + 3)).where(x < -3, 1.0)
            return grad * (upper + middle * (x * 2.9 / 9 + 3.1 / 6) - tail * 0.45 / reach**2)

    return Masks.apply(x)


def hang_masks_on_ctx(x):
    import torch

    class Masks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            from labkit.methods.fastswish import naive

            ctx.save_for_backward(x)
            ctx.slope = slope(x)
            return naive(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.slope

    return Masks.apply(x)


def add_up_the_tensors(way, images, height, width, channels, itemsize):
    numbers = images * height * width * channels
    whole_tensors = 2 if way == "gelu" else 1
    return numbers * itemsize * whole_tensors + (numbers // 8 if way.endswith("bit") else 0)


def by_a_table(way, *shape):
    *sizes, itemsize = shape
    bits = {
        "relu": 8 * itemsize,
        "gelu": 16 * itemsize,
        "recomputed": 8 * itemsize,
        "output and a bit": 8 * itemsize + 1,
    }
    return bits[way] * math.prod(sizes) / 8


def fused_in_numpy(load, store, places):
    z = np.add(load("x", places), load("bias", np.mod(places, 16)))
    store("y", places, z * np.minimum(np.maximum(z + 3, 0), 6) / 6)


def fused_by_pieces(load, store, places):
    bias = load("bias", places % 16)
    z = bias + load("x", places)
    store("y", places, np.where(z > 3, z, np.where(z < -3, 0, z * (z + 3) / 6)))


WRONG = {
    "lean-fastswish": {
        "hangs the slope on ctx": hang_masks_on_ctx,
        "keeps input and output": with_backward(lambda grad, x: grad * slope(x), keep=lambda x, y: (x, y)),
        "takes the middle slope for the tail": with_backward(middle_everywhere),
        "forgets the incoming gradient": with_backward(lambda grad, x: slope(x)),
        "turns the sign of the tail": with_backward(lambda grad, x: grad * slope(x).where(x >= -3, -slope(x))),
        "hangs the tensor on ctx": with_backward(lambda grad, x: grad * slope(x), keep=lambda x, y: ()),
    },
    "hidden-bytes": {
        "counts ReLU's output for each of its two keepers": lambda way, *shape: (
            hidden_bytes(way, *shape) * (1 + (way == "relu"))
        ),
        "forgets what the next layer keeps": forget_the_next_layer,
        "takes a bit for a byte": take_a_bit_for_a_byte,
        "takes every number for four bytes": lambda way, *shape: hidden_bytes(way, *shape[:-1], 4),
    },
    "fused-kernel": {
        "still goes through memory": through_memory,
        "loads x twice": load_again,
        "forgets the bias": forget_the_bias,
        "adds the bias after the activation": bias_outside,
    },
}

RIGHT = {
    "lean-fastswish": {
        "with masks made in the backward pass": with_slope_from_masks,
        "with the slope of the course": with_backward(lambda grad, x: grad * slope(x)),
    },
    "hidden-bytes": {
        "adding up": add_up_the_tensors,
        "by a table of bits": by_a_table,
    },
    "fused-kernel": {
        "in NumPy": fused_in_numpy,
        "by pieces": fused_by_pieces,
    },
}
