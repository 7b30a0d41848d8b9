"""The activations of the course by name: GELU, its approximations, and what else is put in its place.

What     a function of one number, applied to every element: without one, two linear layers would be one
When     GELU in transformers and ConvNeXt; ReLU where memory or hardware decides; approximations where erf is slow
Cost     in eager mode each operator reads and writes all elements once; fused, one pass in all; see `Activation`
Not when do not change the activation of a trained network without looking at its accuracy again
Source   GELU, by sigmoid and by tanh: Hendrycks, Gimpel 2016, arXiv:1606.08415; piecewise (i-GELU): Kim et al. 2021,
         arXiv:2101.01321; SiLU: Ramachandran et al. 2017, arXiv:1710.05941; HardSwish: Howard et al. 2019,
         arXiv:1905.02244
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.errors import require_known
from labkit.methods.fastswish import FastSwish


class _Pointwise(nn.Module):
    """A function of one tensor as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)

    def extra_repr(self):
        return self.function.__name__.removeprefix("_")


def _gelu_sigmoid(x):
    return x * torch.sigmoid(1.702 * x)


def _gelu_piecewise(x):
    """GELU with erf(u) replaced by two parabolas: sign(u) (1 - 0.2888 (min(|u|, 1.769) - 1.769)^2), u = x / sqrt(2)."""
    u = x * 2**-0.5
    erf = torch.sign(u) * (1 - 0.2888 * (u.abs().clamp(max=1.769) - 1.769) ** 2)
    return x * (1 + erf) / 2


@dataclass(frozen=True)
class Activation:
    """An activation and what it costs; the costs are measured when they are asked for.

    formula  in words of mathematics; x is the input
    make     a zero-argument factory of the layer
    """

    name: str
    formula: str
    make: Callable

    @functools.cached_property
    def operators(self):
        """How many operators torch runs for a forward pass in eager mode; each goes once through memory."""
        x = torch.zeros(8)
        with torch.no_grad(), _CountOperators(x.shape) as counted:
            self.make()(x)
        return counted.operators

    @functools.cached_property
    def bytes(self):
        """Bytes kept for the backward pass by an element in fp32, where the layer before keeps nothing itself."""
        kept = {}
        x = torch.zeros(4096, requires_grad=True) * 1  # not a leaf: a leaf is there anyway
        with torch.autograd.graph.saved_tensors_hooks(functools.partial(_note, kept), lambda tensor: tensor):
            self.make()(x)
        return sum(kept.values()) / x.numel()

    @functools.cached_property
    def error(self):
        """Largest distance from GELU, for x from -10 to 10 in steps of 0.001, computed in fp64."""
        x = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
        with torch.no_grad():
            return float((self.make()(x) - F.gelu(x)).abs().max())


def _note(kept, tensor):
    kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return tensor


class _CountOperators(TorchDispatchMode):
    """Counts the operators that compute a tensor of a shape; views of one compute nothing."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.operators = shape, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        self.operators += getattr(output, "shape", None) == self.shape and not func.is_view
        return output


_ALL = (
    Activation("gelu", "x Φ(x), Φ the distribution function of N(0, 1)", nn.GELU),
    Activation("gelu-tanh", "x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))", lambda: nn.GELU(approximate="tanh")),
    Activation("gelu-sigmoid", "x σ(1.702 x), σ(u) = 1 / (1 + e⁻ᵘ)", lambda: _Pointwise(_gelu_sigmoid)),
    Activation("gelu-piecewise", "x/2 (1 + L(x/√2)), L: erf as two parabolas", lambda: _Pointwise(_gelu_piecewise)),
    Activation("silu", "x σ(x)", nn.SiLU),
    Activation("hardswish", "x min(max(x + 3, 0), 6) / 6", nn.Hardswish),
    Activation("relu", "max(x, 0)", nn.ReLU),
    Activation("fastswish", "x above 3, a parabola down to -3, below it a tail that nears 0", FastSwish),
)
_BY_NAME = {activation.name: activation for activation in _ALL}


def names():
    """All activations that `get` and `build` know."""
    return tuple(_BY_NAME)


def get(name):
    """The `Activation` of that name."""
    require_known(name, _BY_NAME, "activation")
    return _BY_NAME[name]


def build(name):
    """A new layer of that name."""
    return get(name).make()


def table():
    """A DataFrame, one line an activation: formula, operators, bytes an element, largest error against GELU."""
    import pandas as pd

    rows = [(each.name, each.formula, each.operators, each.bytes, each.error) for each in _ALL]
    return pd.DataFrame(rows, columns=["activation", "formula", "operators", "saved_bytes", "error"])
