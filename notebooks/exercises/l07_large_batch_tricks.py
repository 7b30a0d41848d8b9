"""Exercises of the lesson on large batches: warm-up, the peak of a learning rate, LARS, one
schedule, one's own.
"""

import math

import numpy as np
import torch

from labkit.lesson.exercises import Exercise, Wrong, expect, shorten, untouched


def warmup_cosine(step, steps, warmup=8):
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / (steps - warmup)
    return (1 + math.cos(math.pi * progress)) / 2


def verify_warmup_cosine(answer):
    for step, factor in enumerate((1 / 8, 2 / 8, 3 / 8, 4 / 8, 5 / 8, 6 / 8, 7 / 8, 1.0)):
        _near(answer(step, 32, 8), factor, f"step {step} of 32, in a warm-up of 8 steps")
    _near(answer(8, 32, 8), 1.0, "step 8, where the cosine begins at 1")
    _near(answer(20, 32, 8), 0.5, "step 20, half of the way from step 8 to step 32")
    _near(answer(26, 32, 8), (1 - math.sqrt(0.5)) / 2, "step 26, three quarters of the way")
    _near(answer(32, 32, 8), 0.0, "the end: LambdaLR asks once more after the last step")
    _near(answer(0, 16, 4), 0.25, "warmup=4, step 0")
    _near(answer(10, 16, 4), 0.5, "warmup=4 and 16 steps, step 10")
    _near(answer(8, 32), 1.0, "warmup is 8 when nobody says otherwise")


def find_peak(accuracy_at, start):
    best = start
    for factor in (2, 1 / 2):
        while accuracy_at(best * factor) > accuracy_at(best):
            best *= factor
    return best


def verify_find_peak(answer):
    for start, peak in ((1.0, 1.0), (0.25, 1.0), (4.0, 1.0), (1 / 32, 2.0), (16.0, 1 / 8)):
        hill = _Hill(peak)
        found = answer(hill, start)
        case = f"start {start:g}, the peak is at {peak:g}"
        _near(found, peak, case)
        beside = {2 * peak, peak / 2}
        expect(
            beside <= hill.tried,
            f"{case}: half and twice the peak must both be tried before you stop.",
        )
    flat = _Hill(1.0, height=lambda rate: 70.0)
    _near(answer(flat, 0.5), 0.5, "where half and twice are no better, the start stays")
    expect(
        len(flat.tried) <= 3, "Equal accuracies are no reason to go on: only something better is."
    )


class _Hill:
    """Accuracy against learning rate with one peak; it remembers what was tried, and ends an
    endless search.
    """

    def __init__(self, peak, height=None):
        self.height = height or (lambda rate: 77 - math.log2(rate / peak) ** 2)
        self.tried = set()
        self.calls = 0

    def __call__(self, rate):
        self.calls += 1
        expect(
            self.calls < 200,
            "The search does not end: stop where the next learning rate is not better.",
        )
        expect(
            rate > 0,
            f"A learning rate of {rate:g} was tried. Double and halve, so that it stays above 0.",
        )
        self.tried.add(rate)
        return self.height(rate)


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                ratio = 1.0
                if weight.ndim > 1 and weight.grad.norm() > 0:
                    ratio = weight.norm() / weight.grad.norm()
                weight -= group["lr"] * ratio * weight.grad


MATRIX = [[3.0, 0.0], [0.0, 4.0]]  # its length is 5


def verify_lars(answer):
    stays = [[0.0, 0.0], [0.0, 0.0]]
    _moves(
        answer,
        MATRIX,
        [[0.0, 1.0], [0.0, 0.0]],
        [[0.0, -2.5], [0.0, 0.0]],
        "|w| = 5, |g| = 1, lr 0.5",
    )
    short = [[0.0, 0.01], [0.0, 0.0]]
    _moves(
        answer,
        MATRIX,
        short,
        [[0.0, -2.5], [0.0, 0.0]],
        "a gradient a hundred times shorter, the same step",
    )
    _moves(
        answer,
        [3.0, 4.0],
        [1.0, 0.0],
        [-0.5, 0.0],
        "a vector (bias, batch norm), which moves as in plain SGD",
    )
    _moves(
        answer, MATRIX, stays, stays, "a gradient of zeros, where nothing moves and nothing is NaN"
    )
    _moves(answer, MATRIX, None, stays, "a weight without a gradient, which stays")
    kernel, gradient = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2)
    gradient[0, 0, 1] = 0  # |w| = 2, |g| = sqrt(2)
    step = (-0.5 * math.sqrt(2) * gradient).tolist()
    _moves(
        answer,
        kernel.tolist(),
        gradient.tolist(),
        step,
        "the kernel of a convolution, which has four dimensions",
    )
    _check_two_groups(answer)


