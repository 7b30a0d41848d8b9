"""Weights from elsewhere: read as tensors alone, fitted to the network they belong to, exported and compared."""

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from labkit import cli, models
from labkit.errors import LabError
from labkit.export import network_with
from labkit.export.weights import _read_weights


@pytest.fixture
def small():
    torch.manual_seed(0)
    return models.build("cnn-small", classes=7)[0].eval()


def saved(content, path):
    torch.save(content, path)
    return path


def test_a_state_dict_is_found_in_each_form_that_people_save(small, tmp_path):
    state = small.state_dict()
    forms = [
        saved(state, tmp_path / "plain.pth"),
        saved({"epoch": 3, "state_dict": state, "optimizer": {"state": {}}}, tmp_path / "inside.pt"),
        saved({f"module.{key}": value for key, value in state.items()}, tmp_path / "parallel.pth"),
        tmp_path / "same.safetensors",
    ]
    save_file(state, forms[-1])
    for path in forms:
        read = _read_weights(path)
        assert read.keys() == state.keys()
        assert all(torch.equal(read[key], value) for key, value in state.items())


def test_the_network_answers_as_the_one_that_was_saved_with_its_own_number_of_classes(small, tmp_path):
    network, shape = network_with("cnn-small", saved(small.state_dict(), tmp_path / "w.pth"), size=32)
    batch = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    assert shape == (1, 32, 32)
    assert torch.equal(network(batch), small(batch))


def test_of_two_networks_of_one_name_the_one_that_fits_counts(tmp_path):
    torch.manual_seed(0)
    theirs = torchvision.models.resnet18(num_classes=4).eval()  # the course has a resnet18 for small images
    network, shape = network_with("resnet18", saved(theirs.state_dict(), tmp_path / "w.pth"))
    assert shape == (3, 224, 224)
    batch = torch.randn(1, 3, 64, 64)
    assert torch.equal(network(batch), theirs(batch))
    ours, _ = models.build("resnet18", classes=4)
    assert network_with("resnet18", saved(ours.state_dict(), tmp_path / "o.pth"))[1] == (1, 28, 28)


def test_weights_of_another_network_are_refused_with_the_names_that_differ(small, tmp_path):
    with pytest.raises(LabError, match="holds the weights of another network than cnn-large") as caught:
        network_with("cnn-large", saved(small.state_dict(), tmp_path / "w.pth"))
    assert "0.0.weight (48, 1, 3, 3)" in caught.value.expected
    assert "0.0.weight (4, 1, 3, 3)" in caught.value.found
    assert "module:function" in caught.value.fix


@pytest.mark.parametrize(
    ("content", "part"),
    [(nn.Linear(2, 2), "cannot be read as weights"), ({"epoch": 3}, "holds no weights"), (b"text", "cannot be read")],
)
def test_what_is_no_file_of_weights_is_refused_and_its_code_is_not_run(content, part, tmp_path):
    path = tmp_path / "w.pth"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(LabError, match=part):
        _read_weights(path)


def test_an_unknown_name_is_refused_with_the_way_to_bring_a_network_of_ones_own(small, tmp_path):
    path = saved(small.state_dict(), tmp_path / "w.pth")
    with pytest.raises(LabError, match="my_file:my_function"):
        network_with("nothing", path)
    with pytest.raises(LabError, match="no_such_file:net did not return a network"):
        network_with("no_such_file:net", path)


def test_the_command_exports_a_network_of_ones_own_and_says_that_its_code_runs(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n\n\ndef tiny():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))\n"
    )
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    saved(network.state_dict(), tmp_path / "mine.pth")
    done = CliRunner().invoke(cli.app, ["export", "my_nets:tiny", "--weights", "mine.pth", "--size", "20"])
    assert done.exit_code == 0, done.output
    assert "Running your code: my_nets:tiny" in done.output
    assert "same answer 100.00% of 10" in done.output
    assert (tmp_path / "mine.onnx").is_file()
