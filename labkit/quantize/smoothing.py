"""SmoothQuant: weights take over a part of the range of the activations.

What     each input channel j of a layer is divided by a factor s_j and its weights are multiplied
         by it: the same product, from channels that are more alike on their common grid; s_j =
         max|x_j|^alpha / max|w_j|^(1 - alpha)
When     some channels reach much further than others: outliers of a transformer, what enters a
         depthwise convolution
Cost     none where the layer before takes the division into its weights; elsewhere a multiplication
         per number
Not when the channels are alike: then the weights get harder to round, and nothing is gained
Source   Xiao et al. 2022, arXiv:2211.10438; between convolutions: Nagel et al. 2019,
         arXiv:1906.04721, section 4.1
"""

from typing import Any

import numpy as np
import onnx

from labkit.export.operators import QUANTIZED
from labkit.quantize.activation_ranges import activations
from labkit.quantize.integer_grid import per_channel

# f(x / s) = f(x) / s for a positive factor per channel: a division moves through them to the layer
# before
_PASS = ("Relu", "MaxPool", "AveragePool", "GlobalAveragePool")


def smoothed(model: onnx.ModelProto, data: Any, *, alpha: float = 0.5) -> onnx.ModelProto:
    """Return a copy of a `prepared` ModelProto that computes the same and is easier to quantize.

    data    a `Calibration`: the largest value of each channel is observed on it
    alpha   0 leaves the activations to the weights, 1 makes all their channels alike; 0.5 is usual,
            0.7 to 0.85 where outliers are large. A depthwise convolution has a grid for each
            channel of its weights: there it is always 1

    Where no layer before can take in the division, it becomes a node. Observe the ranges of the
    copy anew.
    """
    import onnx_ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    smooth = onnx_ir.from_proto(model)
    layers_of = entering(smooth.graph)
    axes = {
        value.name: 1 if layers[0].op_type == "Conv" else -1 for value, layers in layers_of.items()
    }
    activation_maxima = channel_maxima(model, data, axes)
    for value, layers in layers_of.items():
        axis = axes[value.name]
        kernels = [_by_input(layer) for layer in layers]

        # The factor of each channel, from the largest activation and the largest weight.
        weight_maxima = np.max([np.abs(kernel).max((1, 3)).ravel() for kernel in kernels], 0)
        depthwise = all(kernel.shape[2] == 1 < len(kernel) for kernel in kernels)
        exponent = 1.0 if depthwise else alpha
        factor = _factor(activation_maxima[value.name], weight_maxima, exponent)

        # Divide the activation: in the layers before it, or by a node.
        before = _takers(value, axis, len(layers))
        if before is None:
            per_item = factor[:, None, None] if axis == 1 else factor
            division = new_value(smooth.graph, f"{value.name}_factor", 1 / per_item)
            divided = inserted(layers[0], "Mul", [value, division], f"{value.name}_smooth")
            for layer in layers:
                layer.replace_input_with(0, divided)
        else:
            for node, index in before:
                _replace(node, index, _output_scaled(node, index, 1 / factor))

        # Multiply the weights.
        for layer, kernel in zip(layers, kernels, strict=True):
            scaled = kernel * factor.reshape(len(kernel), 1, -1, 1)
            _replace(layer, 1, _as_stored(layer, scaled))
    RemoveUnusedNodesPass()(smooth)
    return onnx.shape_inference.infer_shapes(onnx_ir.to_proto(smooth))


def entering(graph):
    """Return the layers with stored weights, by the value that they multiply: {value: layers},
    in the graph's order.
    """
    layers = {}
    for node in graph:
        if (
            node.op_type in QUANTIZED
            and node.inputs[1].is_initializer()
            and not node.inputs[0].is_initializer()
        ):
            layers.setdefault(node.inputs[0], []).append(node)
    return layers


def stored(node, index=1):
    """Return the stored array that a node has as the input of this index."""
    return node.inputs[index].const_value.numpy()


def new_value(graph, name, array, dtype=np.float32):
    """Add a stored array to a graph, in place of another of that name. Returns its value."""
    import onnx_ir  # in the functions: half a second

    array = onnx_ir.tensor(np.asarray(array, dtype, order="C"), name=name)
    graph.initializers[name] = onnx_ir.val(name, const_value=array)
    return graph.initializers[name]