def _moves(answer, weight, gradient, expected, case):
    """Raise `Wrong` unless one step at lr 0.5 moves the weight by `expected`."""
    tensor = torch.nn.Parameter(torch.tensor(weight))
    before = tensor.detach().clone()
    tensor.grad = None if gradient is None else torch.tensor(gradient)
    answer([tensor], lr=0.5).step()
    step = (tensor.detach() - before).tolist()
    told = (
        f"{case}: the weight should move by {expected}, it moves by {np.round(step, 4).tolist()}."
    )
    expect(np.allclose(step, expected, atol=1e-5), told)


def _check_two_groups(answer):
    """Each layer has a ratio of its own, and each group the lr that stands in it now."""
    layers = [torch.nn.Parameter(torch.full((1, 1), size)) for size in (2.0, 8.0, 1.0)]
    optimizer = answer([{"params": layers[:2]}, {"params": layers[2:], "lr": 0.5}], lr=0.1)
    for weight in layers:
        weight.grad = torch.full((1, 1), 3.0)
    optimizer.step()
    ends = [round(weight.item(), 4) for weight in layers]
    told = (
        "two layers of length 2 and 8 at lr 0.1, and one of length 1 in a group with lr 0.5: they "
        "should end at"
    )
    expect(
        np.allclose(ends, [1.8, 7.2, 0.5], atol=1e-4),
        f"{told} 1.8, 7.2 and 0.5, they end at {ends}.",
    )
    for group in optimizer.param_groups:
        group["lr"] = 0.0  # as a scheduler would
    optimizer.step()
    later = [round(weight.item(), 4) for weight in layers]
    expect(
        later == ends,
        "A scheduler has set the lr of each group to 0: the weights should stay, "
        f"they go to {later}.",
    )


def one_schedule(ratios):
    steps = ratios.shape[1]
    middle = np.exp(np.log(ratios).mean(axis=(0, 2)))
    cosine = (1 + np.cos(np.pi * np.arange(steps) / steps)) / 2
    factors = middle * cosine
    return factors / factors.max()


def verify_one_schedule(answer):
    rng = np.random.default_rng(0)
    ratios = np.exp(rng.normal(size=(3, 8, 2)) + np.linspace(0, 2, 8)[:, None])
    factors = _numbers(
        untouched(answer)(ratios.copy()), "3 trainings of 8 steps and 2 layers", length=8
    )
    expect(
        np.isclose(factors.max(), 1),
        f"The largest factor should be 1, it is {factors.max():.4g}: divide by it.",
    )
    cosine = (1 + np.cos(np.pi * np.arange(8) / 8)) / 2
    plain_mean = ratios.mean(axis=(0, 2)) * cosine
    expect(
        not np.allclose(factors, plain_mean / plain_mean.max()),
        "This is the plain mean, in which one layer with a large ratio decides. Take the "
        "geometric mean, "
        "exp(mean(log(ratios))).",
    )
    expected = one_schedule(ratios)
    told = (
        f"The factors should begin {np.round(expected[:4], 3)}, they begin "
        f"{np.round(factors[:4], 3)}."
    )
    expect(
        np.allclose(factors, expected, rtol=1e-5),
        f"{told} One mean over trainings and layers, times the cosine.",
    )
    long = np.exp(rng.normal(size=(2, 20, 3)))
    found = _numbers(answer(long), "2 trainings of 20 steps and 3 layers", length=20)
    expect(
        np.allclose(found, one_schedule(long), rtol=1e-5),
        "20 steps: is the cosine as long as the training?",
    )


