"""Quantization after training: what stands in the file, and that it still computes the same."""

import numpy as np
import onnx
import pytest
import torch

from labkit import engines, models
from labkit.engines import fidelity
from labkit.errors import LabError
from labkit.export import parity, runtime_graph, to_onnx
from labkit.quantize import RECIPES, Calibration, logits, observe, prepared_for_quantizer, static
from labkit.quantize.integer_grid import quantize, scale_zero_point, sqnr_db, value_range

METHODS = ("minmax", "percentile", "entropy")


@pytest.fixture(scope="module")
def histograms(onnx_file, train):
    return observe(prepared_for_quantizer(onnx_file), Calibration.of(train, count=128))


@pytest.fixture(scope="module")
def quantized(onnx_file, histograms, tmp_path_factory):
    """{recipe: path}"""
    folder = tmp_path_factory.mktemp("quantized")
    return {
        recipe: static(onnx_file, folder / f"{recipe}.onnx", histograms, recipe=recipe)
        for recipe in RECIPES
    }


def test_the_shapes_of_a_prepared_model_are_those_inferred_with_the_weights_in_place(
    onnx_file, tmp_path
):
    plain = onnx.load(runtime_graph(onnx_file, tmp_path / "basic.onnx", "basic"))
    wanted, found = (
        onnx.shape_inference.infer_shapes(plain).graph,
        prepared_for_quantizer(onnx_file).graph,
    )
    assert wanted.value_info
    assert found.value_info == wanted.value_info
    assert found.output == wanted.output
    assert found.initializer == wanted.initializer


def tensors(model):
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_the_weights_in_the_file_are_those_quantized_by_hand(quantized, onnx_file):
    before, after = tensors(onnx.load(onnx_file)), tensors(onnx.load(quantized["tensorrt"]))
    weights = [name for name, values in before.items() if values.ndim == 4]
    assert len(weights) == 6
    for name in weights:
        scale, _ = scale_zero_point(*value_range(before[name], axis=0))
        np.testing.assert_allclose(after[f"{name}_scale"], scale, rtol=1e-5)
        ours = quantize(before[name], scale, axis=0).astype(int)
        # where a value lies between two integers
        assert np.abs(ours - after[f"{name}_quantized"]).max() <= 1
        assert (ours == after[f"{name}_quantized"]).mean() > 0.999


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_with_each_method_computes_nearly_the_same(
    recipe, method, network, onnx_file, histograms, images, tmp_path
):
    path = static(onnx_file, tmp_path / "q.onnx", histograms, recipe=recipe, method=method)
    found = parity(network, path, [images[:3], images])
    assert found.cosine > 0.98
    assert found.top1 > 0.9


def test_the_file_for_tensorrt_has_only_symmetric_int8_and_float_biases(quantized):
    model = onnx.load(quantized["tensorrt"])
    kinds = tensors(model)
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            assert kinds[node.input[2]].dtype == np.int8
            assert not kinds[node.input[2]].any()
        if node.op_type in ("Conv", "Gemm"):
            assert kinds[node.input[2]].dtype == np.float32
            assert model.graph.node  # its other two inputs come from DequantizeLinear:
            made = {name: other.op_type for other in model.graph.node for name in other.output}
            assert [made[name] for name in node.input[:2]] == ["DequantizeLinear"] * 2


@pytest.mark.parametrize("recipe", ["onnxruntime", "openvino"])
def test_a_file_for_a_cpu_has_unsigned_activations_and_weights_of_seven_bits(recipe, quantized):
    model = onnx.load(quantized[recipe])
    kinds = tensors(model)
    zeros = {
        kinds[node.input[2]].dtype for node in model.graph.node if node.op_type == "QuantizeLinear"
    }
    assert zeros == {np.dtype(np.uint8)}
    weights = [
        values for name, values in kinds.items() if name.endswith("_quantized") and values.ndim == 4
    ]
    assert max(np.abs(values.astype(int)).max() for values in weights) <= 64


def test_the_file_for_openvino_rounds_only_what_enters_convolutions_and_products(quantized):
    model = onnx.load(quantized["openvino"])
    readers = {name: node for node in model.graph.node for name in node.input}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear":
            assert readers[node.output[0]].op_type in ("Conv", "Gemm")
        if node.op_type in ("Conv", "Gemm"):
            assert readers.get(node.output[0], node).op_type != "QuantizeLinear"
            assert tensors(model)[node.input[2]].dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn-medium", "mobilenet-mini"])
