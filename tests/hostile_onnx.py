"""ONNX files that must not be used: each made by code from a small good one.

`FILES` is {what is wrong: Hostile}.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
import sample_onnx as sample
from onnx import TensorProto, helper, numpy_helper
from sample_onnx import FLOAT


@dataclass(frozen=True)
class Hostile:
    """One kind of bad file.

    make  (folder) -> its path; other files it needs are made too
    says  a word the refusal must hold
    """

    make: Callable
    says: str


def changed(change):
    """A maker of the good model after `change(model)`."""

    def make(folder):
        model = sample.good_model()
        change(model)
        return sample.save(model, folder)

    return make


def claims_4_gb(model):
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    del tensor.dims[:]
    tensor.dims.extend([2**15, 2**15])  # 4 GiB of float32, and no byte of it


def computes_4_gb(model):
    """A constant of 24 bytes that ConstantOfShape turns into 32 GiB."""
    shape = numpy_helper.from_array(np.array([2**11, 2**11, 2**11]), "shape")
    model.graph.initializer.append(shape)
    model.graph.node.append(helper.make_node("ConstantOfShape", ["shape"], ["huge"]))
    model.graph.node.append(helper.make_node("ReduceMax", ["huge"], ["most"], keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("most", FLOAT, []))


def truncated(folder):
    path = sample.save(sample.good_model(), folder)
    path.write_bytes(path.read_bytes()[:-40])
    return path


def unknown_operator(model):
    model.graph.node[2].op_type = "Relooo"


def unknown_domain(model):
    model.graph.node[2].domain = "com.evil"
    model.opset_import.append(helper.make_opsetid("com.evil", 1))


def no_shape(model):
    model.graph.input[0].type.tensor_type.ClearField("shape")


def negative_side(model):
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -4


def wrong_type(model):
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(numpy_helper.from_array(np.ones((4, 3), np.int64), "weight"))


def cycle(model):
    model.graph.node[0].input[0] = "sum"


def missing_input(model):
    model.graph.node[1].input[1] = "nobody"


def duplicate_output(model):
    model.graph.node[1].output[0] = "product"


def duplicate_tensor(model):
    model.graph.initializer.append(model.graph.initializer[0])


def function_bomb(model):
    """Twelve functions, each calling the one below ten times: 10 to the 12th nodes in 3 kB."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("bomb", 1)]
    for level in range(12):
        operator, domain = (f"f{level - 1}", "bomb") if level else ("Relu", "")
        steps = [
            helper.make_node(operator, [f"v{i}"], [f"v{i + 1}"], domain=domain) for i in range(10)
        ]
        model.functions.append(
            helper.make_function("bomb", f"f{level}", ["v0"], ["v10"], steps, opsets)
        )
    model.opset_import.append(helper.make_opsetid("bomb", 1))
    model.graph.node[2].CopyFrom(helper.make_node("f11", ["sum"], ["logits"], domain="bomb"))


def endless_function(model):
    opsets = [helper.make_opsetid("loop", 1)]
    step = helper.make_node("f", ["a"], ["b"], domain="loop")
    model.functions.append(helper.make_function("loop", "f", ["a"], ["b"], [step], opsets))
    model.opset_import.append(helper.make_opsetid("loop", 1))
    model.graph.node[2].CopyFrom(helper.make_node("f", ["sum"], ["logits"], domain="loop"))


def nested_branches(folder):
    """An If inside an If, 200 deep, written byte by byte: deeper than a protobuf reader may go."""
    node = b""
    for _ in range(200):
        node = field(1, field(5, field(6, node)))  # graph.node, node.attribute, attribute.g
    path = sample.save(sample.good_model(), folder)
    # a second model.graph is merged with the first
    path.write_bytes(path.read_bytes() + field(7, node))
    return path


def field(number, payload):
    """A protobuf field of bytes."""
    size, length = b"", len(payload)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + payload


def not_text(folder):
    """A name that is no UTF-8: some readers pass it on as bytes, and fall over later."""
    path = sample.save(sample.good_model(), folder)
    path.write_bytes(path.read_bytes().replace(b"Relu", b"R\xff\xfeu"))
    return path


def sparse_bomb(model):
    """One value that claims to stand in a matrix of 16 GiB."""
    values = helper.make_tensor("huge", FLOAT, [1], [1.0])
    indices = helper.make_tensor("indices", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, indices, [2**16, 2**16])
    )


def chained_functions(model):
    """1,500 functions, each calling the one before: a walk by recursion does not come back from
    them.
    """
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("chain", 1)]
    for link in range(1500):
        operator, domain = (f"f{link - 1}", "chain") if link else ("Relu", "")
        step = helper.make_node(operator, ["a"], ["b"], domain=domain)
        model.functions.append(
            helper.make_function("chain", f"f{link}", ["a"], ["b"], [step], opsets)
        )
    model.opset_import.append(helper.make_opsetid("chain", 1))
    model.graph.node[2].CopyFrom(helper.make_node("f1499", ["sum"], ["logits"], domain="chain"))


