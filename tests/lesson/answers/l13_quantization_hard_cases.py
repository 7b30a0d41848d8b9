"""Answers to the exercises of lesson 13: wrong ones that must be rejected, right ones written differently."""

import math

import torch

from labkit.lesson.exercises.l13_quantization_hard_cases import error_feedback, shared_scales


def to_grid(w, scale, top):
    return (w / scale).round().clamp(-top, top) * scale


def feedback(w, scale, top, u, *, sign=1, divide=True, factor=lambda u, j: u[j, j + 1 :], saturate=True, stale=False):
    given, w, rounded = w, w.clone(), w.clone()
    for j in range(w.shape[1]):
        rounded[:, j] = to_grid(w[:, j], scale[:, j], top if saturate else 10**9)
        source = given if stale else w
        error = (source[:, j] - rounded[:, j]) / (u[j, j] if divide else 1)
        w[:, j + 1 :] -= sign * error[:, None] * factor(u, j)
    return rounded


def in_place(w, scale, top, u):
    rounded = error_feedback(w, scale, top, u)
    w.copy_(rounded)
    return w


def row_by_row(w, scale, top, u):
    found = []
    for row, steps in zip(w, scale, strict=True):
        row, out = row.clone(), []
        for j, step in enumerate(steps):
            value = (row[j] / step).round().clamp(-top, top) * step
            row = row - (row[j] - value) / u[j, j] * torch.cat([torch.zeros(j + 1, dtype=u.dtype), u[j, j + 1 :]])
            out.append(value)
        found.append(torch.stack(out))
    return torch.stack(found)


def with_whole_rows_of_u(w, scale, top, u):
    w, columns = w.clone(), []
    for j in range(w.shape[1]):
        columns.append(to_grid(w[:, j], scale[:, j], top))
        w = w - torch.outer(w[:, j] - columns[-1], u[j] / u[j, j])  # u is 0 left of its diagonal
    return torch.stack(columns, 1)


def by_frexp(blocks):
    largest = blocks.abs().amax(1, keepdim=True)
    exponent = torch.frexp(largest).exponent - 3
    return torch.where(largest > 0, torch.ldexp(torch.ones_like(largest), exponent), torch.ones_like(largest))


def block_by_block(blocks):
    def scale(block):
        largest = block.abs().max().item()
        return 2.0 ** (math.floor(math.log2(largest)) - 2) if largest else 1.0

    return torch.tensor([[scale(block)] for block in blocks])


def powers(whole, shift=2):
    def answer(blocks):
        largest = blocks.abs().amax(1, keepdim=True)
        return torch.where(largest > 0, torch.exp2(whole(torch.log2(largest)) - shift), torch.ones_like(largest))

    return answer


def by_natural_logarithms(blocks):
    """In float32 the quotient falls short of a whole number at some powers of two."""
    largest = blocks.abs().amax(1, keepdim=True)
    exponent = (torch.log(largest) / torch.log(torch.tensor(2.0))).floor()
    return torch.where(largest > 0, torch.exp2(exponent - 2), torch.ones_like(largest))


def zero_below(limit):
    def answer(blocks):
        largest = blocks.abs().amax(1, keepdim=True)
        return torch.where(largest > limit, shared_scales(blocks), torch.ones_like(largest))

    return answer


def of_signed_values(blocks):
    largest = blocks.amax(1, keepdim=True)
    return torch.where(largest > 0, torch.exp2(torch.floor(torch.log2(largest)) - 2), torch.ones_like(largest))


def of_the_whole_matrix(blocks):
    return shared_scales(blocks.reshape(1, -1)).expand(len(blocks), 1).clone()


def rounded_with_its_true_derivative(x, scale, top):
    return (x / scale).round().clamp(-top, top) * scale


def no_saturation(x, scale, top):
    steps = x / scale
    return (steps + (steps.round() - steps).detach()) * scale


def a_gradient_beyond_the_ends(x, scale, top):
    return x + ((x / scale).round().clamp(-top, top) * scale - x).detach()


def saturated_before_it_is_detached(x, scale, top):
    return ((x / scale).round().clamp(-top, top) * scale).detach()


def a_gradient_in_steps(x, scale, top):
    steps = x.detach() / scale
    on_the_grid = steps.round().clamp(-top, top) * scale
    inside = (steps.abs() <= top).float()
    return on_the_grid + (x - x.detach()) * inside / scale


