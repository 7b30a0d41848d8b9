"""Every graph and tensor of a model, also those inside branches, loops and functions."""


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


def _attributes(graph):
    return (attribute for node in graph.node for attribute in node.attribute)
