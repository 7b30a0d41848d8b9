"""Find the first operator of an ONNX file that an engine computes differently from the file."""

import functools
import tempfile
import time
from pathlib import Path

from labkit import export
from labkit.export.inputs import graph_inputs
from labkit.export.runtime import write_unchecked
from labkit.export.walk import inside

SEARCH_S = 20.0  # the longest time of a search, in seconds


def first_difference(path, inputs, load, output, *, agrees):
    """Return a sentence that names the first operator that an engine computes differently.

    The inputs of this operator agree with those of the file, and its output does not. The operator
    is found by bisection: the graph is cut behind a tensor, and the part before the cut is run. If
    the engine refuses such a part, or if `SEARCH_S` seconds are over, the sentence says that the
    operator was not found.

    path    the ONNX file
    inputs  a batch on which the answers differ: a tuple of tensors
    load    function (path of another ONNX file, example) -> the `Served` of that file in the same
            engine
    output  name of an output that differs
    agrees  function (right answer, engine's answer, the engine's `Served`) -> True if the two
            answers count as the same
    """
    model = export.checked(path)
    search = _Search(model, inputs, load, agrees)
    try:
        node = search.first_node(output)
    except Exception as error:  # an engine may refuse a part of a graph that it takes as a whole
        return f"The operator was not found: {' '.join(str(error).split())[:120]}"
    if node is None:
        return f"The operator was not found in {SEARCH_S:g} s"
    name = f" (node {node.name})" if node.name else ""
    return f"The first operator that differs is {node.op_type}{name}, whose inputs agree"


class _Search:
    """The search for the first operator that an engine computes differently from the file.

    model                 the ModelProto
    inputs, load, agrees  as in `first_difference`
    """

    def __init__(self, model, inputs, load, agrees):
        self.model = model
        self.inputs = inputs
        self.load = load
        self.agrees = agrees
        self.end = time.monotonic() + SEARCH_S
        self.node_of = {name: node for node in model.graph.node for name in node.output if name}
        self.order = {name: index for index, name in enumerate(self.node_of)}
        self.differs = {}  # {tensor: True if the engine computes it in another way}, of those tried

    def first_node(self, output):
        """Return the NodeProto of the first operator that differs; None if the time was not enough.

        output  name of an output that differs
        """
        worst = output
        while time.monotonic() < self.end:
            # Of the tensors that it is computed from, try the one in the middle; what agrees is
            # left out with all before it.
            ancestors = sorted(self._ancestors(worst), key=self.order.__getitem__)
            while ancestors and time.monotonic() < self.end:
                middle = ancestors[len(ancestors) // 2]
                if self._differs(middle):
                    worst = middle
                    ancestors = ancestors[: len(ancestors) // 2]
                else:
                    ancestors = ancestors[len(ancestors) // 2 + 1 :]

            # In a graph with branches, an input of this node may still differ.
            earlier = [name for name in self._reads(self.node_of[worst]) if self._differs(name)]
            if not earlier:
                return self.node_of[worst]
            worst = earlier[0]
        return None

    def _reads(self, node):
        """Return the names of the tensors that a node reads and that other nodes compute.

        Tensors that are read by a graph inside the node, such as the body of a loop, are included.
        """
        import onnx

        names = [name for inner in inside(node, onnx.NodeProto) for name in inner.input]
        return [name for name in dict.fromkeys(names) if name in self.node_of]

    def _ancestors(self, name):
        """Return the names of all tensors on which a tensor depends, except inputs and weights."""
        ancestors = set()
        waiting = [name]
        while waiting:
            node = self.node_of[waiting.pop()]
            for earlier in self._reads(node):
                if earlier not in ancestors:
                    ancestors.add(earlier)
                    waiting.append(earlier)
        return ancestors

    def _differs(self, name):
        """Return True if the engine computes a tensor differently from the file.

        name  name of the tensor
        """
        if name not in self.differs:
            with tempfile.TemporaryDirectory() as folder:
                path = write_unchecked(self._up_to(name), Path(folder) / "part.onnx")
                values = self._values(path)
                if not values:  # a constant
                    self.differs[name] = False
                    return False
                served = self.load(path, values[0])
                self.differs[name] = not self.agrees(
                    export.as_written(path)(*values), served(*values), served
                )
        return self.differs[name]

    def _values(self, path):
        """Return those tensors of the batch that a part of the graph reads, as a tuple.

        path  the ONNX file with that part
        """
        import onnx

        remaining = {value.name for value in graph_inputs(onnx.load(path))}
        names = [value.name for value in graph_inputs(self.model)]
        return tuple(
            tensor for name, tensor in zip(names, self.inputs, strict=True) if name in remaining
        )

    def _up_to(self, name):
        """Return a ModelProto with only those nodes on which a tensor depends.

        Its only output is this tensor.

        name  name of the tensor
        """
        import onnx

        # Find the nodes that it depends on, and what they read, those of the graphs inside them
        # included.
        needed = {*self._ancestors(name), name}
        nodes = [node for node in self.model.graph.node if needed & set(node.output)]
        names_read = set()
        for node in nodes:
            for inner in inside(node, onnx.NodeProto):
                names_read.update(inner.input)

        # Copy the model, and put only these into its graph.
        graph = self.model.graph
        contents = {
            "node": nodes,
            "initializer": [tensor for tensor in graph.initializer if tensor.name in names_read],
            "input": [value for value in graph.input if value.name in names_read],
            "output": [self._value_info(name)],
        }
        subgraph = onnx.ModelProto()
        subgraph.CopyFrom(self.model)
        for field, values in contents.items():
            subgraph.graph.ClearField(field)
            getattr(subgraph.graph, field).extend(values)
        return subgraph

    @functools.cached_property
    def _types(self):
        """Return {name of a tensor: ValueInfoProto} for all tensors whose type can be inferred."""
        import onnx

        graph = onnx.shape_inference.infer_shapes(self.model).graph
        return {value.name: value for value in (*graph.value_info, *graph.output)}

    def _value_info(self, name):
        """Return the ValueInfoProto of a tensor: its name, type and shape.

        If the type cannot be inferred, it holds the name only.
        """
        import onnx

        return self._types.get(name, onnx.ValueInfoProto(name=name))
