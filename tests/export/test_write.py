"""Every ONNX file is opened and called before it gets its name; a copy has to answer like what
it was made from.
"""

import os
from functools import partial

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from sample_onnx import good_model, save

from labkit.errors import LabError
from labkit.export import as_written, checked, parity, runtime_graph, to_onnx
from labkit.export import write as write_module
from labkit.export.write import write_checked, write_model


def scaled(factor):
    """The good model whose weights are `factor` times as large."""
    model = good_model()
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(factor * numpy_helper.to_array(tensor), tensor.name)
        )
    return model


def crash(path, original):
    """Take the place of `problem_of`, in the process that opens a file."""
    os.abort()


@pytest.fixture
def original(tmp_path):
    (tmp_path / "original").mkdir()
    return save(good_model(), tmp_path / "original")


def test_a_copy_that_answers_something_else_is_not_written_and_the_earlier_file_stays(
    original, tmp_path
):
    path = tmp_path / "copy.onnx"
    path.write_bytes(b"earlier")
    with pytest.raises(
        LabError, match=r"the output logits answers something else: .* dB"
    ) as caught:
        write_model(scaled(1.5), path, original=original)
    assert caught.value.what == "copy.onnx is not written: it would be of no use."
    assert path.read_bytes() == b"earlier"
    assert write_model(scaled(1.001), path, original=original) == path
    assert checked(path).graph.name == "good"


def test_an_output_of_another_shape_is_told(original, tmp_path):
    model = good_model()
    model.graph.node.append(onnx.helper.make_node("Transpose", ["logits"], ["turned"], perm=[1, 0]))
    model.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("turned", onnx.TensorProto.FLOAT, [3, "batch"])
    )
    with pytest.raises(LabError, match="the output logits has another name or shape than before"):
        write_model(model, tmp_path / "copy.onnx", original=original)
    assert not (tmp_path / "copy.onnx").exists()


def test_a_file_that_cannot_be_opened_is_not_written(tmp_path):
    model = good_model()
    model.graph.node[2].op_type = "Relooo"
    with pytest.raises(LabError, match="Relooo"):
        write_model(model, tmp_path / "new.onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_that_ends_the_process_which_opens_it_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(write_module, "problem_of", crash)
    with pytest.raises(LabError, match="the process that opened it ended by the system: Aborted"):
        write_model(good_model(), tmp_path / "new.onnx")
    assert not list(tmp_path.iterdir())


def test_weights_in_a_second_file_go_with_it_and_are_gone_when_the_next_one_has_none(tmp_path):
    network = torch.nn.Linear(300, 10).eval()
    example = torch.randn(2, 300)
    path = to_onnx(network, example, tmp_path / "net.onnx", external_data=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    assert path.stat().st_size < 10_000
    assert parity(network, path, [example]).cosine > 0.9999
    runtime_graph(path, tmp_path / "whole.onnx", "basic")  # with its weights, in another file
    assert parity(network, tmp_path / "whole.onnx", [example]).cosine > 0.9999

    to_onnx(network, example, path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.onnx", "whole.onnx"]
    assert parity(network, path, [example]).cosine > 0.9999


def test_a_failure_leaves_the_earlier_weights_beside_the_earlier_file(tmp_path, monkeypatch):
    network = torch.nn.Linear(300, 10).eval()
    example = torch.randn(2, 300)
    path = to_onnx(network, example, tmp_path / "net.onnx", external_data=True)
    monkeypatch.setattr(write_module, "problem_of", crash)
    with pytest.raises(LabError, match="is not written"):
        to_onnx(torch.nn.Linear(300, 10), example, path, external_data=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    assert parity(network, path, [example]).cosine > 0.9999


class NamesClash(torch.nn.Module):
    """Its parameters are called like the input and the output of the graph."""

    def __init__(self):
        super().__init__()
        self.input = torch.nn.Parameter(torch.randn(5))
        self.output = torch.nn.Parameter(torch.randn(5))

    def forward(self, x):
        return x * self.input + self.output


def test_weights_that_are_called_like_an_input_or_an_output_get_another_name(tmp_path):
    torch.manual_seed(0)
    network = NamesClash().eval()
    path = to_onnx(network, torch.randn(2, 5), tmp_path / "net.onnx")
    graph = checked(path).graph
    ends = {value.name for value in (*graph.input, *graph.output)}
    assert ends.isdisjoint(tensor.name for tensor in graph.initializer)
    assert parity(network, path, [torch.randn(3, 5)]).cosine > 0.9999


def test_the_graph_of_onnx_runtime_is_compared_too(original, tmp_path):
    path = runtime_graph(original, tmp_path / "extended.onnx")
    batch = torch.randn(3, 4)
    torch.testing.assert_close(as_written(path)(batch), as_written(original)(batch))


def test_a_file_whose_inputs_cannot_be_made_up_is_opened_and_passes(tmp_path):
    """The vocabulary is one word, and made-up tokens are 0 or 1."""
    network = torch.nn.Sequential(torch.nn.Embedding(1, 3), torch.nn.Flatten()).eval()
    path = to_onnx(network, torch.zeros(2, 4, dtype=torch.int64), tmp_path / "words.onnx")
    assert runtime_graph(path, tmp_path / "extended.onnx").exists()


@pytest.mark.slow
def test_a_bfloat16_file_that_nothing_here_runs_is_written_and_passes_the_gate(tmp_path):
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten()).bfloat16().eval()
    path = to_onnx(layers, torch.randn(2, 1, 6, 6).bfloat16(), tmp_path / "bf16.onnx")
    assert write_module.problem_of(path.resolve()) is None  # as another process would open it


def test_the_saver_decides_what_is_written(original, tmp_path):
    path = write_checked(
        partial(onnx.save, good_model()), tmp_path / "same.onnx", original=original
    )
    assert onnx.load(path) == good_model()
    assert np.isfinite(as_written(path)(torch.ones(1, 4)).numpy()).all()
