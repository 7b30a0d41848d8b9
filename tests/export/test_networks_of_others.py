"""Networks that labkit has never seen, by command: with a class token, several inputs, or code
that no graph holds.
"""

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from labkit import cli, export
from labkit.errors import LabError

NETS = '''
import torch
from torch import nn


class WithClassToken(nn.Module):
    """A transformer's beginning: the first tensor of its weights is no convolution."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.head = nn.Linear(8, 5)

    def forward(self, images):
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(images.shape[0], -1, -1), patches], 1)
        return self.head(tokens.softmax(1)[:, 0])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.scale = nn.Linear(4, 8)

    def forward(self, tokens, features):
        return self.embedding(tokens).mean(1) * self.scale(features)


class Sum(nn.Module):
    def __init__(self, *, double=False):
        super().__init__()
        self.linear = nn.Linear(4, 4, dtype=torch.float64 if double else None)

    def forward(self, *parts):
        return self.linear(parts[0] - 2 * parts[1])


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Conv2d(1, 4, 3)

    def forward(self, images):
        sums = self.linear(images).mean((2, 3))
        if sums.sum() > 0:
            return -sums
        return sums


class Normed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.convolution = norm(nn.Conv2d(3, 4, 3))

    def forward(self, images):
        return self.convolution(images).mean((2, 3))


def with_token():
    return WithClassToken()


def tagger():
    return Tagger()


def total():
    return Sum()


def total_in_double():
    return Sum(double=True)


def branching():
    return Branching()


def normed():
    return Normed(nn.utils.parametrizations.weight_norm)


def normed_of_old():
    return Normed(nn.utils.weight_norm)


def weights_only():
    return Sum().state_dict()
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "nets_of_others.py").write_text(NETS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def functions_of_others():
    """Return what the file of networks defines, by name."""
    module = {}
    exec(NETS, module)
    return module


def exported(function, *words):
    return CliRunner().invoke(cli.app, ["export", f"nets_of_others:{function}", *words])


def refusal(function, *words):
    """Return what the command says where it refuses, in words."""
    done = exported(function, *words)
    assert done.exit_code != 0
    assert isinstance(done.exception, LabError), done.exception
    return done.exception


@pytest.mark.slow
@pytest.mark.parametrize("function", ["with_token", "normed"])
def test_a_network_of_ones_own_is_exported_with_the_weights_that_its_function_gives_it(
    folder, function
):
    done = exported(function, "--size", "16")
    assert done.exit_code == 0, done.output
    assert "same answer 100.00% of 10" in done.output
    [images] = onnx.load(folder / f"{function}.onnx").graph.input
    assert [side.dim_value for side in images.type.tensor_type.shape.dim[1:]] == [3, 16, 16]


@pytest.mark.slow
def test_weights_from_a_file_fit_a_network_whose_first_tensor_is_a_class_token(folder):
    torch.manual_seed(1)
    network = functions_of_others()["with_token"]()
    torch.save(network.state_dict(), "mine.pth")
    assert exported("with_token", "--weights", "mine.pth", "--size", "16").exit_code == 0
    images = torch.randn(3, 3, 16, 16)
    answers = export.as_written("mine.onnx")(images)
    assert torch.allclose(answers, network(images), atol=1e-5)


@pytest.mark.slow
def test_inputs_from_a_file_go_where_their_names_say_and_the_batch_stays_open(folder):
    rng = np.random.default_rng(0)
    np.savez("inputs.npz", features=rng.standard_normal((3, 4)), tokens=rng.integers(0, 50, (3, 7)))
    done = exported("tagger", "--inputs", "inputs.npz")
    assert done.exit_code == 0, done.output
    assert "on the inputs of inputs.npz" in done.output
    inputs = onnx.load(folder / "tagger.onnx").graph.input
    assert [value.name for value in inputs] == ["tokens", "features"]
    assert all(value.type.tensor_type.shape.dim[0].dim_param for value in inputs)


def test_inputs_of_the_same_names_go_in_the_order_of_forward(folder):
    tagger = functions_of_others()["tagger"]()
    np.savez("inputs.npz", features=np.ones((3, 4)), tokens=np.zeros((3, 7), np.int64))
    tokens, features = export.inputs_from("inputs.npz", tagger)
    assert (tuple(tokens.shape), tuple(features.shape)) == ((3, 7), (3, 4))


def test_inputs_of_other_names_go_in_their_order_and_double_becomes_float_where_no_weight_is_double(
    folder,
):
    functions = functions_of_others()
    np.savez("two.npz", z=np.ones((2, 4)), a=np.zeros((2, 4)))
    tensors = export.inputs_from("two.npz", functions["total"]())
    assert [tensor.dtype for tensor in tensors] == [torch.float32] * 2
    assert tensors[0].equal(torch.ones(2, 4)) and tensors[1].equal(torch.zeros(2, 4))
    tensors = export.inputs_from("two.npz", functions["total_in_double"]())
    assert [tensor.dtype for tensor in tensors] == [torch.float64] * 2


@pytest.mark.slow
def test_a_network_that_takes_any_number_of_inputs_is_exported_with_as_many_as_it_is_given(folder):
    rng = np.random.default_rng(0)
    np.savez("inputs.npz", x=rng.standard_normal((3, 4)), y=rng.standard_normal((3, 4)))
    done = exported("total", "--inputs", "inputs.npz")
    assert done.exit_code == 0, done.output
    assert len(onnx.load(folder / "total.onnx").graph.input) == 2


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({}, "no arrays"),
        ({"x": np.ones((2, 4)), "y": np.ones((3, 4))}, "y float64 (3, 4)"),
        ({"x": np.float32(1)}, "x float32 ()"),
        ({"x": np.array(["text"])}, "x <U4 (1,)"),
        ({"x": np.array([{}])}, "pickle"),
    ],
    ids=["nothing", "two batches", "no batch", "text", "objects"],
)
def test_inputs_that_are_no_batch_of_numbers_are_refused(folder, arrays, said):
    np.savez("inputs.npz", **arrays)
    assert said in refusal("total", "--inputs", "inputs.npz").found


def test_a_file_that_is_no_npz_is_refused(folder):
    (folder / "inputs.npz").write_text("no arrays", encoding="utf-8")
    assert "cannot be read as inputs" in refusal("total", "--inputs", "inputs.npz").what
    assert "cannot be read as inputs" in refusal("total", "--inputs", "missing.npz").what


def test_a_network_that_takes_no_picture_says_what_it_misses_and_how_to_give_it(folder):
    error = refusal("tagger")
    assert error.what == "Tagger does not take the example."
    assert "missing 1 required positional argument: 'features'" in error.found
    assert "--inputs" in error.fix


@pytest.mark.slow
def test_code_that_no_graph_can_hold_is_refused_in_one_sentence_and_leaves_no_file(folder, capfd):
    error = refusal("branching", "--size", "16")
    assert error.what == "torch.onnx.export cannot write Branching as a graph."
    assert "data-dependent" in error.found
    assert "\n" not in error.found
    assert capfd.readouterr().err == ""
    assert not (folder / "branching.onnx").exists()


def test_weight_norm_of_the_old_kind_is_refused_with_the_name_of_the_new_one(folder):
    with pytest.warns(FutureWarning, match="weight_norm"):
        error = refusal("normed_of_old", "--size", "16")
    assert "parametrizations.weight_norm" in error.fix


def test_a_function_that_returns_no_network_is_refused_by_the_type_that_it_returns(folder):
    assert "OrderedDict" in refusal("weights_only").found


def test_an_example_from_python_is_refused_in_the_same_words(tmp_path):
    with pytest.raises(LabError, match="Linear does not take the example"):
        export.to_onnx(nn.Linear(4, 2), torch.randn(3, 5), tmp_path / "linear.onnx")