def _replace(node, index, array):
    """Give a node a stored array of its own; other nodes that read the old one keep it."""
    name = f"{node.inputs[index].name.partition('_of_')[0]}_of_{node.name}"
    node.replace_input_with(index, new_value(node.graph, name, array))


def inserted(reader, op_type, inputs, name, **attributes):
    """Put a node before another that shall read it. Returns its output, which has the same name."""
    import onnx_ir

    node = onnx_ir.node(op_type, inputs, attributes, outputs=[onnx_ir.val(name)], name=name)
    reader.graph.insert_before(reader, node)
    return node.outputs[0]


def _by_input(layer):
    """Return the weights of a layer as (groups, outputs of a group, inputs of a group, all
    else).
    """
    weights = stored(layer)
    if layer.op_type == "Conv":
        groups = layer.attributes.get_int("group", 1)
        return weights.reshape(groups, len(weights) // groups, weights.shape[1], -1)
    if not layer.attributes.get_int("transB", 0):
        weights = weights.T
    return weights[None, :, :, None]


def _as_stored(layer, kernel):
    """Return weights in the shape that the file has: the inverse of `_by_input`."""
    if layer.op_type == "Conv" or layer.attributes.get_int("transB", 0):
        return kernel.reshape(stored(layer).shape)
    return kernel[0, :, :, 0].T


def channel_maxima(model, data, axes):
    """Return the largest absolute value of each channel: {tensor: (C,)}.

    axes  {tensor: its axis of channels}
    """
    maxima = {}
    for name, values in activations(model, data, axes):
        channels = np.abs(np.moveaxis(values, axes[name], 0))
        maxima[name] = np.maximum(maxima.get(name, 0), channels.reshape(len(channels), -1).max(1))
    return maxima


def _factor(activation_maxima, weight_maxima, alpha):
    """Return what each channel is divided by, (C,).

    A channel that counts for nothing, with activations or weights of 0, must not stand out above
    the others.
    """
    in_use = (activation_maxima > 0) & (weight_maxima > 0)
    if not in_use.any():
        return np.ones_like(activation_maxima)
    activations_in_use = np.where(in_use, activation_maxima, 1)
    weights_in_use = np.where(in_use, weight_maxima, 1)
    factor = activations_in_use**alpha / weights_in_use ** (1 - alpha)
    factor /= np.exp(np.log(factor[in_use]).mean())
    largest_quotient = (activation_maxima[in_use] / factor[in_use]).max()
    return np.where(in_use, factor, np.maximum(activation_maxima / largest_quotient, 1))


def _takers(value, axis, readers):
    """Return [(node, index of a stored input)] that divide a value when they are divided, or None.

    readers  how many layers read the value: another reader would see it divided too
    """
    node = value.producer()
    if node is None or value.is_graph_output() or len(value.uses()) != readers:
        return None
    # The stored inputs of the node before, by their index.
    indices = []
    for index, input_value in enumerate(node.inputs):
        if input_value is not None and input_value.is_initializer():
            indices.append(index)

    # Through a node that passes the division on, past a shift that is divided, too, or into the
    # weights.
    if node.op_type in _PASS:
        return _takers(node.inputs[0], axis, 1)
    if (
        node.op_type == "Add"
        and axis == -1
        and len(indices) == 1
        and stored(node, indices[0]).ndim == 1
    ):
        before = _takers(node.inputs[1 - indices[0]], axis, 1)
        return None if before is None else [*before, (node, indices[0])]
    scales_output = node.op_type in ("Conv", "Gemm", "MatMul", "LayerNormalization")
    if scales_output and indices == list(range(1, len(node.inputs))):
        return [(node, index) for index in indices]
    return None


def _output_scaled(node, index, factor):
    """Return a stored input of a node with its output channels multiplied by factors (C,)."""
    array = stored(node, index)
    first = node.op_type == "Conv" or node.attributes.get_int("transB", 0)
    return array * (per_channel(factor, array, 0) if first else factor)
