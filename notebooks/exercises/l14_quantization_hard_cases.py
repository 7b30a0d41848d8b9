"""Exercises of lesson 14: which layer, which channel, rounding in groups, the straight-through
gradient.
"""

import copy
import itertools

import torch
from torch import nn

from labkit.lesson.exercises import Exercise, expect, shorten, untouched

TORCH = "import copy\nimport torch\nfrom torch import nn"


def noise_by_layer(network, change, images):
    exact, noise = network(images), {}
    for name, layer in network.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            twin = copy.deepcopy(network)
            twin.get_submodule(name).weight.data = change(layer.weight.data)
            difference = twin(images) - exact
            noise[name] = 100 * float(difference.square().sum() / exact.square().sum())
    return noise


def _small_network():
    """Two convolutions with a batch norm between them, and a linear layer inside another module."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        head = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16, 5))
        network = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3), head
        )
        nn.init.uniform_(network[1].weight, 0.5, 2.0)
    return network.eval().requires_grad_(False)


def _rounded(weights):
    return (weights * 8).round() / 8


def verify_noise_by_layer(answer):
    images = torch.randn(6, 2, 8, 8, generator=torch.Generator().manual_seed(3))
    network = _small_network()
    before = copy.deepcopy(network.state_dict())
    found = answer(network, _rounded, images)
    expect(isinstance(found, dict), f"Expected a dictionary, found {shorten(found)}.")
    names = ["0", "3", "4.1"]
    expect(
        list(found) == names,
        f"Expected the convolutions and linear layers {names}, found {shorten(list(found))}.",
    )
    same = all(
        torch.equal(old, new)
        for old, new in zip(before.values(), network.state_dict().values(), strict=True)
    )
    expect(same, "The network was changed: give each layer a copy of the whole network.")
    expected = noise_by_layer(network, _rounded, images)
    for name in names:
        close = abs(float(found[name]) - expected[name]) <= 1e-3 * expected[name]
        expect(
            close,
            f"Layer {name}: {expected[name]:.4g} % of the outputs' power, found "
            f"{float(found[name]):.4g}.",
        )
    nothing = answer(network, lambda weights: weights, images)
    expect(not any(nothing.values()), f"Weights that stay make no noise, found {shorten(nothing)}.")


def outliers(w, gap=4):
    largest = w.flatten(1).abs().amax(1)
    order = [
        channel for channel in largest.argsort(descending=True).tolist() if largest[channel] > 0
    ]
    ratios = [float(largest[a] / largest[b]) for a, b in itertools.pairwise(order)][
        : len(order) // 2
    ]
    if not ratios or max(ratios) < gap:
        return []
    return sorted(order[: ratios.index(max(ratios)) + 1])


def verify_outliers(answer):
    answer = untouched(answer)
    cases = {
        "largest weights 0.5, 40, 0.7, 35": ([0.5, 40.0, 0.7, 35.0], [1, 3]),
        "largest weights 1, 2, 3, 4: no gap": ([1.0, 2.0, 3.0, 4.0], []),
        "a gap of 3.9": ([1.0, 3.9], []),
        "a gap of 4": ([1.0, 4.0], [1]),
        "two gaps, 5 and 10": ([1.0, 10.0, 50.0, 0.9], [2, 1]),
        "two gaps, 10 and 5": ([1.0, 5.0, 50.0, 0.9], [2]),
        "five channels": ([1.0, 0.9, 8.0, 0.8, 7.0], [2, 4]),
        "one small channel among large ones": ([9.0, 8.0, 7.5, 1.0], []),
        "three of four far above": ([9.0, 8.0, 0.5, 7.5], []),
        "a channel of zeros": ([0.0, 0.5, 9.0, 0.4], [2]),
        "only one channel is not zero": ([0.0, 0.0, 2.0], []),
        "one channel": ([3.0], []),
    }
    for name, (largest, expected) in cases.items():
        found = answer(_filters(largest))
        expect(
            isinstance(found, list),
            f"{name}: expected a list of channel numbers, found {shorten(found)}.",
        )
        numbers = sorted(int(channel) for channel in found)
        expect(
            numbers == sorted(expected),
            f"{name}: the outliers are {sorted(expected)}, found {shorten(numbers)}.",
        )
    wide = answer(_filters([1.0, 30.0]), 40)
    expect(wide == [], f"The argument gap: 30 is below 40, found {shorten(wide)}.")


def _filters(largest):
    """(channels, 2, 3, 3): each channel's largest weight in size is negative, its others are far
    smaller.
    """
    filters = 0.01 * (torch.tensor(largest) > 0).float().view(-1, 1, 1, 1).repeat(1, 2, 3, 3)
    filters[:, 1, 2, 0] = -torch.tensor(largest)
    return filters


def in_groups(w, size, bits=4):
    top, parts = 2 ** (bits - 1) - 1, []
    for part in w.split(size, dim=1):
        scale = part.abs().amax(1, keepdim=True) / top
        scale[scale == 0] = 1
        parts.append((part / scale).round() * scale)
    return torch.cat(parts, dim=1)


def verify_in_groups(answer):
    answer = untouched(answer)
    by_hand = torch.tensor([[7.0, 3.2, 70.0, 8.0]])
    found = answer(by_hand.clone(), 2, 4)
    _expect_like(found, by_hand, "[7, 3.2 | 70, 8], groups of 2")
    off = (
        "[7, 3.2 | 70, 8], groups of 2, 4 bits: expected [7, 3 | 70, 10], found "
        f"{shorten(found.tolist()[0])}."
    )
    expect(torch.allclose(found, torch.tensor([[7.0, 3.0, 70.0, 10.0]])), off)
    random = torch.Generator().manual_seed(5)
    cases = {
        "3 rows of 12, groups of 4": ((3, 12), 4, 4),
        "2 rows of 11, groups of 4: the last has three weights": ((2, 11), 4, 4),
        "4 rows of 9, a group longer than a row": ((4, 9), 32, 4),
        "3 bits": ((5, 16), 8, 3),
    }
    for name, (shape, size, bits) in cases.items():
        w = torch.randn(shape, generator=random) * torch.logspace(-1, 1, shape[1])
        found, expected = answer(w.clone(), size, bits), in_groups(w, size, bits)
        _expect_like(found, w, name)
        error = float((found - expected).abs().max())
        expect(error < 1e-4, f"{name}: a weight is off by {error:.3g}.")
    zeros = torch.tensor([[0.0, 0.0, 1.0, -0.5]])
    found = answer(zeros.clone(), 2, 4)
    expect(
        bool(torch.isfinite(found).all()),
        f"A group of zeros stays zeros, found {shorten(found.tolist()[0])}.",
    )


def _expect_like(found, like, case):
    expect(
        isinstance(found, torch.Tensor), f"{case}: expected a torch tensor, found {shorten(found)}."
    )
    shapes = f"{case}: expected the shape {tuple(like.shape)}, found {tuple(found.shape)}."
    expect(found.shape == like.shape, shapes)


def straight_through(x, scale, low, high):
    steps = (x / scale).clamp(low, high)
    return (steps + (steps.round() - steps).detach()) * scale


def verify_straight_through(answer):
    answer = untouched(answer)
    channels = torch.tensor([0.1, 2.0]).reshape(2, 1, 1)
    # values in steps keep away from the ends: which gradient belongs to an end itself is a
    # convention
    cases = {
        "the numbers worked by hand": (torch.tensor([0.35, -1.2, 5.1]), 1.0, -1, 1),
        "a grid of 8 bits": (torch.linspace(-120.3, 120.4, 50), 0.013, -127, 127),
        "beyond both ends": (
            torch.tensor([-9.2, -3.7, -3.3, -2.9, 0.4, 2.8, 3.2, 3.6, 7.7]),
            0.25,
            -3,
            3,
        ),
        "an activation, -10 to 245": (
            torch.tensor([-30.2, -9.8, 0.3, 100.4, 244.7, 300.2]),
            0.02,
            -10,
            245,
        ),
        "weights with a scale per channel": (
            torch.linspace(-9.3, 9.4, 24).reshape(2, 3, 4),
            channels,
            -7,
            7,
        ),
        "float64": (torch.linspace(-5.3, 5.4, 7, dtype=torch.float64), 0.37, -4, 4),
    }
    for name, (steps, scale, low, high) in cases.items():
        x = (steps * scale).requires_grad_()
        found = answer(x, scale, low, high)
        _expect_like(found, x, name)
        expect(found.dtype == x.dtype, f"{name}: expected {x.dtype} as x is, found {found.dtype}.")
        expected = (steps.round().clamp(low, high) * scale).detach()
        off = float(((found.detach() - expected) / scale).abs().max())
        expect(off < 1e-3, f"{name}: a value is {off:.2f} steps away from its grid point.")
        _expect_gradient(name, found, x, (steps >= low) & (steps <= high))


def _expect_gradient(name, found, x, inside):
    """Expect the gradient 1 where `inside` is true, and 0 elsewhere."""
    expect(
        found.requires_grad, f"{name}: no gradient goes through your result: something is detached."
    )
    # what a loss would hand back
    slope = torch.linspace(1, 2, x.numel(), dtype=x.dtype).reshape(x.shape)
    (gradient,) = torch.autograd.grad(found, x, slope, allow_unused=True)
    expect(gradient is not None, f"{name}: your result does not depend on x.")
    for text, mask, factor in (
        ("on the range of the grid", inside, 1.0),
        ("beyond its ends", ~inside, 0.0),
    ):
        share = (gradient / slope)[mask]
        numbers = shorten([round(float(number), 3) for number in share.flatten()[:4]])
        right = torch.allclose(share, torch.full_like(share, factor), atol=1e-4)
        expect(right, f"{name}: {text} the gradient must be {factor:g}, yours is {numbers}.")


EXERCISES = (
    Exercise(
        id="noise-by-layer",
        task="Say how much noise each layer's rounding alone makes in the outputs.",
        difficulty=2,
        importance=3,
        minutes=8,
        hint="network.named_modules() gives (name, layer) of all layers, also of "
        "those inside others; "
        "copy.deepcopy(network).get_submodule(name) is the same layer of a copy.",
        reference=noise_by_layer,
        verify=verify_noise_by_layer,
        imports=TORCH,
    ),
    Exercise(
        id="outliers",
        task="Find the channels that set the step of a layer's grid.",
        difficulty=2,
        minutes=7,
        hint="Sort the channels by their largest weight, leave out those of zeros, "
        "divide each by the next: "
        "where, in the upper half, is the largest ratio?",
        reference=outliers,
        verify=verify_outliers,
        imports="import itertools\nimport torch",
    ),
    Exercise(
        id="in-groups",
        task="Round a matrix so that each short run of a row has a scale of its own.",
        difficulty=1,
        minutes=6,
        hint="w.split(size, dim=1) gives the groups of all rows at once; the last may be shorter.",
        reference=in_groups,
        verify=verify_in_groups,
        imports="import torch",
    ),
    Exercise(
        id="straight-through",
        task="Round a tensor to a grid so that its gradient passes as if nothing had been rounded.",
        difficulty=2,
        importance=3,
        minutes=6,
        hint="Count in steps: x / scale. Clamp, then round with a + (b - a).detach(), then "
        "multiply by the scale.",
        reference=straight_through,
        verify=verify_straight_through,
        imports="import torch",
    ),
)
