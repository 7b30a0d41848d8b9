"""Exercises of lesson 06: slopes as long as a layer's weights, a matrix made orthogonal, the warm-up schedule."""

import torch

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched


def stretched(weights, slopes):
    if weights.shape[1] == 1:
        return slopes
    lengths = weights.norm(dim=(1, 2), keepdim=True), slopes.norm(dim=(1, 2), keepdim=True)
    return slopes * lengths[0] / lengths[1].clamp_min(1e-12)


def verify_stretched(answer):
    answer, dice = untouched(answer), torch.Generator().manual_seed(0)
    shapes = {"a layer of 2 networks": (2, 3, 5), "of 3 networks": (3, 7, 2), "of one network": (1, 4, 6)}
    sizes = torch.tensor([0.3, 4.0, 1.7]).view(-1, 1, 1)
    for case, shape in shapes.items():
        weights = torch.randn(shape, generator=dice) * sizes[: shape[0]]
        slopes = torch.randn(shape, generator=dice) / sizes[: shape[0]] ** 2
        _same(answer(weights, slopes), stretched(weights, slopes), f"{case}, {shape}")
    weights, slopes = torch.full((2, 1, 3), 2.0), torch.tensor([[[0.1, 0.0, 0.3]], [[5.0, 1.0, 0.0]]])
    _same(answer(weights, slopes), slopes, "a vector, in = 1: its slopes come back as they are")
    _same(answer(0 * weights, slopes), slopes, "a vector of length 0")
    weights, slopes = torch.randn(2, 1, 4, generator=dice), torch.zeros(2, 5, 1)
    slopes[0] = 3.0
    wanted = stretched(weights.mT.repeat(1, 2, 1)[:, :5], slopes)
    _same(answer(weights.mT.repeat(1, 2, 1)[:, :5], slopes), wanted, "one output; the second network's slope is 0")
    weights, slopes = torch.ones(2, 3, 4), torch.ones(2, 3, 4)
    weights[1] = 0.0
    _same(answer(weights, slopes), stretched(weights, slopes), "all weights of the second network are 0")
    tiny, weights = torch.randn(2, 3, 4, generator=dice), torch.randn(2, 3, 4, generator=dice)
    for size in (1e-6, 8e-9):
        slopes = size * tiny / tiny.norm(dim=(1, 2), keepdim=True)
        _same(answer(weights, slopes), stretched(weights, slopes), f"slopes of length {size:g}")


COEFFICIENTS = 3.4445, -4.775, 2.0315


def orthogonal(matrices, steps=5):
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True)
    for _ in range(steps):
        square = x @ x.mT
        x = 3.4445 * x - 4.775 * square @ x + 2.0315 * square @ square @ x
    return x


def verify_orthogonal(answer):
    answer, dice = untouched(answer), torch.Generator().manual_seed(0)
    for shape, steps in {(2, 3, 5): 5, (3, 6, 4): 5, (1, 2, 7): 1, (2, 4, 3): 2}.items():
        matrices = torch.randn(shape, generator=dice) * torch.tensor([0.02, 3.0, 50.0]).view(-1, 1, 1)[: shape[0]]
        case = f"{shape[0]} of {shape[1]} x {shape[2]}, {steps} rounds"
        _same(answer(matrices, steps), orthogonal(matrices, steps), case, tolerance=2e-3)


def warmup_factor(step, warmup_steps):
    return min(1.0, (step + 1) / warmup_steps)


def verify_warmup_factor(answer):
    expect_close(answer(0, 5), 0.2, "the first of 5 warm-up steps")
    expect_close(answer(2, 5), 0.6, "the third of 5 warm-up steps")
    expect_close(answer(4, 5), 1.0, "the last of 5 warm-up steps")
    expect_close(answer(5, 5), 1.0, "the first step after the warm-up")
    expect_close(answer(17, 5), 1.0, "long after the warm-up")
    expect_close(answer(0, 3), 1 / 3, "the first of 3 warm-up steps")
    expect_close(answer(0, 1), 1.0, "a warm-up of a single step")


def _same(found, wanted, case, tolerance=1e-4):
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape:
        raise Wrong(f"{case}: expected a torch tensor of shape {tuple(wanted.shape)}, found {shorten(found)}.")
    lengths = [[round(float(each.norm()), 4) for each in x] for x in (wanted, found)]
    told = f"{case}: expected the lengths {lengths[0]}, one per network, found {lengths[1]}"
    told += "; the entries differ." if lengths[0] == lengths[1] else "."
    scale = float(wanted.abs().max())
    expect(bool(torch.allclose(found.to(wanted.dtype), wanted, rtol=tolerance, atol=tolerance * scale)), told)


EXERCISES = (
    Exercise(
        id="stretched",
        task="Slopes as long as the weights of their layer: the idea of LARS.",
        difficulty=2,
        minutes=10,
        hint="Lengths: x.norm(dim=(1, 2), keepdim=True). Divide by at least 1e-12: clamp_min.",
        reference=stretched,
        verify=verify_stretched,
    ),
    Exercise(
        id="orthogonal",
        task="Bring all singular values of a matrix near 1, with products alone: the idea of Muon.",
        difficulty=2,
        minutes=10,
        hint="Divide each matrix by its own length first. Then repeat x = a x + b (x xᵀ) x + c (x xᵀ)² x; x.mT is xᵀ.",
        reference=orthogonal,
        verify=verify_orthogonal,
    ),
    Exercise(
        id="warmup-factor",
        task="The share of the full learning rate at each step of a gradual warm-up.",
        difficulty=1,
        minutes=5,
        hint="A straight line that has reached 1 with the last warm-up step, and stays there. The first step is not 0.",
        reference=warmup_factor,
        verify=verify_warmup_factor,
    ),
)
