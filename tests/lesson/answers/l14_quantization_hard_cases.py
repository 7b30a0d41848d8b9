"""Answers to the exercises of lesson 14: wrong ones that must be rejected, right ones written
differently.
"""

import copy
from functools import partial
from itertools import pairwise

import torch
from torch import nn
from torch.func import functional_call

LAYERS = (nn.Conv2d, nn.Linear)


def noise(
    network, change, images, *, layers=LAYERS, power=2, percent=100, over="exact", all_at_once=False
):
    """The noise by layer, with one property of the right answer changed."""
    exact, twin, found = network(images), copy.deepcopy(network), {}
    for name, layer in network.named_modules():
        if isinstance(layer, layers):
            twin = twin if all_at_once else copy.deepcopy(network)
            twin.get_submodule(name).weight.data = change(layer.weight.data)
            output = twin(images)
            base = {"exact": exact, "changed": output, "centred": exact - exact.mean()}[over]
            found[name] = percent * float((output - exact).norm() / base.norm()) ** power
    return found


def in_the_network_itself(network, change, images):
    exact, found = network(images), {}
    for name, layer in network.named_modules():
        if isinstance(layer, LAYERS):
            layer.weight.data = change(layer.weight.data)
            found[name] = 100 * float(
                (network(images) - exact).square().sum() / exact.square().sum()
            )
    return found


def top_level_only(network, change, images):
    found = noise(network, change, images)
    return {name: value for name, value in found.items() if "." not in name}


def by_functional_call(network, change, images):
    exact, found = network(images), {}
    for name, layer in network.named_modules():
        if type(layer) in LAYERS:
            outputs = functional_call(network, {f"{name}.weight": change(layer.weight)}, images)
            found[name] = 100 * (outputs - exact).pow(2).mean().item() / exact.pow(2).mean().item()
    return found


def put_back(network, change, images):
    exact, found = network(images), {}
    for name, layer in network.named_modules():
        if isinstance(layer, LAYERS):
            original = layer.weight.data
            layer.weight.data = change(original.clone())
            found[name] = 100 * float((network(images) - exact).norm() / exact.norm()) ** 2
            layer.weight.data = original
    return found


def by_gap(
    w, gap=4, *, size=torch.abs, first=False, zeros=False, strict=False, below=False, part=2
):
    """The outliers, with one property of the right answer changed."""
    largest = size(w).flatten(1).amax(1).tolist()
    order = sorted(
        (n for n in range(len(largest)) if zeros or largest[n] > 0), key=lambda n: -largest[n]
    )
    ratios = [largest[a] / max(largest[b], 1e-9) for a, b in pairwise(order)][: len(order) // part]
    wide = [n for n, ratio in enumerate(ratios) if (ratio > gap if strict else ratio >= gap)]
    if not wide:
        return []
    cut = wide[0] if first else max(wide, key=lambda n: ratios[n])
    return sorted(order[cut + 1 :] if below else order[: cut + 1])


def without_the_argument(w, gap=4):
    return by_gap(w, 4)


def the_largest_channel_alone(w, gap=4):
    return by_gap(w, gap) and [int(w.flatten(1).abs().amax(1).argmax())]


def larger_than_the_median(w, gap=4):
    largest = w.flatten(1).abs().amax(1)
    return (largest >= gap * largest.median()).nonzero().flatten().tolist()


def as_a_tensor(w, gap=4):
    return torch.tensor(by_gap(w, gap))


def by_sorted_logarithms(w, gap=4):
    largest = w.flatten(1).abs().max(1).values
    values, order = largest[largest > 0].sort()
    if len(values) < 2:
        return []
    ratios = values[1:] / values[:-1]
    lower = len(ratios) - len(values) // 2
    at = lower + int(ratios[lower:].argmax())
    channels = (largest > 0).nonzero().flatten()[order]
    return channels[at + 1 :].tolist() if ratios[at] >= gap else []


def groups(
    w, size, bits=4, *, rows=False, per_row=True, guard=True, extra=0, whole=torch.round, cut=False
):
    """Rounding in groups, with one property of the right answer changed."""
    top, parts = 2 ** (bits - 1) - 1 + extra, []
    width = w.shape[1] // size * size if cut else w.shape[1]
    for part in w[:, :width].split(w.shape[1] if rows else size, dim=1):
        largest = part.abs().amax(1, keepdim=True) if per_row else part.abs().max().view(1, 1)
        scale = largest / top
        scale = scale.where(scale > 0, 1) if guard else scale
        parts.append(whole(part / scale) * scale)
    return torch.cat([*parts, w[:, width:]], dim=1)


def signed(w, size, bits=4):
    parts = []
    for part in w.split(size, dim=1):
        scale = part.amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        parts.append((part / scale.where(scale > 0, 1)).round() * scale.where(scale > 0, 1))
    return torch.cat(parts, dim=1)


def always_4_bits(w, size, bits=4):
    return groups(w, size, 4)


def integers(w, size, bits=4):
    top = 2 ** (bits - 1) - 1
    return torch.cat(
        [(p / (p.abs().amax(1, keepdim=True) / top + 1e-12)).round() for p in w.split(size, 1)], 1
    )


def column_by_column(w, size, bits=4):
    result, top = torch.empty_like(w), 2 ** (bits - 1) - 1
    for row in range(len(w)):
        for begin in range(0, w.shape[1], size):
            group = w[row, begin : begin + size]
            scale = float(group.abs().max()) / top or 1.0
            result[row, begin : begin + size] = torch.round(group / scale) * scale
    return result


def padded(w, size, bits=4):
    top, width = 2 ** (bits - 1) - 1, w.shape[1]
    blocks = nn.functional.pad(w, (0, -width % size)).unflatten(1, (-1, size))
    scale = (blocks.abs().amax(-1, keepdim=True) / top).clamp_min(1e-12)
    return ((blocks / scale).round() * scale).flatten(1)[:, :width]


def rounded_with_its_true_derivative(x, scale, low, high):
    return (x / scale).round().clamp(low, high) * scale


def no_saturation(x, scale, low, high):
    steps = x / scale
    return (steps + (steps.round() - steps).detach()) * scale


def a_gradient_beyond_the_ends(x, scale, low, high):
    return x + ((x / scale).round().clamp(low, high) * scale - x).detach()


def everything_detached(x, scale, low, high):
    return ((x / scale).round().clamp(low, high) * scale).detach()


def a_gradient_in_steps(x, scale, low, high):
    steps = x.detach() / scale
    inside = ((steps >= low) & (steps <= high)).float()
    return steps.round().clamp(low, high) * scale + (x - x.detach()) * inside / scale


def rounded_down(x, scale, low, high):
    steps = x / scale
    return (steps + (steps.floor() - steps).detach()).clamp(low, high) * scale


def one_scale_for_all(x, scale, low, high):
    scale = torch.as_tensor(scale).max()
    steps = x / scale
    return (steps + (steps.round() - steps).detach()).clamp(low, high) * scale


def a_symmetric_grid(x, scale, low, high):
    return clamped_first(x, scale, -high, high)


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, low, high):
        steps = x / scale
        ctx.save_for_backward((steps >= low) & (steps <= high))
        return steps.round().clamp(low, high) * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None, None, None


