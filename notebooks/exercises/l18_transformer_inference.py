"""Exercises of lesson 18: neighbours, hooks, a grid of its own for one token, smoothing, a layer
of integers.
"""

import copy

import numpy as np
import torch
from torch import nn

from labkit.lesson.exercises import Exercise, Wrong, expect, shorten, untouched


def _expect_equal(found, expected, quantity):
    """Raise `Wrong` unless two tensors are equal up to rounding."""
    expect(
        found.shape == expected.shape, f"{quantity}: expected the shape {tuple(expected.shape)}."
    )
    off = float((found - expected).detach().abs().max())
    expect(
        torch.allclose(found, expected, rtol=1e-4, atol=1e-5),
        f"{quantity}: off by up to {off:.3g}.",
    )


# --- neighbours -----------------------------------------------------------------------------------


def nearest(vectors):
    directions = vectors / vectors.norm(dim=1, keepdim=True)
    cosines = directions @ directions.T
    cosines.fill_diagonal_(-2)
    return cosines.argmax(1)


NEIGHBOURS = {  # {name: (vectors, the nearest other of each)}
    "three directions in a plane": ([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], [1, 0, 1]),
    "a long vector that points elsewhere": ([[1.0, 0.0], [0.9, 0.1], [30.0, 40.0]], [1, 0, 1]),
    "opposite directions only": ([[1.0, 0.0], [-1.0, 0.0]], [1, 0]),
    "vectors that lie close together but turn": ([[0.1, 0.0], [0.0, 0.1], [9.0, 1.0]], [2, 2, 0]),
}


def verify_nearest(answer):
    answer = untouched(answer)
    for name, (vectors, expected) in NEIGHBOURS.items():
        found = answer(torch.tensor(vectors))
        expect(torch.is_tensor(found), f"{name}: expected a torch tensor, found {shorten(found)}.")
        expect(
            found.tolist() == expected,
            f"{name}: expected {expected}, found {shorten(found.tolist())}.",
        )
    vectors = torch.randn(40, 9, generator=torch.Generator().manual_seed(0))
    expect(
        answer(vectors).tolist() == nearest(vectors).tolist(),
        "40 random vectors: another neighbour is nearest.",
    )


# --- what enters the layers -----------------------------------------------------------------------


def layer_inputs(network, batch, kinds=nn.Linear):
    inputs, hooks = {}, []
    for name, layer in network.named_modules():
        if isinstance(layer, kinds):

            def record(layer, arguments, name=name):
                inputs[name] = arguments[0]

            hooks.append(layer.register_forward_pre_hook(record))
    try:
        with torch.inference_mode():
            network(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


class _Small(nn.Module):
    """A convolution, two linear layers, the second one inside another module; with `fails` it
    raises an error.
    """

    def __init__(self):
        super().__init__()
        self.image = nn.Conv1d(1, 2, 1)
        self.first = nn.Linear(6, 4)
        self.inside = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.fails = False

    def forward(self, x):
        x = self.image(x).flatten(1)
        if self.fails:
            self.first(x)
            raise ValueError("This network fails on purpose.")
        return self.inside(self.first(x))


def verify_layer_inputs(answer):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, batch = _Small().eval(), torch.randn(5, 1, 3)
    flat = network.image(batch).flatten(1)
    expected = {"first": flat, "inside.1": network.first(flat).relu()}
    found = answer(network, batch)
    expect(isinstance(found, dict), f"Expected a dictionary, found {shorten(found)}.")
    expect(
        list(found) == list(expected),
        f"Expected the layers {list(expected)}, found {shorten(list(found))}.",
    )
    for name, x in expected.items():
        expect(
            torch.is_tensor(found[name]),
            f"{name}: expected a torch tensor, found {shorten(found[name])}.",
        )
        _expect_equal(found[name], x.detach(), f"What enters {name}")
        expect(
            not found[name].requires_grad,
            f"{name}: the graph for gradients hangs on it. Use inference_mode.",
        )
    expect(
        list(answer(network, batch, nn.Conv1d)) == ["image"],
        "With kinds=nn.Conv1d only that layer is meant.",
    )
    _expect_no_hooks(network, "after a call")
    network.fails = True
    try:
        answer(network, batch)
    except ValueError:
        pass
    else:
        raise Wrong("The network failed, and your function said nothing.")
    _expect_no_hooks(
        network, "after a network that failed: `try: ... finally:` removes them in any case"
    )


def _expect_no_hooks(network, occasion):
    left = [
        name
        for name, layer in network.named_modules()
        if layer._forward_pre_hooks or layer._forward_hooks
    ]
    expect(not left, f"A hook is left on {shorten(left)} {occasion}.")


# --- a grid of its own ----------------------------------------------------------------------------


def own_grid(x, token, on_grid):
    others = torch.arange(x.shape[1]) != token
    rounded = torch.empty_like(x)
    rounded[:, token] = on_grid(x[:, token])
    rounded[:, others] = on_grid(x[:, others])
    return rounded


def _on_grid(x):
    step = x.abs().max() / 10
    return (x / step).round() * step


def verify_own_grid(answer):
    answer = untouched(answer)
    x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))
    x[:, 2, 5] = 50.0
    for token in (2, 0, 5):
        found = answer(x, token, _on_grid)
        expect(torch.is_tensor(found), f"Expected a torch tensor, found {shorten(found)}.")
        expect(
            found.shape == x.shape,
            f"Expected the shape {tuple(x.shape)}, found {tuple(found.shape)}.",
        )
        wanted = own_grid(x, token, _on_grid)
        _expect_equal(
            found[:, token], wanted[:, token], f"Token {token}, which has a grid of its own"
        )
        others = torch.arange(6) != token
        _expect_equal(
            found[:, others],
            wanted[:, others],
            f"The tokens other than {token}, which share a grid",
        )


