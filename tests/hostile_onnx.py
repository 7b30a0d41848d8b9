"""ONNX files that must not be used: each made by code from a small good one. `FILES` is {what is wrong: Hostile}."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
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
        steps = [helper.make_node(operator, [f"v{i}"], [f"v{i + 1}"], domain=domain) for i in range(10)]
        model.functions.append(helper.make_function("bomb", f"f{level}", ["v0"], ["v10"], steps, opsets))
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
    path.write_bytes(path.read_bytes() + field(7, node))  # a second model.graph is merged with the first
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
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2**16, 2**16]))


def future_opset(model):
    model.opset_import[0].version = 999


FILES = {
    "external data climbs out": Hostile(sample.climbs, "leaves the model's folder"),
    "external data at an absolute path": Hostile(sample.absolute, "leaves the model's folder"),
    "external data through a link": Hostile(sample.through_a_link, "not a plain file"),
    "external data through a linked folder": Hostile(sample.through_a_linked_folder, "not a plain file"),
    "external data through a hard link": Hostile(sample.through_a_hard_link, "not a plain file"),
    "external data that is a pipe": Hostile(sample.a_pipe, "not a plain file"),
    "external data in an attribute": Hostile(sample.in_an_attribute, "leaves the model's folder"),
    "external data that is missing": Hostile(
        lambda folder: sample.with_external(folder, "none.bin"), "not a plain file"
    ),
    "external data beyond its file": Hostile(
        lambda folder: sample.with_external(folder, "weights.bin", offset=8, length=48), "lies outside its file"
    ),
    "external data at a negative place": Hostile(
        lambda folder: sample.with_external(folder, "weights.bin", offset=-8, length=48), "lies outside its file"
    ),
    "external data claimed a thousand times": Hostile(sample.the_same_data_again, "over and over"),
    "4 GB claimed": Hostile(changed(claims_4_gb), "claims"),
    "4 GB computed": Hostile(changed(computes_4_gb), "claims more memory"),
    "sparse bomb": Hostile(changed(sparse_bomb), "sparse"),
    "function bomb": Hostile(changed(function_bomb), "unfold"),
    "function that calls itself": Hostile(changed(endless_function), "calls itself"),
    "branches without end": Hostile(nested_branches, "damaged"),
    "names that are no text": Hostile(not_text, "no text"),
    "truncated": Hostile(truncated, "damaged"),
    "unknown operator": Hostile(changed(unknown_operator), "Relooo"),
    "unknown domain": Hostile(changed(unknown_domain), "com.evil"),
    "operators of the future": Hostile(changed(future_opset), "operator set"),
    "input without a shape": Hostile(changed(no_shape), "no tensor of a known shape"),
    "negative side": Hostile(changed(negative_side), "negative side"),
    "weights of the wrong type": Hostile(changed(wrong_type), "does not hold together"),
    "cycle": Hostile(changed(cycle), "does not hold together"),
    "input that nothing makes": Hostile(changed(missing_input), "nobody"),
    "output made twice": Hostile(changed(duplicate_output), "does not hold together"),
    "tensor named twice": Hostile(changed(duplicate_tensor), "one name"),
}
