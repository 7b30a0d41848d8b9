"""SmoothQuant: large channels of an activation are made smaller, and their weights larger.

What     each input channel j of a layer is divided by a factor s_j, and its weights are multiplied
         by s_j. The product is the same, but the channels now have similar ranges on their common
         grid: s_j = max|x_j|^alpha / max|w_j|^(1 - alpha)
When     some channels have much larger values than others: outliers of a transformer, inputs of a
         depthwise convolution
Cost     none if the layer before can divide: its own weights are then stored divided. Otherwise one
         multiplication per number of the activation
Not when the channels have similar ranges already: then the weights get harder to round, and nothing
         is gained
Source   Xiao et al. 2022, arXiv:2211.10438; between convolutions: Nagel et al. 2019,
         arXiv:1906.04721, section 4.1
"""

from typing import Any

import numpy as np
import onnx

from labkit.export.operators import QUANTIZED
from labkit.quantize.activation_ranges import activations
from labkit.quantize.integer_grid import per_channel

# f(x / s) = f(x) / s for a positive factor per channel: a division moves through these operators to
# the layer before
_PASS = ("Relu", "MaxPool", "AveragePool", "GlobalAveragePool")


def smoothed(model: onnx.ModelProto, data: Any, *, alpha: float = 0.5) -> onnx.ModelProto:
    """Return a copy of a model that computes the same and is easier to quantize.

    Where the layer before cannot divide the activation, a multiplication is inserted. The ranges of
    the activations change: call `observe` again for the copy.

    model  a ModelProto that `prepared_for_quantizer` returned
    data   a `Calibration`: the largest absolute value of each channel is observed on it
    alpha  0 to 1. With 1 all channels of an activation get the same range, with 0 all input
           channels of the weights do. 0.5 is usual; 0.7 to 0.85 is better for large outliers. A
           depthwise convolution has a grid for each channel of its weights, so its alpha is always
           1
    """
    import onnx_ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    smooth = onnx_ir.from_proto(model)
    layers_of = layers_by_input(smooth.graph)
    axes = {
        value.name: 1 if layers[0].op_type == "Conv" else -1 for value, layers in layers_of.items()
    }
    activation_maxima = channel_maxima(model, data, axes)
    for value, layers in layers_of.items():
        axis = axes[value.name]
        kernels = [_as_kernel(layer) for layer in layers]

        # The factor of each channel, from the largest activation and the largest weight.
        weight_maxima = np.max([np.abs(kernel).max((1, 3)).ravel() for kernel in kernels], 0)
        depthwise = all(kernel.shape[2] == 1 < len(kernel) for kernel in kernels)
        exponent = 1.0 if depthwise else alpha
        factor = _factor(activation_maxima[value.name], weight_maxima, exponent)

        # Divide the activation: in the layers before it, or by a node.
        stored_inputs = _inputs_to_divide(value, axis, len(layers))
        if stored_inputs is None:
            per_item = factor[:, None, None] if axis == 1 else factor
            division = new_value(smooth.graph, f"{value.name}_factor", 1 / per_item)
            divided = inserted(layers[0], "Mul", [value, division], f"{value.name}_smooth")
            for layer in layers:
                layer.replace_input_with(0, divided)
        else:
            for node, index in stored_inputs:
                _replace(node, index, _output_scaled(node, index, 1 / factor))

        # Multiply the weights.
        for layer, kernel in zip(layers, kernels, strict=True):
            scaled = kernel * factor.reshape(len(kernel), 1, -1, 1)
            _replace(layer, 1, _as_stored(layer, scaled))
    RemoveUnusedNodesPass()(smooth)
    return onnx.shape_inference.infer_shapes(onnx_ir.to_proto(smooth))


