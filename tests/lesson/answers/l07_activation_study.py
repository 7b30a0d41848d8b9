"""Answers to the exercises of lesson 07: wrong ones that must be rejected, right ones written differently."""

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


WRONG = {
    "lean-fastswish": {
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
    "lean-fastswish": {},
    "hidden-bytes": {},
    "fused-kernel": {},
}