def rounded_down(x, scale, top):
    steps = x / scale
    return (steps + (steps.floor() - steps).detach()).clamp(-top, top) * scale


def one_scale_for_all(x, scale, top):
    scale = torch.as_tensor(scale).max()
    steps = x / scale
    return (steps + (steps.round() - steps).detach()).clamp(-top, top) * scale


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, top):
        ctx.save_for_backward((x / scale).abs() <= top)
        return (x / scale).round().clamp(-top, top) * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None, None


def as_an_autograd_function(x, scale, top):
    return _Straight.apply(x, scale, top)


def clamped_first(x, scale, top):
    limit = top * torch.as_tensor(scale)
    inside = torch.minimum(torch.maximum(x, -limit), limit)
    return inside + ((inside / scale).round() * scale - inside).detach()


def with_a_mask(x, scale, top):
    steps = x / scale
    value = steps.detach().round().clamp(-top, top) * scale
    return torch.where(steps.abs() <= top, x + (value - x).detach(), value + 0 * x)


def masked(where, dtype=None):
    def answer(x, scale, top):
        x = x.to(dtype or x.dtype)
        inside = x * where(x / scale, top)
        return inside + ((x / scale).round().clamp(-top, top) * scale - inside).detach()

    return answer


WRONG = {
    "error-feedback": {
        "rounds to nearest": lambda w, scale, top, u: to_grid(w, scale, top),
        "adds the error": lambda *given: feedback(*given, sign=-1),
        "does not divide by the diagonal": lambda *given: feedback(*given, divide=False),
        "takes the column of u": lambda *given: feedback(*given, factor=lambda u, j: u[j + 1 :, j]),
        "takes the error of the old weights": lambda *given: feedback(*given, stale=True),
        "does not saturate": lambda *given: feedback(*given, saturate=False),
        "gives all columns the same share": lambda *given: feedback(*given, factor=lambda u, j: u[j, j + 1 :].mean()),
        "one scale per row": lambda w, scale, top, u: error_feedback(w, scale[:, :1].expand_as(scale), top, u),
        "changes what was given": in_place,
        "returns integers": lambda w, scale, top, u: error_feedback(w, scale, top, u) / scale,
    },
    "shared-scales": {
        "rounds the exponent up": powers(torch.ceil),
        "rounds the exponent to nearest": powers(torch.round),
        "forgets the largest of E2M1": powers(torch.floor, 0),
        "shifts by one": powers(torch.floor, 1),
        "divides by 6, no power of two": lambda blocks: blocks.abs().amax(1, keepdim=True) / 6,
        "forgets negative values": of_signed_values,
        "has one scale for all blocks": of_the_whole_matrix,
        "is 0 for zeros": lambda blocks: torch.exp2(torch.floor(torch.log2(blocks.abs().amax(1, keepdim=True))) - 2),
        "has lost a rank": lambda blocks: shared_scales(blocks)[:, 0],
        "by natural logarithms in float32": by_natural_logarithms,
        "takes a block below a millionth for zeros": zero_below(1e-6),
    },
    "straight-through": {
        "has the true derivative, which is 0": rounded_with_its_true_derivative,
        "does not saturate": no_saturation,
        "has a gradient beyond the ends": a_gradient_beyond_the_ends,
        "detaches everything": saturated_before_it_is_detached,
        "divides the gradient by the scale": a_gradient_in_steps,
        "rounds down": rounded_down,
        "takes one scale for all channels": one_scale_for_all,
        "a mask after rounding": masked(lambda steps, top: steps.round().abs() <= top),
        "a mask one step too wide": masked(lambda steps, top: steps.abs() <= top + 1),
        "float32": masked(lambda steps, top: steps.abs() <= top, torch.float32),
    },
}

RIGHT = {
    "error-feedback": {
        "row by row": row_by_row,
        "with whole rows of u": with_whole_rows_of_u,
    },
    "shared-scales": {
        "by frexp": by_frexp,
        "block by block": block_by_block,
    },
    "straight-through": {
        "as an autograd.Function": as_an_autograd_function,
        "clamped first": clamped_first,
        "with a mask": with_a_mask,
    },
}