def test_openvino_answers_what_the_file_made_for_it_means_on_any_cpu(name, train, images, tmp_path):
    pytest.importorskip("openvino")
    torch.manual_seed(0)
    network = models.build(name)[0].to(memory_format=torch.channels_last)
    network(images)  # running statistics other than 0 and 1
    source = to_onnx(network, images[:2], tmp_path / "net.onnx")
    path = static(source, tmp_path / "q.onnx", Calibration.of(train, count=64), recipe="openvino")
    opened = engines.load("openvino", path, images, precision="int8")
    assert fidelity.of_engine(opened, path, [images]).db > fidelity.ENGINE_DB


def test_a_quantized_file_is_about_a_quarter_of_the_size_and_says_how_it_was_made(
    quantized, onnx_file
):
    for recipe, path in quantized.items():
        assert path.stat().st_size < 0.4 * onnx_file.stat().st_size
        (note,) = [
            entry.value for entry in onnx.load(path).metadata_props if entry.key == "quantized"
        ]
        assert note == f"int8, recipe {recipe}, ranges by minmax"
        onnx.checker.check_model(path, full_check=True)
        assert {opset.domain for opset in onnx.load(path).opset_import} == {""}


def test_a_node_that_is_kept_stays_in_float(onnx_file, histograms, tmp_path):
    first = next(node.name for node in onnx.load(onnx_file).graph.node if node.op_type == "Conv")
    model = onnx.load(static(onnx_file, tmp_path / "q.onnx", histograms, in_float=[first]))
    (kept,) = [node for node in model.graph.node if node.name == first]
    assert tensors(model)[kept.input[1]].dtype == np.float32
    with pytest.raises(LabError, match="no such nodes"):
        static(onnx_file, tmp_path / "r.onnx", histograms, in_float=["nothing"])


def test_batch_norm_in_a_file_from_elsewhere_is_folded_before_it_is_quantized(
    train, images, tmp_path
):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten())
    net(images)  # running statistics other than 0 and 1
    net[1].weight.data.uniform_(0.5, 2)
    source = to_onnx(net, images[:2], tmp_path / "bn.onnx", optimize=False)
    assert "BatchNormalization" in {node.op_type for node in onnx.load(source).graph.node}
    path = static(source, tmp_path / "q.onnx", train)
    assert "BatchNormalization" not in {node.op_type for node in onnx.load(path).graph.node}
    assert parity(net, path, [images]).cosine > 0.999


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_file_whose_weights_lie_in_a_file_of_their_own_is_quantized(
    recipe, network, train, images, tmp_path
):
    source = tmp_path / "net.onnx"
    torch.onnx.export(
        network, (images[:200],), source, dynamo=True, external_data=True, verbose=False
    )
    assert (tmp_path / "net.onnx.data").exists()
    data = Calibration.of(train, count=200, batch=200)
    path = static(source, tmp_path / "out" / "q.onnx", data, recipe=recipe)
    assert parity(network, path, [images]).cosine > 0.98


class Two(torch.nn.Module):
    """Two inputs and two outputs."""

    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(784, 3), torch.nn.Linear(784, 3)

    def forward(self, left, right):
        left, right = self.left(left.flatten(1)), self.right(right.flatten(1))
        return left + right, left - right


@pytest.fixture(scope="module")
def two(images, tmp_path_factory):
    torch.manual_seed(0)
    network = Two()
    path = to_onnx(network, (images[:2], images[:2]), tmp_path_factory.mktemp("two") / "two.onnx")
    names = [value.name for value in onnx.load(path).graph.input]
    return network, path, dict(zip(names, (images.numpy(), 2 * images.numpy()[::-1]), strict=True))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_network_of_two_inputs_is_calibrated_with_an_array_for_each(recipe, two, tmp_path):
    network, source, arrays = two
    batches = tuple(
        {name: part[at : at + 50] for name, part in arrays.items()} for at in range(0, 200, 50)
    )
    data = Calibration(batches, "pairs of images")
    assert data.count == 200
    seen = observe(prepared_for_quantizer(source), data)
    for name, array in arrays.items():
        assert (seen[name].low, seen[name].high) == (array.min(), array.max())
    path = static(source, tmp_path / "q.onnx", data, recipe=recipe)
    left, right = map(torch.from_numpy, map(np.ascontiguousarray, arrays.values()))
    with torch.inference_mode():
        wanted = network(left, right)[0].numpy()
    assert sqnr_db(wanted, logits(path, data)) > 25


