"""A file as an old framework might have written it: sound but for an operator that no engine knows."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def with_swish(betas):
    """A model of one `old.framework.Swish` a beta, each followed by an Add; a beta of 1 is not written down."""
    nodes, name = [], "input"
    for place, beta in enumerate(betas):
        stated = {} if beta == 1.0 else {"beta": beta}
        nodes.append(helper.make_node("Swish", [name], [f"s{place}"], domain="old.framework", **stated))
        nodes.append(helper.make_node("Add", [f"s{place}", "one"], [f"a{place}"]))
        name = f"a{place}"
    nodes.append(helper.make_node("Identity", [name], ["output"]))
    values = [helper.make_tensor_value_info(port, TensorProto.FLOAT, ["batch", 4]) for port in ("input", "output")]
    graph = helper.make_graph(nodes, "old", values[:1], values[1:], [numpy_helper.from_array(np.float32(1), "one")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("old.framework", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def swish_network(x, betas):
    """What that model computes, in NumPy."""
    for beta in betas:
        x = x / (1 + np.exp(-beta * x)) + 1
    return x
