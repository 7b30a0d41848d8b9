"""The loss of a network as a function of one flat vector of weights."""

import copy
from dataclasses import dataclass

import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm


@dataclass(frozen=True, eq=False)
class Landscape:
    """A loss, and a point on it.

    parts    (share, function) pairs; function: (P,) weights -> 0-dimensional loss of these images; shares sum to 1
    weights  (P,) where the solution lies
    shapes   {name: shape} of the parameters that lie one after the other in `weights`
    model    the network whose parameters are replaced; None for a plain function
    """

    parts: tuple
    weights: torch.Tensor
    shapes: dict
    model: torch.nn.Module | None = None

    @classmethod
    def function(cls, loss, weights):
        """The landscape of a plain differentiable function of a vector."""
        return cls(((1.0, loss),), weights, {"weights": tuple(weights.shape)})

    @classmethod
    def of(cls, model, data, *, device="cpu", batch=1000, statistics="batch"):
        """Mean cross-entropy of `model` on `data` around its present weights; the model is copied, and stays as it is.

        data        a `labkit.data.ImageSet`
        batch       images at once; the last chunk may be smaller
        statistics  of batch norm. "batch": of the chunk at hand, at every point anew, so that the loss depends on the
                    weights alone; "running": those the training left behind, the same at every point
        """
        network = copy.deepcopy(model).to(device).eval()
        if statistics == "batch":
            _forget_running_statistics(network)
        named = {name: weight.detach() for name, weight in network.named_parameters()}
        weights = torch.cat([weight.reshape(-1) for weight in named.values()])
        shapes = {name: tuple(weight.shape) for name, weight in named.items()}
        chunks = list(data.batches(batch, device=device))
        losses = [(len(y) / len(data), _ChunkLoss(network, shapes, x, y)) for x, y in chunks]
        return cls(tuple(losses), weights, shapes, network)

    def split(self, weights):
        """{name: tensor of its shape}, views of a flat vector (P,)."""
        return split(weights, self.shapes)

    @torch.no_grad()
    def loss(self, weights=None):
        """The loss at a point (P,), or where the solution lies, as a float."""
        weights = self.weights if weights is None else weights
        return float(sum(share * part(weights) for share, part in self.parts))

    def gradient(self, weights=None):
        """(loss, its gradient (P,)) at a point; one chunk in memory at a time."""
        weights = (self.weights if weights is None else weights).detach().requires_grad_()
        total, slope = 0.0, torch.zeros_like(weights)
        for share, part in self.parts:
            loss = part(weights)
            slope += share * torch.autograd.grad(loss, weights)[0]
            total += share * float(loss.detach())
        return total, slope

    @torch.no_grad()
    def accuracy(self, weights=None):
        """Fraction of the images a network gets right at a point, 0 to 1."""
        weights = self.weights if weights is None else weights
        return float(sum(share * part.accuracy(weights) for share, part in self.parts))


@dataclass(frozen=True, eq=False)
class _ChunkLoss:
    """The loss of one chunk of images as a function of the flat weights."""

    model: torch.nn.Module
    shapes: dict
    images: torch.Tensor
    labels: torch.Tensor

    def __call__(self, weights):
        return cross_entropy(self.logits(weights), self.labels)

    def logits(self, weights):
        return functional_call(self.model, split(weights, self.shapes), (self.images,))

    def accuracy(self, weights):
        return (self.logits(weights).argmax(1) == self.labels).float().mean()


def split(weights, shapes):
    """{name: view} of a flat vector (P,) by shapes that follow one another."""
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    pieces = weights.split(sizes)
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def _forget_running_statistics(network):
    """Make batch norm use the statistics of the batch at hand in eval mode as well."""
    for layer in network.modules():
        if isinstance(layer, _BatchNorm):
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
            layer.track_running_stats = False
