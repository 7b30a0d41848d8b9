"""What the tour of TensorRT's features reads in a builder's messages, and how it finds memory."""

import numpy as np
import pytest
import torch

from labkit.lesson.support import load_support

support = load_support("tensorrt_features_one_by_one")

TENSOR = "{{ Name: {}, Dimensions: [-1,{}], Strides: [1,1], Datatype: {} }}"


def step(name, kind, read, written, stream=0, tactic="kernel"):
    """A line of the builder's list."""
    inputs, outputs = (
        ", ".join(TENSOR.format(*tensor) for tensor in side) for side in (read, written)
    )
    return (
        f"Name: {name}, LayerType: {kind}, Inputs: [ {inputs}], Constants: [], "
        f"Outputs: [ {outputs}], TacticName: {tactic}, StreamId: {stream}, "
        f"Metadata: [ONNX Layer: {name}_node]"
    )


def engine(*lines, extra=()):
    return support.Engine(b"plan", ("Layers:\n" + "\n".join(lines), *extra), 1.0)


CHAIN = engine(
    step("a", "correlation", [("input", 10, "Float")], [("x", 20, "Float")]),
    step("wait_a", "wait", [], [], stream=1),
    step("b", "kgen", [("x", 20, "Float")], [("y", 30, "Half")], stream=1, tactic="other"),
    step("c", "gemm", [("y", 30, "Half")], [("logits", 5, "Float")]),
    extra=(
        "Total Weights Memory: 7 bytes",
        "Total Activation Memory: 8 bytes",
        "Tactic: 0x00000001 Time: 0.01\nTactic: 0x00000002 Time: 0.02",
    ),
)


def test_a_list_of_steps_becomes_steps_tactics_and_streams():
    assert [kernel.kind for kernel in CHAIN.steps] == ["correlation", "kgen", "gemm"]
    assert [kernel.name for kernel in CHAIN.products] == ["a", "c"]
    assert CHAIN.tactics == ["kernel", "other", "kernel"]
    assert CHAIN.streams == [0, 1, 1, 0]
    assert CHAIN.memory == {"weights": 7, "activations": 8}
    assert CHAIN.timed == 2


def test_bytes_are_counted_for_one_image():
    assert CHAIN.moved == (0, 40 + 80 + 80 + 60 + 60 + 20)
    assert CHAIN.written == 80 + 60 + 20
    assert CHAIN.at_once == 80 + 60  # x and y; x is free before the logits are written


def test_steps_are_described_by_kind_nodes_and_types():
    table = support.described(CHAIN)
    assert list(table["kind"]) == ["correlation", "kgen", "gemm"]
    assert list(table["writes"]) == ["fp32", "fp16", "fp32"]
    assert set(table["ONNX nodes"]) == {1}


def test_each_stream_has_a_line_in_the_picture():
    ax = support.draw_streams({"two": CHAIN}).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "two: stream 0",
        "two: stream 1",
    ]
    assert len(ax.patches) == 4


def test_memory_at_an_address_is_a_tensor_of_the_same_memory():
    memory = np.arange(6, dtype=np.float32)
    tensor = support.tensor_at(memory.ctypes.data, (2, 3), on_gpu=False)
    tensor[1, 2] = 9
    assert memory[5] == 9
    assert torch.equal(tensor[0], torch.tensor([0.0, 1, 2]))


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_an_operator_stands_after_a_convolution(kind):
    model = support.after_convolution("Relu(x)", kind)
    assert [node.name for node in model.graph.node] == ["conv", "one"]


def test_without_headers_a_program_is_not_compiled(monkeypatch, tmp_path):
    monkeypatch.setattr(support, "headers", lambda: None)
    assert "Not compiled here" in support.compile_and_run(tmp_path / "program.cpp")


def test_headers_are_found_in_cpath(monkeypatch, tmp_path):
    (tmp_path / "NvOnnxParser.h").touch()
    monkeypatch.setenv("CPATH", str(tmp_path))
    assert support.headers() == tmp_path
