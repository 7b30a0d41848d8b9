"""SmoothQuant: weights take over a part of the range of the activations.

What     each input channel j of a layer is divided by a factor s_j and its weights are multiplied by it: the same
         product, from channels that are more alike on their common grid; s_j = max|x_j|^alpha / max|w_j|^(1 - alpha)
When     some channels reach much further than others: outliers of a transformer, what enters a depthwise convolution
Cost     none where the layer before takes the division into its weights; elsewhere a multiplication per number
Not when the channels are alike: then the weights get harder to round, and nothing is gained
Source   Xiao et al. 2022, arXiv:2211.10438; between convolutions: Nagel et al. 2019, arXiv:1906.04721, section 4.1
"""

from typing import Any

import numpy as np
import onnx

from labkit.export.operators import QUANTIZED
from labkit.quantize.numbers import along
from labkit.quantize.observed import activations

# f(x / s) = f(x) / s for a positive factor per channel: a division moves through them to the layer before
_PASS = ("Relu", "MaxPool", "AveragePool", "GlobalAveragePool")


def smoothed(model: onnx.ModelProto, data: Any, *, alpha: float = 0.5) -> onnx.ModelProto:
    """A `prepared` ModelProto that computes the same and is easier to quantize: a copy. Observe its ranges anew.

    data    a `Calibration`: the largest value of each channel is observed on it
    alpha   0 leaves the activations to the weights, 1 makes all their channels alike; 0.5 is usual, 0.7 to 0.85 where
            outliers are large. A depthwise convolution has a grid for each channel of its weights: there it is always 1
    Where no layer before can take in the division, it becomes a node.
    """
    import onnx_ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    smooth = onnx_ir.from_proto(model)
    layers_of = entering(smooth.graph)
    axes = {value.name: 1 if layers[0].op_type == "Conv" else -1 for value, layers in layers_of.items()}
    furthest = reach(model, data, axes)
    for value, layers in layers_of.items():
        axis, kernels = axes[value.name], [_by_input(layer) for layer in layers]
        weights = np.max([np.abs(kernel).max((1, 3)).ravel() for kernel in kernels], 0)
        depthwise = all(kernel.shape[2] == 1 < len(kernel) for kernel in kernels)
        factor = _factor(furthest[value.name], weights, 1.0 if depthwise else alpha)
        before = _takers(value, axis, len(layers))
        for node, place in before or ():
            _replace(node, place, _output_scaled(node, place, 1 / factor))
        if before is None:
            division = new_value(
                smooth.graph, f"{value.name}_factor", 1 / (factor[:, None, None] if axis == 1 else factor)
            )
            divided = inserted(layers[0], "Mul", [value, division], f"{value.name}_smooth")
            for layer in layers:
                layer.replace_input_with(0, divided)
        for layer, kernel in zip(layers, kernels, strict=True):
            scaled = kernel * factor.reshape(len(kernel), 1, -1, 1)
            _replace(layer, 1, _as_stored(layer, scaled))
    RemoveUnusedNodesPass()(smooth)
    return onnx.shape_inference.infer_shapes(onnx_ir.to_proto(smooth))


def entering(graph):
    """{value: the layers with stored weights that multiply it}, in the order of the graph."""
    found = {}
    for node in graph:
        if node.op_type in QUANTIZED and node.inputs[1].is_initializer() and not node.inputs[0].is_initializer():
            found.setdefault(node.inputs[0], []).append(node)
    return found


def stored(node, place=1):
    """The stored array that a node reads at this place."""
    return node.inputs[place].const_value.numpy()


def new_value(graph, name, array, kind=np.float32):
    """A stored array of that name; it takes the place of another."""
    import onnx_ir  # in the functions: half a second

    array = onnx_ir.tensor(np.asarray(array, kind, order="C"), name=name)
    graph.initializers[name] = onnx_ir.val(name, const_value=array)
    return graph.initializers[name]


def _replace(node, place, array):
    """Give a node a stored array of its own; other nodes that read the old one keep it."""
    name = f"{node.inputs[place].name.partition('_of_')[0]}_of_{node.name}"
    node.replace_input_with(place, new_value(node.graph, name, array))


def inserted(reader, kind, inputs, name, **attributes):
    """Put a node before another that shall read it: its output, which has the same name."""
    import onnx_ir

    node = onnx_ir.node(kind, inputs, attributes, outputs=[onnx_ir.val(name)], name=name)
    reader.graph.insert_before(reader, node)
    return node.outputs[0]


def _by_input(layer):
    """The weights of a layer as (groups, outputs of a group, inputs of a group, all else)."""
    weights = stored(layer)
    if layer.op_type == "Conv":
        groups = layer.attributes.get_int("group", 1)
        return weights.reshape(groups, len(weights) // groups, weights.shape[1], -1)
    weights = weights if layer.attributes.get_int("transB", 0) else weights.T
    return weights[None, :, :, None]


def _as_stored(layer, kernel):
    """The inverse of `_by_input`: weights in the shape that the file has."""
    if layer.op_type == "Conv" or layer.attributes.get_int("transB", 0):
        return kernel.reshape(stored(layer).shape)
    return kernel[0, :, :, 0].T


def reach(model, data, axes):
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


def _takers(value, axis, readers):
    """[(node, place of a stored input)] that divide a value when they are divided, or None.

    readers  how many layers read the value: another reader would see it divided too
    """
    node = value.producer()
    if node is None or value.is_graph_output() or len(value.uses()) != readers:
        return None
    places = [place for place, each in enumerate(node.inputs) if each is not None and each.is_initializer()]
    if node.op_type in _PASS:
        return _takers(node.inputs[0], axis, 1)
    if node.op_type == "Add" and axis == -1 and len(places) == 1 and stored(node, places[0]).ndim == 1:
        before = _takers(node.inputs[1 - places[0]], axis, 1)
        return None if before is None else [*before, (node, places[0])]
    heavy = node.op_type in ("Conv", "Gemm", "MatMul", "LayerNormalization")
    return [(node, place) for place in places] if heavy and places == list(range(1, len(node.inputs))) else None


def _output_scaled(node, place, factor):
    """A stored input of a node with its output channels multiplied by factors (C,)."""
    array = stored(node, place)
    first = node.op_type == "Conv" or node.attributes.get_int("transB", 0)
    return array * (along(factor, array, 0) if first else factor)