def test_batches_without_the_inputs_of_the_network_are_refused(two, train, tmp_path):
    _, source, arrays = two
    first, second = arrays
    with pytest.raises(LabError, match=r"The model has 2 inputs(?s:.*)--data FILE\.npz"):
        static(source, tmp_path / "q.onnx", train)
    wrong = Calibration(({first: arrays[first], "other": arrays[second]},), "pairs of images")
    with pytest.raises(LabError, match=f"refuses a batch(?s:.*){first} .*{second} "):
        static(source, tmp_path / "q.onnx", wrong)
    assert not list(tmp_path.iterdir())


def test_texts_of_several_lengths_calibrate_one_network(tmp_path):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 8)).eval()
    shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length")},)
    source = tmp_path / "net.onnx"
    torch.onnx.export(net, (torch.zeros(2, 5, dtype=torch.int64),), source, dynamo=True, dynamic_shapes=shapes,
                      verbose=False)  # fmt: skip
    texts = [np.random.default_rng(length).integers(0, 50, (32, length)) for length in (4, 9, 6)]
    data = Calibration(tuple(texts), "random tokens")
    path = static(source, tmp_path / "q.onnx", data)
    with torch.inference_mode():
        wanted = net(torch.from_numpy(texts[1])).numpy()
    assert sqnr_db(wanted, logits(path, texts[1])) > 25


def test_no_data_an_unknown_recipe_and_a_missing_file_are_refused(onnx_file, train, tmp_path):
    with pytest.raises(LabError, match="real data"):
        static(onnx_file, tmp_path / "q.onnx", None)
    with pytest.raises(LabError, match="no recipe 'int4'"):
        static(onnx_file, tmp_path / "q.onnx", train, recipe="int4")
    with pytest.raises(LabError):
        static(tmp_path / "missing.onnx", tmp_path / "q.onnx", train)
    assert not list(tmp_path.iterdir())


class Attention(torch.nn.Module):
    """Patches of an image that look at each other with nearly equal shares, as before any
    training.
    """

    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(1, 32, 4, 4)
        self.three = torch.nn.Linear(32, 96)
        self.head = torch.nn.Linear(32, 10)
        self.three.weight.data *= 0.1

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)  # (N, 49, 32)
        asks, offers, values = self.three(tokens).split(32, -1)
        shares = torch.softmax(0.2 * asks @ offers.transpose(1, 2), -1)
        return self.head((shares @ values).mean(1))


def test_onnx_runtime_answers_what_a_file_with_a_flat_softmax_means(train, images, tmp_path):
    torch.manual_seed(0)
    source = to_onnx(Attention(), images[:2], tmp_path / "net.onnx")
    path = static(
        source, tmp_path / "q.onnx", Calibration.of(train, count=64), recipe="onnxruntime"
    )
    fused = onnx.load(runtime_graph(path, tmp_path / "fused.onnx", "extended"))
    # ONNX Runtime's own, which may overflow
    assert "QLinearSoftmax" in {node.op_type for node in fused.graph.node}
    opened = engines.load("onnxruntime", path, images, precision="int8")
    assert fidelity.of_engine(opened, path, [images]).db > 30


def test_a_network_in_double_is_refused_where_nothing_of_it_becomes_int8(tmp_path):
    linear = torch.nn.Linear(12, 4)
    network = torch.nn.Sequential(torch.nn.Flatten(), linear).double()
    path = to_onnx(network, torch.randn(2, 3, 2, 2, dtype=torch.float64), tmp_path / "n.onnx")
    examples = np.random.default_rng(0).normal(size=(64, 3, 2, 2)).astype(np.float32)
    data = Calibration(({"input": examples[:32]}, {"input": examples[32:]}), "made up")
    with pytest.raises(LabError, match=r"(?s)Nothing of the network(.*)float32"):
        static(path, tmp_path / "q.onnx", data, recipe="onnxruntime")

    # Only what is beside the weights is in float32.
    class InPart(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear.double()

        def forward(self, images):
            return self.linear(images.flatten(1).relu().double())

    path = to_onnx(InPart(), torch.randn(2, 3, 2, 2), tmp_path / "m.onnx")
    with pytest.raises(LabError, match=r"(?s)Nothing of the network was(.*)DOUBLE(.*)float32"):
        static(path, tmp_path / "q.onnx", data, recipe="openvino")
    assert not (tmp_path / "q.onnx").exists()