def layers_by_input(graph):
    """Group the layers with stored weights by the activation that they multiply.

    Returns {onnx_ir value: [onnx_ir node]}. The nodes are convolutions and matrix products, in the
    order of the graph.

    graph  an onnx_ir graph
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
    """Return the stored array that is input number `index` of a node."""
    return node.inputs[index].const_value.numpy()


def new_value(graph, name, array, dtype=np.float32):
    """Add a stored array (an initializer) to a graph and return its onnx_ir value.

    name  name of the array; an array that has this name already is replaced
    """
    import onnx_ir  # not at the top: the import takes half a second

    array = onnx_ir.tensor(np.asarray(array, dtype, order="C"), name=name)
    graph.initializers[name] = onnx_ir.val(name, const_value=array)
    return graph.initializers[name]


def _replace(node, index, array):
    """Replace input number `index` of a node by a stored array of its own.

    Other nodes that read the old array keep it.
    """
    name = f"{node.inputs[index].name.partition('_of_')[0]}_of_{node.name}"
    node.replace_input_with(index, new_value(node.graph, name, array))


def inserted(reader, op_type, inputs, name, **attributes):
    """Insert a new node before the node `reader`. Returns the new node's output.

    The input of `reader` is not changed: the caller connects it to the returned output.

    op_type     operator of the new node
    inputs      values that the new node reads
    name        name of the new node and of its output
    attributes  attributes of the new node
    """
    import onnx_ir

    node = onnx_ir.node(op_type, inputs, attributes, outputs=[onnx_ir.val(name)], name=name)
    reader.graph.insert_before(reader, node)
    return node.outputs[0]


def _as_kernel(layer):
    """Return a layer's weights as an array of four axes, the same for a convolution and a matrix.

    The axes are (groups, outputs of a group, inputs of a group, positions). The positions are those
    of a convolution kernel, such as 9 for 3x3. A matrix has one group and one position.
    """
    weights = stored(layer)
    if layer.op_type == "Conv":
        groups = layer.attributes.get_int("group", 1)
        return weights.reshape(groups, len(weights) // groups, weights.shape[1], -1)
    if not layer.attributes.get_int("transB", 0):
        weights = weights.T
    return weights[None, :, :, None]


def _as_stored(layer, kernel):
    """Return weights in the shape that the file stores: the inverse of `_as_kernel`."""
    if layer.op_type == "Conv" or layer.attributes.get_int("transB", 0):
        return kernel.reshape(stored(layer).shape)
    return kernel[0, :, :, 0].T


def channel_maxima(model, data, axes):
    """Return the largest absolute value of each channel of some tensors: {tensor: (C,)}.

    data  a `Calibration`, on which the model is run
    axes  {tensor: the axis that holds its channels}
    """
    maxima = {}
    for name, values in activations(model, data, axes):
        channels = np.abs(np.moveaxis(values, axes[name], 0))
        maxima[name] = np.maximum(maxima.get(name, 0), channels.reshape(len(channels), -1).max(1))
    return maxima


def _factor(activation_maxima, weight_maxima, alpha):
    """Return the factor (C,) by which each channel of an activation is divided.

    A channel is unused if all its activations or all its weights are 0. Its factor is at least 1,
    and makes its largest value at most as large as that of the other channels. The factors of the
    channels in use have the geometric mean 1.

    activation_maxima, weight_maxima  (C,) largest absolute values
    alpha                             as in `smoothed`
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


def _inputs_to_divide(value, axis, readers):
    """Find the stored arrays, such as weight and bias, whose division divides a value of the graph.

    Returns [(node, index of its input)]; the nodes come before the value. Returns None if no stored
    arrays can do this, or if the value has further readers, for which the division would be wrong.

    value    a value of the graph
    axis     axis of the channels of the value
    readers  number of layers that may read the value
    """
    node = value.producer()
    if node is None or value.is_graph_output() or len(value.uses()) != readers:
        return None
    # The stored inputs of the node before, by their index.
    indices = []
    for index, input_value in enumerate(node.inputs):
        if input_value is not None and input_value.is_initializer():
            indices.append(index)

    # Follow the division through a node that passes it on, past a shift (which is divided, too), or
    # into the weights.
    if node.op_type in _PASS:
        return _inputs_to_divide(node.inputs[0], axis, 1)
    if (
        node.op_type == "Add"
        and axis == -1
        and len(indices) == 1
        and stored(node, indices[0]).ndim == 1
    ):
        stored_inputs = _inputs_to_divide(node.inputs[1 - indices[0]], axis, 1)
        return None if stored_inputs is None else [*stored_inputs, (node, indices[0])]
    scales_output = node.op_type in ("Conv", "Gemm", "MatMul", "LayerNormalization")
    if scales_output and indices == list(range(1, len(node.inputs))):
        return [(node, index) for index in indices]
    return None


def _output_scaled(node, index, factor):
    """Return a stored input of a node, with each output channel multiplied by its factor.

    node, index  the node, and the number of its input: a weight or a bias
    factor       (C,), one for each output channel
    """
    array = stored(node, index)
    first = node.op_type == "Conv" or node.attributes.get_int("transB", 0)
    return array * (per_channel(factor, array, 0) if first else factor)
