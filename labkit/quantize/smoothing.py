"""SmoothQuant: weights take over a part of the range of the activations.

What     each input channel j of a layer is divided by a factor s_j and its weights are multiplied by it: the same
         product, from channels that are more alike on their common grid; s_j = max|x_j|^alpha / max|w_j|^(1 - alpha)
When     some channels reach much further than others: outliers of a transformer, what enters a depthwise convolution
Cost     none where the layer before takes the division into its weights; elsewhere a multiplication per number
Not when the channels are alike: then the weights get harder to round, and nothing is gained
Source   Xiao et al. 2022, arXiv:2211.10438; between convolutions: Nagel et al. 2019, arXiv:1906.04721, section 4.1
"""

import numpy as np

from labkit.quantize._graph import Graph
from labkit.quantize.numbers import along
from labkit.quantize.observed import activations

# f(x / s) = f(x) / s for a positive factor per channel: a division moves through them to the layer before
_PASS = ("Relu", "MaxPool", "AveragePool", "GlobalAveragePool")


def smoothed(model, data, *, alpha=0.5, insert=True):
    """A `prepared` ModelProto that computes the same and is easier to quantize: a copy. Observe its ranges anew.

    data    a `Calibration`: the largest value of each channel is observed on it
    alpha   0 leaves the activations to the weights, 1 makes all their channels alike; 0.5 is usual, 0.7 to 0.85 where
            outliers are large. A depthwise convolution has a grid for each channel of its weights: there it is always 1
    insert  where no layer before can take in the division, make it a node; False: leave those layers as they are
    """
    graph = Graph(model)
    axes = {name: 1 if layers[0].op_type == "Conv" else -1 for name, layers in graph.entering.items()}
    reach = _reach(model, data, axes)
    for name, layers in graph.entering.items():
        kernels = [_by_input(graph, layer) for layer in layers]
        weights = np.max([np.abs(kernel).max((1, 3)).ravel() for kernel in kernels], 0)
        depthwise = all(kernel.shape[2] == 1 < len(kernel) for kernel in kernels)
        factor = _factor(reach[name], weights, 1.0 if depthwise else alpha)
        before = _takers(graph, name, axes[name], len(layers))
        if before is None and not insert:
            continue
        for node, place in before or ():
            graph.replace(node, place, _output_scaled(graph, node, place, 1 / factor))
        if before is None:
            graph.multiply(name, layers, 1 / (factor[:, None, None] if axes[name] == 1 else factor))
        for layer, kernel in zip(layers, kernels, strict=True):
            scaled = kernel * factor.reshape(len(kernel), 1, -1, 1)
            graph.replace(layer, 1, _as_stored(graph, layer, scaled))
    return graph.done()


def _by_input(graph, layer):
    """The weights of a layer as (groups, outputs of a group, inputs of a group, all else)."""
    weights = graph.of(layer)
    if layer.op_type == "Conv":
        groups = graph.attribute(layer, "group", 1)
        return weights.reshape(groups, len(weights) // groups, weights.shape[1], -1)
    weights = weights if graph.attribute(layer, "transB", 0) else weights.T
    return weights[None, :, :, None]


def _as_stored(graph, layer, kernel):
    """What `_by_input` made, in the shape that the file has."""
    if layer.op_type == "Conv" or graph.attribute(layer, "transB", 0):
        return kernel.reshape(graph.of(layer).shape)
    return kernel[0, :, :, 0].T


def _reach(model, data, axes):
    """{tensor: (C,) the largest absolute value of each channel}."""
    found = {}
    for name, values in activations(model, data, axes):
        channels = np.abs(np.moveaxis(values, axes[name], 0))
        found[name] = np.maximum(found.get(name, 0), channels.reshape(len(channels), -1).max(1))
    return found


def _factor(reach, weights, alpha):
    """(C,) what each channel is divided by; a channel that counts for nothing must not reach beyond the others."""
    seen = (reach > 0) & (weights > 0)
    if not seen.any():
        return np.ones_like(reach)
    factor = np.where(seen, reach, 1) ** alpha / np.where(seen, weights, 1) ** (1 - alpha)
    factor /= np.exp(np.log(factor[seen]).mean())
    furthest = (reach[seen] / factor[seen]).max()
    return np.where(seen, factor, np.maximum(reach / furthest, 1))


def _takers(graph, name, axis, readers):
    """[(node, place of a stored input)] that divide the tensor `name` when they are divided, or None.

    readers  how many layers read the tensor: another reader would see it divided too
    """
    node = graph.made.get(name)
    if node is None or graph.reads[name] != readers:
        return None
    stored = [place for place, each in enumerate(node.input) if graph.has(each)]
    if node.op_type in _PASS:
        return _takers(graph, node.input[0], axis, 1)
    if node.op_type == "Add" and axis == -1 and len(stored) == 1 and graph.of(node, stored[0]).ndim == 1:
        before = _takers(graph, node.input[1 - stored[0]], axis, 1)
        return None if before is None else [*before, (node, stored[0])]
    heavy = node.op_type in ("Conv", "Gemm", "MatMul", "LayerNormalization")
    return [(node, place) for place in stored] if heavy and stored == list(range(1, len(node.input))) else None


def _output_scaled(graph, node, place, factor):
    """A stored input of a node with its output channels multiplied by factors (C,)."""
    array = graph.of(node, place)
    first = node.op_type == "Conv" or graph.attribute(node, "transB", 0)
    return array * (along(factor, array, 0) if first else factor)
