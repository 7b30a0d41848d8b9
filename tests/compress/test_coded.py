"""The coded file: every bit comes back, it is as small as zeros and shared values allow, damage
is refused in words.
"""

import gzip
import random
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from labkit.compress import load, save
from labkit.errors import LabError

RNG = np.random.default_rng(0)


def model_of(**tensors):
    """A model with these initializers, each added to an input of its shape."""
    inputs, outputs, nodes = [], [], []
    for name, numbers in tensors.items():
        element = helper.np_dtype_to_tensor_dtype(numbers.dtype)
        inputs.append(helper.make_tensor_value_info(f"{name}_in", element, numbers.shape))
        outputs.append(helper.make_tensor_value_info(f"{name}_out", element, numbers.shape))
        nodes.append(helper.make_node("Add", [f"{name}_in", name], [f"{name}_out"]))
    stored = [numpy_helper.from_array(numbers, name) for name, numbers in tensors.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def shared(shape, sparsity, values):
    """float32 numbers, of which this share is 0; the others have so many different values."""
    numbers = RNG.choice(RNG.normal(size=values).astype(np.float32), shape)
    return np.where(RNG.random(shape) < sparsity, np.float32(0), numbers).astype(np.float32)


ODD = np.zeros(300, np.float32)
ODD[:4] = [-0.0, np.inf, np.nan, 1e-42]
TENSORS = {
    "zeros and 16 values": shared((64, 50), 0.9, 16),
    "255 values": shared((64, 500), 0.5, 255),
    "more values than an index holds": RNG.normal(size=(40, 30)).astype(np.float32),
    "all zeros": np.zeros((20, 30), np.float32),
    "no zeros": np.ones((20, 30), np.float32),
    "-0.0, infinity and NaN": ODD,
    "INT8": RNG.integers(-3, 4, (31, 17)).astype(np.int8),
    "FP16": shared((64, 50), 0.9, 16).astype(np.float16),
    "INT64": RNG.integers(0, 3, 1000),
    "few numbers": np.array([1.0, 0.0], np.float32),
    "a scalar": np.array(2.0, np.float32),
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_tensor_comes_back_bit_for_bit(case, tmp_path):
    onnx.save(model_of(weight=TENSORS[case]), tmp_path / "net.onnx")
    save(tmp_path / "net.onnx.gz", tmp_path / "net.onnx")
    [tensor] = load(tmp_path / "net.onnx.gz").graph.initializer
    numbers = numpy_helper.to_array(tensor)
    assert (numbers.dtype, numbers.shape) == (TENSORS[case].dtype, TENSORS[case].shape)
    assert numbers.tobytes() == TENSORS[case].tobytes()


def test_a_whole_model_comes_back_and_is_the_model_that_went_in(tmp_path):
    tensors = {f"weight{number}": numbers for number, numbers in enumerate(TENSORS.values())}
    onnx.save(model_of(**tensors), tmp_path / "net.onnx")
    save(tmp_path / "net.onnx.gz", tmp_path / "net.onnx")
    assert load(tmp_path / "net.onnx.gz") == onnx.load(tmp_path / "net.onnx")


def test_the_file_takes_little_more_than_shannons_bound_says(tmp_path):
    """Of each number one bit whether it is 0, of probability 0.1; of each other one, which of 16
    equally frequent.
    """
    numbers = shared((1000, 1000), 0.9, 16)
    onnx.save(model_of(weight=numbers), tmp_path / "net.onnx")
    save(tmp_path / "net.onnx.gz", tmp_path / "net.onnx")
    zero = np.mean(numbers == 0)
    bits = -zero * np.log2(zero) - (1 - zero) * np.log2(1 - zero) + 4 * (1 - zero)
    assert bits * 1e6 / 8 < (tmp_path / "net.onnx.gz").stat().st_size < 1.05 * bits * 1e6 / 8


@pytest.fixture
def good(tmp_path):
    """The path of a whole file."""
    onnx.save(model_of(weight=shared((64, 50), 0.9, 16)), tmp_path / "net.onnx")
    save(tmp_path / "good.onnx.gz", tmp_path / "net.onnx")
    return tmp_path / "good.onnx.gz"


def refused(path, data):
    path.write_bytes(data)
    with pytest.raises(LabError, match="no whole file of a coded network") as caught:
        load(path)
    assert caught.value.expected and caught.value.found and caught.value.fix


def test_truncated_and_foreign_files_are_refused(good, tmp_path):
    data = good.read_bytes()
    for length in (0, 1, 10, len(data) // 2, len(data) - 1):
        refused(tmp_path / "x.onnx.gz", data[:length])
    for foreign in (b"PK\x03\x04" + bytes(100), b"{}", gzip.compress(b"no protobuf \xff")):
        refused(tmp_path / "x.onnx.gz", foreign)
    with pytest.raises(LabError, match="no whole file of a coded network"):
        load(tmp_path / "missing.onnx.gz")


def test_a_flipped_bit_changes_no_network_unnoticed(good, tmp_path):
    data, model = good.read_bytes(), load(good)
    refusals = 0
    for position in random.Random(0).sample(range(8 * len(data)), 100):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        (tmp_path / "x.onnx.gz").write_bytes(bytes(damaged))
        try:
            # a bit of gzip's header that no reader looks at
            assert load(tmp_path / "x.onnx.gz") == model
        except LabError:
            refusals += 1
    assert refusals > 80


FORGED = {
    "no bytes": {"raw_data": b""},
    "a codebook that ends early": {"raw_data": b"\xff" + bytes(10)},
    "an index beyond the codebook": {"raw_data": b"\x00" + b"\xff" * 400 + bytes(3200)},
    "fewer indices than ones in the mask": {
        "raw_data": b"\x01" + bytes(4) + b"\xff" * 400 + bytes(7)
    },
    "more numbers than anybody stores": {"dims": [10**6, 10**6]},
    "negative numbers of numbers": {"dims": [-1, 300]},
    "numbers of no such type": {"data_type": 99},
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_tensor_is_refused(case, tmp_path):
    parts = {
        "name": "weight",
        "data_type": TensorProto.FLOAT,
        "dims": [64, 50],
        "doc_string": "coded",
    }
    model = model_of(weight=np.zeros((64, 50), np.float32))
    model.graph.initializer[0].CopyFrom(
        TensorProto(**parts | {"raw_data": bytes(1000)} | FORGED[case])
    )
    refused(tmp_path / "x.onnx.gz", gzip.compress(model.SerializeToString()))


def test_a_bomb_is_refused_before_it_takes_memory(tmp_path):
    bomb = gzip.compress(bytes(2**29))
    tracemalloc.start()
    refused(tmp_path / "x.onnx.gz", bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * 2**28
