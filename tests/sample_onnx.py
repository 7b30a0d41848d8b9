"""A small good ONNX file, and ones whose weights lie, or seem to lie, in a file of their own."""

import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def good_model():
    """A small valid network: MatMul, Add, Relu, for inputs (batch, 4)."""
    random = np.random.default_rng(0)
    weights = {"weight": random.standard_normal((4, 3)), "bias": random.standard_normal(3)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["input", "weight"], ["product"]),
            helper.make_node("Add", ["product", "bias"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["logits"]),
        ],
        "good",
        [helper.make_tensor_value_info("input", FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("logits", FLOAT, ["batch", 3])],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def with_external(folder, location, *, write=True, offset=None, length=None):
    """The good model with its weight in a file of its own; where `location` points is the point."""
    model = good_model()
    tensor = model.graph.initializer[0]
    if write:
        (folder / "weights.bin").write_bytes(tensor.raw_data)
    onnx.external_data_helper.set_external_data(tensor, location, offset, length)
    tensor.ClearField("raw_data")
    return save(model, folder)


def save(model, folder):
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def secret(folder):
    """A file beside the model's folder that no model may read: its bytes would fit as a weight."""
    path = folder.parent / f"{folder.name}-secret.bin"
    path.write_bytes(b"s" * 48)
    return path


def climbs(folder):
    return with_external(folder, f"../{secret(folder).name}")


def absolute(folder):
    return with_external(folder, str(secret(folder)))


def through_a_link(folder):
    (folder / "link.bin").symlink_to(secret(folder))
    return with_external(folder, "link.bin")


def through_a_linked_folder(folder):
    secret(folder)
    (folder / "inner").symlink_to(folder.parent, target_is_directory=True)
    return with_external(folder, f"inner/{folder.name}-secret.bin")


def through_a_hard_link(folder):
    (folder / "hard.bin").hardlink_to(secret(folder))
    return with_external(folder, "hard.bin")


def a_pipe(folder):
    os.mkfifo(folder / "pipe.bin")  # whoever opens it waits for ever
    return with_external(folder, "pipe.bin")


def missing(folder):
    return with_external(folder, "none.bin", write=False)


def beyond_its_file(folder):
    return with_external(folder, "weights.bin", offset=8, length=48)


def at_a_negative_place(folder):
    return with_external(folder, "weights.bin", offset=-8, length=48)


def in_an_attribute(folder):
    """The escape hides in a Constant node, not among the initializers."""
    model, tensor = good_model(), TensorProto()
    tensor.CopyFrom(model.graph.initializer[0])
    del model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, f"../{secret(folder).name}")
    tensor.ClearField("raw_data")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["weight"], value=tensor))
    return save(model, folder)