def tile_bomb(model, repeats="repeats"):
    """One number, tiled to a square of 32,768 and that again: 4 exabytes."""
    if repeats == "repeats":
        model.graph.initializer.append(numpy_helper.from_array(np.array([2**15, 2**15]), repeats))
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1), np.float32), "one"))
    for before, after in (("one", "big"), ("big", "bigger")):
        model.graph.node.append(helper.make_node("Tile", [before, repeats], [after]))
    model.graph.node.append(helper.make_node("ReduceMax", ["bigger"], ["most"], keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("most", FLOAT, []))


def hidden_tile_bomb(model):
    """The same, but no inference of shapes sees how often."""
    model.graph.initializer.append(numpy_helper.from_array(np.full(2, 2**15, np.float32), "number"))
    model.graph.node.append(helper.make_node("Floor", ["number"], ["whole"]))
    model.graph.node.append(helper.make_node("Cast", ["whole"], ["times"], to=TensorProto.INT64))
    tile_bomb(model, "times")


def constants_of_10_gb(model):
    """Eight constants by ConstantOfShape, each of 1.25 GiB and so within the 2 GiB of one
    tensor.
    """
    model.graph.initializer.append(numpy_helper.from_array(np.array([5 * 2**26]), "shape"))
    constants = [f"constant{number}" for number in range(8)]
    model.graph.node.extend(
        helper.make_node("ConstantOfShape", ["shape"], [name]) for name in constants
    )
    model.graph.node.append(helper.make_node("Sum", constants, ["total"]))
    model.graph.node.append(helper.make_node("ReduceMax", ["total"], ["most"], keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("most", FLOAT, []))


def sparse_external_data(folder, tensors):
    """Weights of 10 GB in a file of their own that is one hole: it takes no place on the disk."""
    side = int((10 * 2**28 / tensors) ** 0.5)
    path = sample.with_external(folder, "weights.bin")
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(10 * 2**30)
    model = onnx.load(path, load_external_data=False)
    for number in range(tensors):
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(model.graph.initializer[0])
        tensor.name, tensor.dims[:] = f"hole{number}", [side, side]
        tensor.external_data.add(key="length", value=str(4 * side**2))
    return sample.save(model, folder)


def endless_loop(model):
    ports = {
        "round": (TensorProto.INT64, []),
        "go": (TensorProto.BOOL, []),
        "x": (FLOAT, ["batch", 3]),
    }
    values = [helper.make_tensor_value_info(name, *port) for name, port in ports.items()]
    ends = [helper.make_tensor_value_info(f"{name}_", *ports[name]) for name in ("go", "x")]
    steps = [helper.make_node("Identity", ["go"], ["go_"]), helper.make_node("Relu", ["x"], ["x_"])]
    body = helper.make_graph(steps, "body", values, ends)
    model.graph.initializer.append(numpy_helper.from_array(np.array(2**31), "rounds"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    model.graph.node[2].CopyFrom(
        helper.make_node("Loop", ["rounds", "yes", "sum"], ["logits"], body=body)
    )


def a_hundred_thousand_nodes(model):
    model.graph.node[2].output[0] = "v0"
    model.graph.node.extend(
        helper.make_node("Relu", [f"v{n}"], [f"v{n + 1}"]) for n in range(100_000)
    )
    model.graph.node.append(helper.make_node("Identity", ["v100000"], ["logits"]))


def future_opset(model):
    model.opset_import[0].version = 999


MEMORY = "more memory than"
HANGS = "without harm"  # what a file without end is refused with, when the time for it is over
FILES = {
    "external data climbs out": Hostile(sample.climbs, "points outside"),
    "external data at an absolute path": Hostile(sample.absolute, "absolute path"),
    "external data through a link": Hostile(sample.through_a_link, "symbolic link"),
    "external data through a linked folder": Hostile(
        sample.through_a_linked_folder, "outside model directory"
    ),
    "external data through a hard link": Hostile(sample.through_a_hard_link, "hard links"),
    "external data that is a pipe": Hostile(sample.a_pipe, "not regular file"),
    "external data in an attribute": Hostile(sample.in_an_attribute, "points outside"),
    "external data that is missing": Hostile(sample.missing, "weights is missing"),
    "external data beyond its file": Hostile(sample.beyond_its_file, "exceeds available data"),
    "external data at a negative place": Hostile(
        sample.at_a_negative_place, "must be non-negative"
    ),
    "4 GB claimed": Hostile(changed(claims_4_gb), "one and only one value"),
    "4 GB computed": Hostile(changed(computes_4_gb), MEMORY),
    "sparse bomb": Hostile(changed(sparse_bomb), "sparse"),
    "function bomb": Hostile(changed(function_bomb), HANGS),
    "function that calls itself": Hostile(changed(endless_function), "Cycle"),
    "branches without end": Hostile(nested_branches, "damaged"),
    "names that are no text": Hostile(not_text, "Unicode"),
    "truncated": Hostile(truncated, "damaged"),
    "unknown operator": Hostile(changed(unknown_operator), "Relooo"),
    "unknown domain": Hostile(changed(unknown_domain), "com.evil"),
    "operators of the future": Hostile(changed(future_opset), "Load model"),
    "input without a shape": Hostile(changed(no_shape), "shape"),
    "negative side": Hostile(changed(negative_side), "Incompatible dimensions"),
    "weights of the wrong type": Hostile(changed(wrong_type), "inconsistent type"),
    "cycle": Hostile(changed(cycle), "topologically sorted"),
    "input that nothing makes": Hostile(changed(missing_input), "nobody"),
    "output made twice": Hostile(changed(duplicate_output), "multiple times"),
    "tensor named twice": Hostile(changed(duplicate_tensor), "not unique"),
    "1,500 chained functions": Hostile(changed(chained_functions), "chain depth"),
    "tile bomb": Hostile(changed(tile_bomb), MEMORY),
    "hidden tile bomb": Hostile(changed(hidden_tile_bomb), MEMORY),
    "10 GB of constants": Hostile(changed(constants_of_10_gb), MEMORY),
    "10 GB in one hole": Hostile(partial(sparse_external_data, tensors=1), MEMORY),
    "the same GB ten times": Hostile(partial(sparse_external_data, tensors=10), MEMORY),
    "loop of 2^31 steps": Hostile(changed(endless_loop), HANGS),
    "100,000 nodes": Hostile(changed(a_hundred_thousand_nodes), HANGS),
}
