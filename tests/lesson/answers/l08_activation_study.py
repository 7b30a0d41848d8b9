"""Answers to the exercises of lesson 08: wrong ones that must be rejected, right ones written differently."""

from __future__ import annotations

try:
    import triton.language as tl
except ImportError:
    tl = None


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


def recomputed_by_torch(x):
    from torch.utils.checkpoint import checkpoint

    from labkit.methods.fastswish import naive

    return checkpoint(naive, x, use_reentrant=False)


def slope_joined_at(upper, lower):
    """A backward pass whose pieces meet elsewhere than those of the forward pass."""

    def backward(grad, x):
        middle, tail = x * 2.9 / 9 + 3.1 / 6, -0.45 / (1 - 4.5 * (x.clamp(max=-3) + 3)) ** 2
        return grad * (x / x).where(x >= upper, middle.where(x >= lower, tail))

    return backward


# Kernels: `tl` is Triton's language; the check makes them kernels.
def forget_the_mask(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + places) + tl.load(bias_pointer + places % channels)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y)


def forget_the_bias(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + places, mask=places < count)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=places < count)


def bias_by_place(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(bias_pointer + places, mask=places < channels)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def first_block_only(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(bias_pointer + places % channels, mask=inside)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def hardswish_instead(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(bias_pointer + places % channels, mask=inside)
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x + 3) / 6, 0.0))
    tl.store(y_pointer + places, y, mask=inside)


def bias_after(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y + tl.load(bias_pointer + places % channels, mask=inside), mask=inside)


def load_for_each_piece(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    bias = tl.load(bias_pointer + places % channels, mask=inside)
    tail = -0.1 / (1 - 4.5 * (tl.load(x_pointer + places, mask=inside) + bias + 3))
    x = tl.load(x_pointer + places, mask=inside, other=0.0) + bias
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def mask_only_what_it_stores(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + places) + tl.load(bias_pointer + places % channels)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=places < count)


def bias_without_mask(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(bias_pointer + places % channels)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def blocks_of_1024(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, 1024)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(bias_pointer + places % channels, mask=inside)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def store_the_sum_first(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(bias_pointer + places % channels, mask=inside)
    tl.store(y_pointer + places, x, mask=inside)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def by_constants(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0) * BLOCK
    at = start + tl.arange(0, BLOCK)
    ok = at < count
    z = tl.load(x_pointer + at, mask=ok, other=0.0)
    z += tl.load(bias_pointer + (at % channels), mask=ok, other=0.0)
    a, b = (3 - 0.1) / 18, (3 + 0.1) / 6
    low = 0.1 / (4.5 * (z + 3) - 1)
    out = tl.where(z < -3, low, z * (a * z + b))
    tl.store(y_pointer + at, tl.where(z < 3, out, z), mask=ok)


def by_the_rewrite(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + at, mask=at < count) + tl.load(bias_pointer + at % channels, mask=at < count)
    within = tl.maximum(x, -3.0)
    upper = within * (1 - tl.maximum(3 - within, 0.0) * 2.9 / 18)
    tl.store(y_pointer + at, upper / (1 + 4.5 * tl.maximum(-3 - x, 0.0)), mask=at < count)


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


right = with_backward(lambda grad, x: grad * slope(x))


def rows_of_one(x):
    """Only what has one dimension keeps its shape."""
    return right(x).reshape(len(x), -1).squeeze(-1)


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


WRONG = {
    "lean-fastswish": {
        "lets torch compute the pieces again": recomputed_by_torch,
        "hangs the slope on ctx": hang_masks_on_ctx,
        "keeps input and output": with_backward(lambda grad, x: grad * slope(x), keep=lambda x, y: (x, y)),
        "takes the middle slope for the tail": with_backward(middle_everywhere),
        "joins the slopes at 3.1": with_backward(slope_joined_at(3.1, -3)),
        "joins the slopes at 2.9": with_backward(slope_joined_at(2.9, -3)),
        "joins the slopes at -3.1": with_backward(slope_joined_at(3, -3.1)),
        "forgets the incoming gradient": with_backward(lambda grad, x: slope(x)),
        "turns the sign of the tail": with_backward(lambda grad, x: grad * slope(x).where(x >= -3, -slope(x))),
        "returns one row": lambda x: right(x.flatten()),
        "returns rows": rows_of_one,
        "slopes in half the digits": with_backward(lambda grad, x: grad * slope(x.float()).to(grad.dtype)),
        "values in half the digits": lambda x: right(x.float()),
        "views x as one row": lambda x: right(x.view(-1)).view(x.shape),
        "hangs the tensor on ctx": with_backward(lambda grad, x: grad * slope(x), keep=lambda x, y: ()),
    },
    "fused-kernel": {
        "forgets the mask": forget_the_mask,
        "forgets the bias": forget_the_bias,
        "takes a bias for each place": bias_by_place,
        "works on the first block only": first_block_only,
        "computes HardSwish": hardswish_instead,
        "adds the bias after the activation": bias_after,
        "loads x once per piece": load_for_each_piece,
        "writes the sum to memory": store_the_sum_first,
        "masks only what it stores": mask_only_what_it_stores,
        "reads a bias for places beyond the end": bias_without_mask,
        "takes blocks of 1024": blocks_of_1024,
    },
}

RIGHT = {
    "lean-fastswish": {
        "with masks made in the backward pass": with_slope_from_masks,
        "with the slope of the course": right,
    },
    "fused-kernel": {
        "from the tail on": by_constants,
        "by the rewrite": by_the_rewrite,
    },
}