def as_an_autograd_function(x, scale, low, high):
    return _Straight.apply(x, scale, low, high)


def clamped_first(x, scale, low, high):
    scale = torch.as_tensor(scale, dtype=x.dtype)
    inside = torch.minimum(torch.maximum(x, low * scale), high * scale)
    return inside + ((inside / scale).round() * scale - inside).detach()


def masked(where, dtype=None):
    def answer(x, scale, low, high):
        x = x.to(dtype or x.dtype)
        inside = x * where(x / scale, low, high)
        return inside + ((x / scale).round().clamp(low, high) * scale - inside).detach()

    return answer


def on_the_range(steps, low, high):
    return (steps >= low) & (steps <= high)


WRONG = {
    "noise-by-layer": {
        "changes the network itself": in_the_network_itself,
        "changes layer after layer, not one alone": partial(noise, all_at_once=True),
        "the size, not the power": partial(noise, power=1),
        "a share, not per cent": partial(noise, percent=1),
        "convolutions only": partial(noise, layers=nn.Conv2d),
        "batch norm, too": partial(noise, layers=(*LAYERS, nn.BatchNorm2d)),
        "over the power of the changed outputs": partial(noise, over="changed"),
        "over the variance": partial(noise, over="centred"),
        "not the layers inside other modules": top_level_only,
    },
    "outliers": {
        "forgets negative weights": partial(by_gap, size=lambda w: w.clamp_min(0)),
        "takes the first gap": partial(by_gap, first=True),
        "takes zeros for a gap": partial(by_gap, zeros=True),
        "a ratio equal to the gap is none": partial(by_gap, strict=True),
        "looks below the middle, too": partial(by_gap, part=1),
        "gives those below the gap": partial(by_gap, below=True),
        "takes no notice of the argument": without_the_argument,
        "the largest channel alone": the_largest_channel_alone,
        "compares with the median": larger_than_the_median,
        "a tensor": as_a_tensor,
    },
    "in-groups": {
        "one scale per row": partial(groups, rows=True),
        "one scale for the groups of all rows": partial(groups, per_row=False),
        "divides zeros by zero": partial(groups, guard=False),
        "one integer too many": partial(groups, extra=1),
        "rounds down": partial(groups, whole=torch.floor),
        "leaves the last, shorter group as it is": partial(groups, cut=True),
        "forgets negative weights": signed,
        "always 4 bits": always_4_bits,
        "returns integers": integers,
    },
    "straight-through": {
        "has the true derivative, which is 0": rounded_with_its_true_derivative,
        "does not saturate": no_saturation,
        "has a gradient beyond the ends": a_gradient_beyond_the_ends,
        "detaches everything": everything_detached,
        "divides the gradient by the scale": a_gradient_in_steps,
        "rounds down": rounded_down,
        "takes one scale for all channels": one_scale_for_all,
        "takes every grid for symmetric": a_symmetric_grid,
        "a mask after rounding": masked(
            lambda steps, low, high: on_the_range(steps.round(), low, high)
        ),
        "a mask one step too wide": masked(
            lambda steps, low, high: on_the_range(steps, low - 1, high + 1)
        ),
        "float32": masked(on_the_range, torch.float32),
    },
}

RIGHT = {
    "noise-by-layer": {"by functional_call": by_functional_call, "puts the weights back": put_back},
    "outliers": {"by a sorted tensor": by_sorted_logarithms, "by pairs": by_gap},
    "in-groups": {"group by group": column_by_column, "padded": padded},
    "straight-through": {
        "as an autograd.Function": as_an_autograd_function,
        "clamped first": clamped_first,
        "with a mask": masked(on_the_range),
    },
}
