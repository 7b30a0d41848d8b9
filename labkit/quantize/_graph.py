"""A copy of an ONNX model whose stored numbers can be exchanged."""

from collections import Counter

import numpy as np

from labkit.export.operators import QUANTIZED


class Graph:
    """A copy of a ModelProto, to be changed.

    made      {tensor: the node that makes it}
    reads     {tensor: how many nodes read it, and the outputs of the model}
    entering  {tensor: the layers with stored weights that multiply it}
    """

    def __init__(self, model):
        import onnx

        self.onnx, self.model = onnx, onnx.ModelProto()
        self.model.CopyFrom(model)
        graph = self.model.graph
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self.made = {name: node for node in graph.node for name in node.output}
        self.reads = Counter(name for node in graph.node for name in node.input)
        self.reads.update(value.name for value in graph.output)
        self.entering = {}
        for node in graph.node:
            if node.op_type in QUANTIZED and node.input[1] in self._tensors and node.input[0] not in self._tensors:
                self.entering.setdefault(node.input[0], []).append(node)

    def has(self, name):
        """Whether a tensor is stored."""
        return name in self._tensors

    def of(self, node, place=1):
        """The stored array that a node reads at this place."""
        return self.onnx.numpy_helper.to_array(self._tensors[node.input[place]])

    def attribute(self, node, name, default):
        """An integer attribute of a node."""
        return next((each.i for each in node.attribute if each.name == name), default)

    def replace(self, node, place, array):
        """Give a node a stored array of its own; other nodes that read the old one keep it."""
        name = f"{node.input[place].partition('_of_')[0]}_of_{node.name}"
        tensor = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name)
        if name in self._tensors:
            self._tensors[name].CopyFrom(tensor)
        else:
            self._tensors[name] = self.model.graph.initializer.add()
            self._tensors[name].CopyFrom(tensor)
            node.input[place] = name

    def multiply(self, name, readers, array):
        """Put a node before these readers of the tensor `name` that multiplies it by a stored array."""
        nodes, factor, product = self.model.graph.node, f"{name}_factor", f"{name}_smooth"
        self.model.graph.initializer.append(self.onnx.numpy_helper.from_array(np.float32(array), factor))
        at = next(place for place, node in enumerate(nodes) if node.name == readers[0].name)
        nodes.insert(at, self.onnx.helper.make_node("Mul", [name, factor], [product], product))
        for reader in nodes:
            if reader.name in [each.name for each in readers]:
                reader.input[0] = product

    def done(self):
        """The changed ModelProto, without what nothing reads any more."""
        graph = self.model.graph
        read = {name for node in graph.node for name in node.input}
        stored = [tensor for tensor in graph.initializer if tensor.name in read]
        del graph.initializer[:], graph.value_info[:]
        graph.initializer.extend(stored)
        return self.onnx.shape_inference.infer_shapes(self.model)