# --- smoothing ------------------------------------------------------------------------------------


def smooth(layer, largest, alpha):
    weight = layer.weight.detach()
    reach = largest.clamp(min=1e-5)
    factors = reach**alpha / weight.abs().amax(0).clamp(min=1e-5) ** (1 - alpha)
    smoothed = copy.deepcopy(layer)
    smoothed.weight.data = weight * factors
    return factors, smoothed


def verify_smooth(answer):
    # By hand: sqrt(16 / 1) = 4, sqrt(1 / 4) = 0.5.
    with torch.random.fork_rng():
        layer = nn.Linear(2, 2)
    layer.weight.data = torch.tensor([[1.0, -4.0], [0.5, 2.0]])
    largest = torch.tensor([16.0, 1.0])
    before = copy.deepcopy(layer.state_dict())
    factors, smoothed = _pair(answer, layer, largest, 0.5)
    _expect_equal(
        factors, torch.tensor([4.0, 0.5]), "The factors of the example worked by hand, alpha 0.5"
    )
    _expect_equal(
        smoothed.weight, torch.tensor([[4.0, -2.0], [2.0, 1.0]]), "The weights of that example"
    )
    _expect_equal(
        layer.weight, before["weight"], "The weights of the layer that was given, which must stay"
    )
    expect(smoothed is not layer, "Return a new layer: the one that was given must stay as it is.")
    _expect_equal(smoothed.bias, before["bias"], "The bias, which stays")

    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer, x = nn.Linear(5, 3), torch.randn(20, 5) * torch.tensor([1.0, 30.0, 0.1, 1.0, 0.0])
    for alpha in (0.5, 0.8):
        factors, smoothed = _pair(answer, layer, x.abs().amax(0), alpha)
        expect(
            torch.isfinite(factors).all() and (factors > 0).all(),
            "A channel of zeros: its factor is not above 0.",
        )
        _expect_equal(
            smoothed(x / factors),
            layer(x),
            f"alpha {alpha}: what the smoothed layer answers to x / factors",
        )
        wanted, _ = smooth(layer, x.abs().amax(0), alpha)
        _expect_equal(factors[:4], wanted[:4], f"alpha {alpha}: the factors")


def _pair(answer, layer, largest, alpha):
    found = answer(layer, largest, alpha)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise Wrong(f"Expected a pair (factors, layer), found {shorten(found)}.")
    factors, smoothed = found
    expect(
        torch.is_tensor(factors),
        f"Expected the factors as a torch tensor, found {shorten(factors)}.",
    )
    expect(
        factors.shape == largest.shape,
        f"Expected a factor for each input channel, found {tuple(factors.shape)}.",
    )
    expect(isinstance(smoothed, nn.Linear), f"Expected a linear layer, found {shorten(smoothed)}.")
    return factors, smoothed


# --- a layer of integers --------------------------------------------------------------------------


def block_linear(x, weight, scales, bias):
    blocks = scales.shape[1]
    x = x.reshape(len(x), blocks, -1)
    steps = np.abs(x).max(2) / np.float32(127)  # (N, blocks)
    steps = np.where(steps > 0, steps, np.float32(1))
    integers = np.rint(x / steps[:, :, None]).astype(np.int32)
    weight = weight.reshape(len(weight), blocks, -1).astype(np.int32)
    sums = np.einsum("nbk,mbk->nmb", integers, weight)
    return ((sums * (steps[:, None] * scales)).sum(2) + bias).astype(np.float32)


