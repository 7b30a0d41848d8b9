"""Calibration from a file of arrays: for networks of tokens, of several inputs, of what is no
picture.
"""

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from labkit import cli
from labkit.errors import LabError
from labkit.quantize import images_for

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (int64[N, 3] tokens, float[N, 4] features) => (float[N, 4] y)
<float[5, 4] table = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, -1, -2, -3, -4, -5, 0, 1, 2, 3, 4},
 float[4, 4] weights = {1, 0.5, 0, -1, 2, 1, -1, 0, 0.5, 0, 1, 1, -1, 1, 0, 2}>
{
    rows = Gather(table, tokens)
    sums = ReduceMean<axes = [1], keepdims = 0>(rows)
    product = MatMul(features, weights)
    y = Add(sums, product)
}
"""


@pytest.fixture
def model():
    return onnx.parser.parse_model(TEXT)


@pytest.fixture
def examples(tmp_path):
    """A file of 200 examples, the features first; their first column is the example's number,
    over 200.
    """
    rng = np.random.default_rng(0)
    features = rng.standard_normal((200, 4))
    features[:, 0] = np.arange(200) / 200
    path = tmp_path / "examples.npz"
    np.savez(path, features=features, tokens=rng.integers(0, 5, (200, 3)).astype(np.int32))
    return str(path)


def numbers_of(calibration):
    first_column = np.concatenate([batch["features"][:, 0] for batch in calibration.batches])
    return np.rint(200 * first_column).astype(int).tolist()


def test_every_third_of_200_examples_is_held_out_and_the_others_are_observed_up_to_the_count(
    model, examples
):
    assert numbers_of(images_for(model, examples, 256, "test")) == list(range(0, 200, 3))
    train = images_for(model, examples, 100, "train")
    assert numbers_of(train) == [number for number in range(200) if number % 3][:100]
    assert train.description == "100 examples of examples.npz train"


def test_arrays_go_to_the_inputs_of_their_names_in_the_types_of_the_model(model, examples):
    batch = images_for(model, examples, 64).batches[0]
    assert {name: (array.dtype, array.shape) for name, array in batch.items()} == {
        "tokens": (np.int64, (32, 3)),
        "features": (np.float32, (32, 4)),
    }


@pytest.mark.parametrize(
    ("count", "split", "said"),
    [(100, "test", "128 in few.npz"), (40, "train", "at least 64 examples")],
)
def test_too_few_examples_are_refused(model, tmp_path, count, split, said):
    path = tmp_path / "few.npz"
    np.savez(
        path, tokens=np.zeros((count, 3)), features=np.random.default_rng(0).random((count, 4))
    )
    with pytest.raises(LabError) as caught:
        images_for(model, str(path), 256, split)
    assert said in caught.value.expected


def test_a_file_with_another_number_of_arrays_is_refused_and_so_is_the_scale_of_pictures(
    model, examples, tmp_path
):
    np.savez(tmp_path / "one.npz", tokens=np.zeros((128, 3)))
    with pytest.raises(LabError, match=r"one\.npz does not fit the model"):
        images_for(model, str(tmp_path / "one.npz"), 64)
    with pytest.raises(LabError, match="for pictures"):
        images_for(model, examples, 64, mean="0.5")


@pytest.mark.slow
def test_the_command_quantizes_a_network_of_tokens_and_numbers_and_compares_on_what_was_held_out(
    model, examples, tmp_path
):
    source, target = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    onnx.save(model, source)
    done = CliRunner().invoke(
        cli.app,
        ["quantize", str(source), str(target), "--data", examples, "--recipe", "onnxruntime"],
    )
    assert done.exit_code == 0, done.output
    assert "on 67 examples of examples.npz held out" in done.output
    assert "DequantizeLinear" in {node.op_type for node in onnx.load(target).graph.node}
    done = CliRunner().invoke(
        cli.app,
        [
            "bench",
            str(source),
            str(target),
            "--engine",
            "onnxruntime",
            "--seconds",
            "0.1",
            "--data",
            examples,
        ],
    )
    assert done.exit_code == 0, done.output
    assert "in turn, batch 1" in done.output
