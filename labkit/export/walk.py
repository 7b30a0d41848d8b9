"""Every graph and tensor of a model, also those inside branches, loops and functions."""


def graphs(holder):
    """A GraphProto or FunctionProto and every graph in the attributes of its nodes, however deep."""
    yield holder
    for attribute in _attributes(holder):
        for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            yield from graphs(inner)


def tensors(model):
    """Every TensorProto: initializers and tensors in attributes."""
    for graph in (graph for holder in (model.graph, *model.functions) for graph in graphs(holder)):
        yield from getattr(graph, "initializer", ())
        for attribute in _attributes(graph):
            yield from (*attribute.tensors, *([attribute.t] if attribute.HasField("t") else []))


def _attributes(graph):
    return (attribute for node in graph.node for attribute in node.attribute)
