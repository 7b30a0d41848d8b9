"""Answers to the exercises of lesson 09: wrong ones that must be rejected, right ones written
differently.
"""

from __future__ import annotations

import functools

import torch

try:
    import triton.language as tl
except ImportError:
    tl = None


def naive(x):
    from labkit.methods.fastswish import naive

    return naive(x)


def with_backward(backward, *, keep=lambda x, y: (x,), values=None):
    """An answer with another backward pass, other values, or one that keeps other tensors."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = (values or naive)(x)
            ctx.x = x
            ctx.save_for_backward(*keep(x, y))
            return y

        @staticmethod
        def backward(ctx, grad):
            return backward(grad, ctx.saved_tensors[0] if ctx.saved_tensors else ctx.x)

    return Function


def times_slope(grad, x):
    return grad * slope(x)


def slope(x):
    from labkit.methods.fastswish import slope

    return slope(x)


def middle_everywhere(grad, x):
    return grad * (x * 2.9 / 9 + 3.1 / 6).where(x < 3, x / x)


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


def by_torch_where(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside)
    x = x + tl.load(bias_pointer + places % channels, mask=inside)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = torch.where(x >= 3, x, torch.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def forget_the_bias(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + places, mask=places < count)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=places < count)


def bias_by_place(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(
        bias_pointer + places, mask=places < channels
    )
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def first_block_only(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(
        bias_pointer + places % channels, mask=inside
    )
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def hardswish_instead(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(
        bias_pointer + places % channels, mask=inside
    )
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x + 3) / 6, 0.0))
    tl.store(y_pointer + places, y, mask=inside)


def bias_after(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside)
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(
        y_pointer + places, y + tl.load(bias_pointer + places % channels, mask=inside), mask=inside
    )


def load_for_each_piece(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    bias = tl.load(bias_pointer + places % channels, mask=inside)
    tail = -0.1 / (1 - 4.5 * (tl.load(x_pointer + places, mask=inside) + bias + 3))
    x = tl.load(x_pointer + places, mask=inside, other=0.0) + bias
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def mask_only_what_it_stores(
    x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr
):
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
    x = tl.load(x_pointer + places, mask=inside) + tl.load(
        bias_pointer + places % channels, mask=inside
    )
    tail = -0.1 / (1 - 4.5 * (x + 3))
    y = tl.where(x >= 3, x, tl.where(x >= -3, x * (x * 2.9 / 18 + 3.1 / 6), tail))
    tl.store(y_pointer + places, y, mask=inside)


def store_the_sum_first(x_pointer, bias_pointer, y_pointer, count, channels, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    x = tl.load(x_pointer + places, mask=inside) + tl.load(
        bias_pointer + places % channels, mask=inside
    )
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
    x = tl.load(x_pointer + at, mask=at < count) + tl.load(
        bias_pointer + at % channels, mask=at < count
    )
    within = tl.maximum(x, -3.0)
    upper = within * (1 - tl.maximum(3 - within, 0.0) * 2.9 / 18)
    tl.store(y_pointer + at, upper / (1 + 4.5 * tl.maximum(-3 - x, 0.0)), mask=at < count)


class SlopeFromMasks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return naive(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        upper, middle = (x >= 3).to(x.dtype), ((x >= -3) & (x < 3)).to(x.dtype)
        tail = 1 - upper - middle
        reach = (1 - 4.5 * (x + 3)).where(x < -3, 1.0)
        return grad * (upper + middle * (x * 2.9 / 9 + 3.1 / 6) - tail * 0.45 / reach**2)


class WithSetupContext(torch.autograd.Function):
    """In the newer style, which `torch.func` wants."""

    @staticmethod
    def forward(x):
        return naive(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return slope(ctx.saved_tensors[0]).mul(grad)


class SlopeOnCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.slope = slope(x)
        return naive(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.slope


right = with_backward(times_slope)


# Additions


def in_place(x, count):
    y = x + 1
    for _ in range(count - 1):
        y += 1
    return y


def with_one_more(x, count):
    y = x.clone()
    for _ in range(count):
        y = y + 1
    return y


def one_too_few(x, count):
    for _ in range(count - 1):
        x = x + 1
    return x


def by_recursion(x, count):
    return torch.add(by_recursion(x, count - 1), 1) if count else x


def by_reduce(x, count):
    return functools.reduce(lambda y, _: 1 + y, range(count), x)


# Bytes kept


def kept_by(count, *, weights=True, once=True):
    """An answer that adds up `count(tensor)` of what is kept."""

    def answer(layer, x):
        known = (
            {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
            if weights
            else set()
        )
        sizes = []

        def pack(tensor):
            address = tensor.untyped_storage().data_ptr()
            if address not in known:
                sizes.append(count(tensor))
            if once:
                known.add(address)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = layer(x)
        del output
        return sum(sizes)

    return answer


def storage_bytes(tensor):
    return tensor.untyped_storage().nbytes()


def weights_by_identity(layer, x):
    kept = {}

    def pack(tensor):
        if not any(tensor is weight for weight in layer.parameters()):
            kept[tensor.untyped_storage().data_ptr()] = storage_bytes(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(x)
    del output
    return sum(kept.values())


def without_a_tensor_from_pack(layer, x):
    """What `pack` noted is freed during the forward pass, and its address comes again."""
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = storage_bytes(tensor)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda nothing: nothing):
        layer(x)
    return sum(size for address, size in kept.items() if address not in weights)


class Kept:
    """A counter whose methods are the hooks."""

    def __init__(self, layer):
        self.sizes = {}
        self.weights = [weight.untyped_storage().data_ptr() for weight in layer.parameters()]

    def note(self, tensor):
        memory = tensor.untyped_storage()
        self.sizes[memory.data_ptr()] = memory.size()
        return tensor.detach()

    def give_back(self, packed):
        return packed


def by_a_counter(layer, x):
    counter = Kept(layer)
    with torch.autograd.graph.saved_tensors_hooks(counter.note, counter.give_back):
        output = layer(x)
    del output
    return sum(size for address, size in counter.sizes.items() if address not in counter.weights)


# Activations of one's own


def mish(x):
    return x * torch.tanh(torch.nn.functional.softplus(x))


def sine(x):
    return x + torch.sin(x) ** 2


WRONG = {
    "additions": {
        "adds in place": in_place,
        "copies first": with_one_more,
        "adds once too few": one_too_few,
        "adds all at once": lambda x, count: x + count,
        "changes x": lambda x, count: x.add_(count),
    },
    "kept-bytes": {
        "counts numbers for bytes": kept_by(torch.Tensor.numel),
        "counts four bytes for each number": kept_by(lambda tensor: 4 * tensor.numel()),
        "counts a memory twice": kept_by(storage_bytes, once=False),
        "counts the weights": kept_by(storage_bytes, weights=False),
        "looks for weights by identity": weights_by_identity,
        "counts the numbers of a view alone": kept_by(lambda tensor: tensor.nbytes),
        "counts the output": lambda layer, x: layer(x).nbytes,
        "counts the input": lambda layer, x: x.nbytes,
        "lets memory go that it has counted": without_a_tensor_from_pack,
    },
    "lean-fastswish": {
        "a function": lambda x: right.apply(x),
        "hangs the slope on ctx": SlopeOnCtx,
        "keeps input and output": with_backward(times_slope, keep=lambda x, y: (x, y)),
        "takes the middle slope for the tail": with_backward(middle_everywhere),
        "joins the slopes at 3.1": with_backward(slope_joined_at(3.1, -3)),
        "joins the slopes at 2.9": with_backward(slope_joined_at(2.9, -3)),
        "joins the slopes at -3.1": with_backward(slope_joined_at(3, -3.1)),
        "forgets the incoming gradient": with_backward(lambda grad, x: slope(x)),
        "turns the sign of the tail": with_backward(
            lambda grad, x: grad * slope(x).where(x >= -3, -slope(x))
        ),
        "returns one row": with_backward(times_slope, values=lambda x: naive(x.flatten())),
        "slopes in half the digits": with_backward(
            lambda grad, x: grad * slope(x.float()).to(grad.dtype)
        ),
        "values in half the digits": with_backward(
            times_slope, values=lambda x: naive(x.float()).to(x.dtype)
        ),
        "values of HardSwish": with_backward(times_slope, values=torch.nn.functional.hardswish),
        "views x as one row": with_backward(
            times_slope, values=lambda x: naive(x.view(-1)).view(x.shape)
        ),
        "hangs the tensor on ctx": with_backward(times_slope, keep=lambda x, y: ()),
    },
    "my-activation": {
        "a straight line": lambda x: 2 * x + 1,
        "looks at its neighbours": lambda x: torch.relu(x - 2 * x[:1]),
        "has no gradient": lambda x: torch.relu(x).detach(),
        "overflows": lambda x: torch.exp(x**4),
        "has no slope at 0": lambda x: x.abs().sqrt(),
        "changes x in place": lambda x: x.detach().relu_(),
    },
    "fused-kernel": {
        "forgets the mask": forget_the_mask,
        "chooses by torch.where": by_torch_where,
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
    "additions": {"by recursion": by_recursion, "by reduce": by_reduce},
    "kept-bytes": {"with a set": kept_by(storage_bytes), "with a counter": by_a_counter},
    "lean-fastswish": {
        "with masks made in the backward pass": SlopeFromMasks,
        "with setup_context": WithSetupContext,
        "with the slope of the course": right,
    },
    "my-activation": {"Mish": mish, "with waves": sine},
    "fused-kernel": {
        "from the tail on": by_constants,
        "by the rewrite": by_the_rewrite,
    },
}
