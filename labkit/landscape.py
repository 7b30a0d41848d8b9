"""The loss as a function of all weights as one vector, and how flat it is around solutions.

flatness(trained, data)  how flat the loss is around each of the solutions of `labkit.train.sweep`
"""

import copy
import math
from functools import partial
from typing import NamedTuple

import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from labkit.train.workers import work

_LANCZOS = 8  # vectors that are kept: fewer make it take more products, and more save none


class Landscape:
    """The mean cross-entropy of a network on a set, as a function of its weights: `landscape(w)` is differentiable.

    weights  (P,) the network's own, one parameter after the other
    shapes   {name: shape} of those parameters

    All images go through at once. Batch norm takes their statistics at every point anew, so that the loss depends on
    the weights alone. The network is copied, and stays as it is. `landscape(w, images, labels)` is the loss of others,
    (N, C, H, W) and (N,); with `torch.func.vmap` that of many batches at once.
    """

    def __init__(self, model, data, *, device="cpu"):
        self._model = copy.deepcopy(model).to(device).eval()
        for layer in self._model.modules():
            if isinstance(layer, _BatchNorm):  # without running statistics it takes those of the batch
                layer.running_mean = layer.running_var = layer.num_batches_tracked = None
                layer.track_running_stats = False
        named = {name: weight.detach() for name, weight in self._model.named_parameters()}
        self.weights = torch.cat([weight.reshape(-1) for weight in named.values()])
        self.shapes = {name: tuple(weight.shape) for name, weight in named.items()}
        ((self._images, self._labels),) = data.batches(len(data), device=device)

    def __call__(self, weights, images=None, labels=None):
        """(P,) weights -> 0-dimensional loss, in nats."""
        images, labels = (self._images, self._labels) if images is None else (images, labels)
        return cross_entropy(functional_call(self._model, self.split(weights), (images,)), labels)

    def split(self, weights):
        """{name: tensor of its shape}, views of a flat vector (P,)."""
        pieces = weights.split([torch.Size(shape).numel() for shape in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}


class Eigen(NamedTuple):
    """value: the eigenvalue; vector: (P,) of length 1."""

    value: float
    vector: torch.Tensor


def hessian_product(loss, weights):
    """v -> H v, both (P,), H the Hessian of `loss` at `weights`: the gradient of (gradient . v). H is never built.

    Source  Pearlmutter 1994, Fast exact multiplication by the Hessian
    """
    point = weights.detach().requires_grad_()
    (slope,) = torch.autograd.grad(loss(point), point, create_graph=True)
    return lambda v: torch.autograd.grad(slope @ v, point, retain_graph=True)[0]


def top_eigenvalue(loss, weights, *, tolerance=1e-3):
    """The largest (most positive) eigenvalue of the Hessian of `loss` at `weights`, as an `Eigen`.

    tolerance  how far the value may be off, as a fraction of it
    Source     ARPACK's Lanczos method, by scipy: a dozen Hessian-vector products as a rule
    """
    product, chance = hessian_product(loss, weights), torch.Generator().manual_seed(0)
    start = torch.randn(weights.shape, generator=chance).to(weights)
    image = product(start)
    if not image.isfinite().all():  # a network that diverged
        return Eigen(math.nan, start / start.norm())
    if not image.any():  # flat all around, where ARPACK gives up
        return Eigen(0.0, start / start.norm())
    first = start.cpu().numpy()
    shape = (len(first), len(first))
    hessian = LinearOperator(shape, lambda v: product(torch.from_numpy(v).to(weights)).cpu().numpy(), dtype=first.dtype)
    few = min(_LANCZOS, len(first))
    (value,), vectors = eigsh(hessian, k=1, which="LA", v0=first, ncv=few, tol=tolerance)
    return Eigen(float(value), torch.from_numpy(vectors[:, 0]).to(weights))


class Sharpness(NamedTuple):
    """value: 100 (highest - loss) / (1 + loss); step: (P,) from the solution to the highest point of the box."""

    value: float
    loss: float
    highest: float
    step: torch.Tensor


def sharpness(loss, weights, *, epsilon=1e-3, steps=8, starts=2, seed=0):
    """The largest rise of the loss found in the box |change of w| <= epsilon (|w| + 1), in percent of 1 + loss.

    epsilon  half-width of the box relative to |w| + 1; the paper takes 1e-3 and 5e-4
    steps    gradient steps of each start
    starts   the solution itself, then random corners of the box; the highest point of all counts
    returns  a `Sharpness`; a lower bound, as any search for a maximum
    Source   Keskar, Mudigere, Nocedal, Smelyanskiy, Tang 2016, arXiv:1609.04836 (Metric 2.1, with A the identity)

    A step goes to the corner of the box to which the gradient points, w0 + width * sign(gradient). Where the loss is
    convex every step climbs (it lies above its tangent, and no point of the box is higher on the tangent than that
    corner), and the maximum lies at a corner. The paper runs ten iterations of L-BFGS-B instead.
    """
    width = epsilon * (weights.abs() + 1)
    base, slope = with_gradient(loss, weights)
    best, generator = (base, torch.zeros_like(weights)), torch.Generator().manual_seed(seed)
    for start in range(starts):
        if start or not slope.any():
            slope = torch.randn(weights.shape, generator=generator).to(weights)
        best = max(best, _climb(loss, weights, width, slope, steps), key=lambda found: found[0])
    highest, step = best
    return Sharpness(100 * (highest - base) / (1 + base), base, highest, step)


def _climb(loss, center, width, slope, steps):
    """(loss, step) of the highest corner on the way, beginning with the one to which `slope` points."""
    found = []
    for _ in range(steps):
        step = width * slope.sign()
        height, slope = with_gradient(loss, center + step)
        found.append((height, step))
        if torch.equal(width * slope.sign(), step):
            break
    return max(found, key=lambda pair: pair[0])


def with_gradient(loss, weights):
    """(loss, its gradient (P,)) at a point."""
    point = weights.detach().requires_grad_()
    value = loss(point)
    return float(value.detach()), torch.autograd.grad(value, point)[0]


class Flatness(NamedTuple):
    """sharpness: in the box of `labkit.landscape.sharpness`; by_slope and by_curvature: what the gradient and the
    Hessian alone contribute to it; by_skew: what the odd orders beyond the gradient contribute, the third above all;
    eigenvalue: the largest of the Hessian; length: of the vector of all weights that have filters, so without biases
    and batch norm."""

    name: str
    seed: int
    sharpness: float
    by_slope: float
    by_curvature: float
    by_skew: float
    eigenvalue: float
    length: float


def flatness(trained, data, *, epsilon=1e-3, device="cpu"):
    """How flat the loss on `data` is around each of the solutions: a list of `Flatness`, in the same order."""
    solutions = [each._replace(looks=()) for each in trained]  # they travel to the workers
    return work(partial(_flatness_of, data=data, epsilon=epsilon, device=str(device)), solutions, device)


def _flatness_of(each, *, data, epsilon, device):
    loss = Landscape(each.model, data, device=device)
    weights = loss.weights
    filters = [part for part in loss.split(weights).values() if part.dim() > 1]
    rise = sharpness(loss, weights, epsilon=epsilon)
    _, slope = with_gradient(loss, weights)
    product = hessian_product(loss, weights)
    per_cent = 100 / (1 + rise.loss)
    with torch.no_grad():
        opposite = float(loss(weights - rise.step))  # even orders are the same there, odd ones have the other sign
    return Flatness(
        each.name,
        each.seed,
        sharpness=rise.value,
        by_slope=per_cent * float(slope @ rise.step),
        by_curvature=per_cent * float(rise.step @ product(rise.step)) / 2,
        by_skew=per_cent * ((rise.highest - opposite) / 2 - float(slope @ rise.step)),
        eigenvalue=top_eigenvalue(loss, weights, tolerance=1e-2).value,
        length=float(torch.cat([part.flatten() for part in filters]).norm()),
    )
