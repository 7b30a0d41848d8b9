"""Exercises of lesson 06: ghost batch norm, what all-reduce costs, the warm-up schedule, one LARS step."""

import torch

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched

EPSILON = 1e-5


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


def all_reduce(gradient_bytes, workers, bytes_per_s):
    return 2 * gradient_bytes * (workers - 1) / workers / bytes_per_s


def verify_all_reduce(answer):
    expect_close(answer(8e6, 2, 1e9), 8e-3, "8 MB, 2 workers, 1 GB/s: half the bytes, twice")
    expect_close(answer(8e6, 4, 1e9), 12e-3, "the same with 4 workers")
    expect_close(answer(8e6, 1024, 1e9), 15.984375e-3, "the same with 1,024 workers")
    expect_close(answer(8e6, 1, 1e9) + 1, 1, "a single worker has nothing to send")
    expect_close(answer(102.4e6, 8, 12.5e9), 14.336e-3, "102.4 MB, 8 workers, 12.5 GB/s")


def ghost_batch_norm(x, ghost_size):
    n, c, h, w = x.shape
    groups = x.reshape(n // ghost_size, ghost_size, c, h, w)
    mean = groups.mean((1, 3, 4), keepdim=True)
    variance = groups.var((1, 3, 4), keepdim=True, unbiased=False)
    return ((groups - mean) / (variance + 1e-5).sqrt()).reshape(n, c, h, w)


def verify_ghost_batch_norm(answer):
    answer, random = untouched(answer), torch.Generator().manual_seed(0)
    # in the last case the variance is about as small as epsilon: there one sees where epsilon stands
    cases = {(12, 4): ((3, 5, 5), 1.0), (8, 8): ((2, 4, 6), 1.0), (6, 2): ((1, 3, 3), 1.0), (9, 3): ((2, 4, 4), 1e-3)}
    for (n, ghost_size), (shape, size) in cases.items():
        drift = torch.arange(n).view(-1, 1, 1, 1) / 2
        x = size * (torch.randn(n, *shape, generator=random) * (1 + drift) + drift)
        found, case = answer(x.clone(), ghost_size), f"{n} images in ghosts of {ghost_size}, values around {size:g}"
        if not isinstance(found, torch.Tensor) or found.shape != x.shape:
            raise Wrong(f"{case}: expected a torch tensor of shape {tuple(x.shape)}, found {shorten(found)}.")
        for group in range(n // ghost_size):
            part = slice(group * ghost_size, (group + 1) * ghost_size)
            wanted = torch.nn.functional.batch_norm(x[part], None, None, training=True, eps=EPSILON)
            found = found.to(wanted.dtype)
            mean, spread = float(found[part].mean()), float(found[part].std(unbiased=False))
            expect(
                bool(torch.allclose(found[part], wanted, rtol=1e-3, atol=1e-4)),
                f"{case}: group {group} is not what batch norm makes of it alone (its mean is {mean:.3f} and its "
                f"deviation {spread:.3f}; batch norm gives other values, also where they are tiny).",
            )


def lars_step(weight, gradient, learning_rate, trust, weight_decay):
    slope = gradient + weight_decay * weight
    ratio = trust * weight.norm() / (gradient.norm() + weight_decay * weight.norm())
    return weight - learning_rate * ratio * slope


def verify_lars_step(answer):
    answer = untouched(answer)
    weight, gradient = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0])
    near(answer(weight.clone(), gradient.clone(), 1.0, 0.1, 0.0), [3.0, 3.5], "weight (3, 4), gradient (0, 2)")
    near(answer(weight.clone(), 100 * gradient, 1.0, 0.1, 0.0), [3.0, 3.5], "a gradient a hundred times as long")
    near(answer(weight.clone(), gradient.clone(), 0.5, 0.1, 0.0), [3.0, 3.75], "half the learning rate")
    near(answer(weight.clone(), gradient.clone(), 1.0, 0.1, 0.1), [2.94, 3.52], "weight decay 0.1")
    near(answer(weight.clone(), gradient / 40, 0.01, 1.0, 0.0), [3.0, 3.95], "a gradient much shorter than the weight")
    square, slope = torch.arange(1.0, 7.0).reshape(2, 3), torch.tensor([[3.0, -1.0, 2.0], [0.0, 5.0, 1.0]])
    wanted = lars_step(square, slope, 0.3, 0.5, 5e-4)
    near(answer(square.clone(), slope.clone(), 0.3, 0.5, 5e-4), wanted.tolist(), "a layer of 2 x 3 weights")


def near(found, wanted, case):
    wanted = torch.tensor(wanted)
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape:
        raise Wrong(f"{case}: expected a torch tensor of shape {tuple(wanted.shape)}, found {shorten(found)}.")
    same = bool(torch.allclose(found.to(wanted.dtype), wanted, rtol=1e-4, atol=1e-5))
    told = [[round(value, 4) for value in each.flatten().tolist()] for each in (wanted, found)]
    expect(same, f"{case}: expected the weights {told[0]}, found {told[1]}.")


EXERCISES = (
    Exercise(
        id="warmup-factor",
        task="The share of the full learning rate at each step of a gradual warm-up.",
        difficulty=1,
        minutes=5,
        hint="A straight line that has reached 1 with the last warm-up step, and stays there. The first step is not 0.",
        reference=warmup_factor,
        verify=verify_warmup_factor,
    ),
    Exercise(
        id="ghost-batch-norm",
        task="Normalise every run of ghost_size images on its own.",
        difficulty=2,
        minutes=10,
        hint="Reshape to (groups, ghost_size, C, H, W): the statistics are over dimensions 1, 3 and 4.",
        reference=ghost_batch_norm,
        verify=verify_ghost_batch_norm,
    ),
    Exercise(
        id="all-reduce",
        task="The seconds that a ring all-reduce of the gradient takes.",
        difficulty=1,
        minutes=4,
        hint="Each worker sends 2 n (k - 1) / k bytes, and its link carries so many per second.",
        reference=all_reduce,
        verify=verify_all_reduce,
    ),
    Exercise(
        id="lars-step",
        task="One step of LARS for one layer, without momentum.",
        difficulty=2,
        minutes=10,
        hint="ratio = trust |w| / (|g| + weight_decay |w|); the step is rate x ratio x (g + weight_decay w).",
        reference=lars_step,
        verify=verify_lars_step,
    ),
)