def verify_block_linear(answer):
    answer, random = untouched(answer), np.random.default_rng(1)

    def layer(x, size, scale=1):
        x, out = np.asarray(x, np.float32), 7
        weight = random.integers(-128, 128, (out, x.shape[1])).astype(np.int8)
        scales = (scale * random.uniform(0.001, 0.02, (out, x.shape[1] // size))).astype(np.float32)
        return x, weight, scales, random.normal(size=out).astype(np.float32)

    spread = random.normal(size=(5, 66))
    outlier = spread.copy()
    outlier[2, 12] = 40.0
    gaps = spread.copy()
    gaps[1, 22:33] = 0
    cases = {
        "numbers of both signs, blocks of 11": layer(spread, 11),
        "negative numbers only": layer(-1 - np.abs(spread), 22),
        "rows of different size": layer(spread * np.array([0.01, 0.1, 1, 5, 20])[:, None], 6),
        "one outlier": layer(outlier, 11),
        "a block of zeros": layer(gaps, 11),
        "one block": layer(spread, 66),
        "many inputs": layer(random.normal(size=(3, 1024)) + 2, 128),
        "numbers of size 1e-5, which are no zeros": layer(1e-5 * spread, 11, scale=100),
    }
    for case, given in cases.items():
        with np.errstate(all="ignore"):
            found = answer(*given)
            _expect_integers(answer, given)
        wanted = block_linear(*given)
        expect(
            isinstance(found, np.ndarray),
            f"{case}: expected a NumPy array, found {shorten(found)}.",
        )
        expect(found.dtype == np.float32, f"{case}: expected float32, found {found.dtype}.")
        expect(
            found.shape == wanted.shape,
            f"{case}: expected the shape {wanted.shape}, found {found.shape}.",
        )
        expect(np.isfinite(found).all(), f"{case}: the result holds NaN or infinity.")
        off = float((np.abs(found - wanted) / _steps_of(*given[:3])).max())
        expect(
            off < 1.2,
            f"{case}: a result is {off:.2f} steps of its coarsest block away from "
            "the sum of products.",
        )


def _steps_of(x, weight, scales):
    """(N, M): what a result moves by when one number lies on the wrong side of a rounding tie."""
    blocks = scales.shape[1]
    steps = np.abs(x.reshape(len(x), blocks, -1)).max(2) / 127
    largest = np.abs(weight.reshape(len(weight), blocks, -1).astype(np.int32)).max(2) * scales
    return (steps[:, None] * largest).max(2) + 1e-6


def _expect_integers(answer, given):
    """Raise `Wrong` when the weights are multiplied as floats."""

    class Watched(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, **named):
            _refuse_floats(inputs)
            return getattr(ufunc, method)(*map(np.asarray, inputs), **named)

        def __array_function__(self, function, types, inputs, named):
            _refuse_floats(each for each in inputs if isinstance(each, np.ndarray))
            return function(
                *(np.asarray(each) if isinstance(each, Watched) else each for each in inputs),
                **named,
            )

    answer(given[0], given[1].copy().view(Watched), *given[2:])


def _refuse_floats(inputs):
    kinds = {np.asarray(each).dtype.kind for each in inputs}
    expect(
        "f" not in kinds,
        "The weights are multiplied as floats. Multiply and add integers; the scales come after.",
    )


EXERCISES = (
    Exercise(
        id="nearest",
        task="Find for each vector the other one whose direction is nearest.",
        difficulty=1,
        minutes=6,
        hint="Divide each vector by its length; the product of two is then their cosine. Nobody "
        "is his own neighbour.",
        reference=nearest,
        verify=verify_nearest,
    ),
    Exercise(
        id="layer-inputs",
        task="Record with hooks what enters each linear layer of a network.",
        difficulty=2,
        importance=3,
        minutes=12,
        hint="named_modules, isinstance, register_forward_pre_hook; a hook keeps its name by a "
        "default argument.",
        reference=layer_inputs,
        verify=verify_layer_inputs,
        imports="import torch\nfrom torch import nn",
    ),
    Exercise(
        id="own-grid",
        task="Round all tokens; one of them on a grid of its own, the others on one "
        "that they share.",
        difficulty=1,
        minutes=6,
        hint="Which tokens are others? x[:, others] takes them out; call on_grid twice.",
        reference=own_grid,
        verify=verify_own_grid,
        imports="import torch",
    ),
    Exercise(
        id="smooth",
        task="Smooth a linear layer: factors for its input channels, and a layer with the weights "
        "that fit them.",
        difficulty=2,
        importance=3,
        minutes=10,
        hint="The largest weight of an input channel is that of a column: abs().amax(0). Keep "
        "zeros out by clamp.",
        reference=smooth,
        verify=verify_smooth,
        imports="import copy",
    ),
    Exercise(
        id="block-linear",
        task="Compute a linear layer in integers, with a grid for each block of its input and of "
        "its weights.",
        difficulty=3,
        minutes=20,
        hint="Give x and the weights a dimension of blocks; round; add up inside the blocks in "
        "int32; scale; add up.",
        reference=block_linear,
        verify=verify_block_linear,
        imports="import numpy as np",
    ),
)