def my_schedule(step, steps):
    progress = step / steps
    if progress < 0.1:
        return (step + 1) / (0.1 * steps + 1)
    if progress < 0.5:
        return 1.0
    return 2 * (1 - progress)


def verify_my_schedule(answer):
    """An open task: any schedule that a training can use passes."""
    for steps in (16, 32, 64, 512):
        factors = [
            _number(answer(step, steps), f"step {step} of {steps}") for step in range(steps + 1)
        ]
        low, high = min(factors), max(factors)
        told = f"with {steps} steps they lie between {low:.3g} and {high:.3g}"
        expect(low >= 0, f"A learning rate is never below 0: {told}.")
        expect(
            high <= 1 + 1e-6,
            f"Factors lie between 0 and 1, the learning rate stands outside: {told}.",
        )
        expect(high >= 0.5, f"The learning rate is never used in full: {told}.")
        expect(
            sum(factors[:steps]) > 0.05 * steps,
            f"On average nothing is left of the learning rate: {told}.",
        )


def _number(found, case):
    """`found` as a finite float, or `Wrong`."""
    try:
        number = float(found)
    except (TypeError, ValueError):
        raise Wrong(f"{case}: expected a number, found {shorten(found)}.") from None
    expect(math.isfinite(number), f"{case}: expected a finite number, found {number}.")
    return number


def _near(found, expected, case):
    """Raise `Wrong` unless `found` is a number that float32 could not tell from `expected`."""
    number = _number(found, case)
    expect(abs(number - expected) < 1e-5, f"{case}: expected {expected:.5g}, found {number:.5g}.")


def _numbers(found, case, *, length):
    """`found` as a (length,) array of finite numbers, or `Wrong`."""
    try:
        numbers = np.asarray(found, dtype=float)
    except (TypeError, ValueError):
        raise Wrong(f"{case}: expected {length} numbers, found {shorten(found)}.") from None
    told = f"{case}: expected one factor per step, shape ({length},), found shape {numbers.shape}."
    expect(numbers.shape == (length,), told)
    expect(bool(np.isfinite(numbers).all()), f"{case}: some factors are not finite numbers.")
    return numbers


EXERCISES = (
    Exercise(
        id="find-peak",
        importance=3,
        task="Start at what a rule says, double or halve, and stop where both are worse.",
        difficulty=2,
        minutes=8,
        hint="Two while loops, one with the factor 2 and one with 1/2. Each goes on while the "
        "next rate is better.",
        reference=find_peak,
        verify=verify_find_peak,
    ),
    Exercise(
        id="warmup-cosine",
        importance=3,
        task="A learning rate that rises in a straight line and then falls along half a cosine.",
        difficulty=2,
        minutes=7,
        hint="Two cases. The cosine's clock starts at `warmup` and has `steps - warmup` ticks.",
        reference=warmup_cosine,
        verify=verify_warmup_cosine,
        imports="import math",
    ),
    Exercise(
        id="LARS",
        importance=3,
        task="The optimizer for batches of 32,000: each layer's step as long as its weights allow.",
        difficulty=3,
        minutes=15,
        hint="Two loops: groups, weights. weight.ndim tells a matrix from a vector. Change "
        "weights in place, with -=.",
        reference=LARS,
        verify=verify_lars,
        imports="import torch",
    ),
    Exercise(
        id="one-schedule",
        importance=3,
        task="The control that decides: one learning rate for all layers, as LARS has it on "
        "average at each step.",
        difficulty=2,
        minutes=7,
        hint="np.log(ratios).mean(axis=(0, 2)) has one number per step. The cosine is (1 + cos(pi "
        "step / steps)) / 2.",
        reference=one_schedule,
        verify=verify_one_schedule,
        imports="import numpy as np",
    ),
    Exercise(
        id="my-schedule",
        judged_by="the ladder below, and then seeds that nobody has seen",
        task="A schedule of your own, for plain SGD. There is no right answer: the ladder judges.",
        difficulty=2,
        minutes=10,
        hint="Work with progress = step / steps, and an if each for the beginning, "
        "the middle and the end.",
        reference=my_schedule,
        verify=verify_my_schedule,
    ),
)
