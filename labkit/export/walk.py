"""Every graph and tensor of a model, also those inside branches, loops and functions."""

from contextlib import contextmanager

import onnx

WEIGHTS = 2**16  # bytes: a larger tensor holds weights, and no shape, axes or sizes


def holders(model):
    """(holder of nodes, the operator sets it uses): the main graph and every function."""
    yield model.graph, model.opset_import
    for function in model.functions:
        yield function, function.opset_import


def graphs(holder):
    """A GraphProto or FunctionProto and every graph in the attributes of its nodes, however deep."""
    yield holder
    for attribute in _attributes(holder):
        for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            yield from graphs(inner)


def tensors(model):
    """Every TensorProto: initializers and tensors in attributes."""
    for graph in (graph for holder, _ in holders(model) for graph in graphs(holder)):
        yield from getattr(graph, "initializer", ())
        for attribute in _attributes(graph):
            yield from (*attribute.tensors, *([attribute.t] if attribute.HasField("t") else []))


@contextmanager
def weights_aside(model):
    """Make its large weights look stored in other files meanwhile: inference would copy their bytes several times.

    Their types and shapes stay, and what a shape can be read from is small.
    """
    inside = [tensor for tensor in model.graph.initializer if not tensor.data_location]  # others stay as they are
    large = [tensor for tensor in inside if len(tensor.raw_data) > WEIGHTS]
    bytes_of = [tensor.raw_data for tensor in large]
    for tensor in large:
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
    try:
        yield
    finally:
        for tensor, held in zip(large, bytes_of, strict=True):
            tensor.raw_data = held
            tensor.ClearField("data_location")


def _attributes(graph):
    return (attribute for node in graph.node for attribute in node.attribute)
