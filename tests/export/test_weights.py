"""Weights from elsewhere: read as tensors alone, fitted to the network they belong to, exported
and compared.
"""

import argparse
import json
from functools import partial

import onnx
import pytest
import torch
import torchvision
from made_up import shapes
from safetensors.torch import save_file
from torch import nn
from torchvision.transforms._presets import ImageClassification
from typer.testing import CliRunner

from labkit import cli, models
from labkit.data import load
from labkit.errors import LabError
from labkit.export import network_with
from labkit.export import to_onnx as export_to_onnx
from labkit.export.weights import read_weights
from labkit.files import sha256
from labkit.quantize import images_for
from labkit.train import TrainConfig, fit


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
        saved(
            {"epoch": 3, "state_dict": state, "optimizer": {"state": {}}}, tmp_path / "inside.pt"
        ),
        saved({f"module.{key}": value for key, value in state.items()}, tmp_path / "parallel.pth"),
        tmp_path / "same.safetensors",
    ]
    save_file(state, forms[-1])
    for path in forms:
        read, _ = read_weights(path)
        assert read.keys() == state.keys()
        assert all(torch.equal(read[key], value) for key, value in state.items())


def test_of_a_checkpoint_with_an_average_the_network_that_was_tested_is_taken_and_the_others_are_named(
    tmp_path,
):
    torch.manual_seed(0)
    network = models.build("cnn-small", classes=4)[0]
    config, path = TrainConfig(batch=20, ema=0.8), tmp_path / "x-cnn-small.pt"
    history = fit(network, shapes(40, side=28), config, device="cpu", checkpoint=path)
    exported, _, notes = network_with("cnn-small", path)
    batch = torch.randn(3, 1, 28, 28)
    assert torch.equal(exported(batch), history.model.eval()(batch))
    assert not torch.equal(exported(batch), network.eval()(batch))
    assert notes["weights"] == "state.tested; the file also holds state.model"


def test_an_average_of_torch_alone_is_read_without_its_count(small, tmp_path):
    average = torch.optim.swa_utils.AveragedModel(small)
    read, told = read_weights(saved({"ema": average.state_dict()}, tmp_path / "average.pth"))
    assert read.keys() == small.state_dict().keys()
    assert "weights" not in told


def test_of_two_networks_in_a_foreign_file_the_first_is_taken_and_the_other_named(small, tmp_path):
    average = {name: value + 1 for name, value in small.state_dict().items()}
    path = saved(
        {"state_dict": small.state_dict(), "state_dict_ema": average}, tmp_path / "two.pth"
    )
    read, told = read_weights(path)
    assert all(torch.equal(read[name], value) for name, value in small.state_dict().items())
    assert told["weights"] == "state_dict; the file also holds state_dict_ema"


def test_the_network_answers_as_the_one_that_was_saved_with_its_own_number_of_classes(
    small, tmp_path
):
    network, shape, _ = network_with(
        "cnn-small", saved(small.state_dict(), tmp_path / "w.pth"), size=32
    )
    batch = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    assert shape == (1, 32, 32)
    assert torch.equal(network(batch), small(batch))


def test_of_two_networks_of_one_name_the_one_that_fits_counts(tmp_path):
    torch.manual_seed(0)
    # the course has a resnet18 for small images
    theirs = torchvision.models.resnet18(num_classes=4).eval()
    network, shape, _ = network_with("resnet18", saved(theirs.state_dict(), tmp_path / "w.pth"))
    assert shape == (3, 224, 224)
    batch = torch.randn(1, 3, 64, 64)
    assert torch.equal(network(batch), theirs(batch))
    ours, _ = models.build("resnet18", classes=4)
    assert network_with("resnet18", saved(ours.state_dict(), tmp_path / "o.pth"))[1] == (1, 28, 28)


def test_weights_of_another_network_are_refused_with_the_names_that_differ(small, tmp_path):
    with pytest.raises(
        LabError, match="holds the weights of another network than cnn-large"
    ) as caught:
        network_with("cnn-large", saved(small.state_dict(), tmp_path / "w.pth"))
    assert "0.0.weight (48, 1, 3, 3)" in caught.value.expected
    assert "0.0.weight (4, 1, 3, 3)" in caught.value.found
    assert "module:function" in caught.value.fix


def test_a_file_with_a_single_tensor_holds_weights_of_another_network(tmp_path):
    file = saved({"weight": torch.ones(4, 3)}, tmp_path / "w.pth")
    with pytest.raises(LabError, match="holds the weights of another network than cnn-large"):
        network_with("cnn-large", file)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (nn.Linear(2, 2), "cannot be read as weights"),
        ({"epoch": 3}, "holds no weights"),
        (b"text", "cannot be read"),
    ],
)
def test_what_is_no_file_of_weights_is_refused_and_its_code_is_not_run(content, part, tmp_path):
    path = tmp_path / "w.pth"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(LabError, match=part):
        read_weights(path)


CONFIG = {
    "input_size": (3, 160, 160),
    "mean": (0.485, 0.456, 0.406),
    "std": [0.5, 0.25, 0.125],
    "crop_pct": 0.9,
}
TOLD = {"mean": "0.485,0.456,0.406", "std": "0.5,0.25,0.125", "size": "160"}
OPTIONS = argparse.Namespace(
    batch_size=32, img_size=160, mean=[0.485, 0.456, 0.406], std=(0.5, 0.25, 0.125)
)


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"pretrained_cfg": CONFIG}, TOLD),
        ({"args": OPTIONS}, TOLD),
        ({"mean": 0.5, "std": [0.25]}, {"mean": "0.5", "std": "0.25"}),
        ({"epoch": 3, "best_mean": 0.7, "sizes": 8}, {}),
    ],
    ids=[
        "timm's pretrained_cfg",
        "options of a training script",
        "numbers beside the weights",
        "none",
    ],
)
def test_how_pictures_were_scaled_is_read_from_what_stands_beside_the_weights(
    about, told, small, tmp_path
):
    state = small.state_dict()
    assert read_weights(saved({"state_dict": state, **about}, tmp_path / "w.pth"))[1] == told
    if about.get("args") is None:  # the metadata of safetensors is text
        texts = {key: json.dumps(value) for key, value in about.items()}
        save_file(state, tmp_path / "w.safetensors", metadata=texts)
        assert read_weights(tmp_path / "w.safetensors")[1] == told


OF_255 = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}


@pytest.mark.parametrize(
    ("about", "mean", "std"),
    [
        ({"meta": {"cfg": OF_255}}, "0.485,0.456,0.406", "0.229,0.224,0.225"),
        # of the pixels of Caffe: the same unit, whatever its std alone looks like
        ({"mean": [103.53, 116.28, 123.675], "std": [1, 1, 1]}, "0.406,0.456,0.485", "0.00392157,"),
        ({"mean": 0, "std": 255.0}, "0", "1"),
    ],
    ids=["mmdetection", "caffe", "division by 255"],
)
def test_a_mean_of_pixels_up_to_255_becomes_one_of_pixels_up_to_1_and_it_is_said(
    about, mean, std, small, tmp_path
):
    told = read_weights(saved({"state_dict": small.state_dict(), **about}, tmp_path / "w.pth"))[1]
    assert told["mean"] == mean
    assert told["std"].startswith(std)
    assert told["scaled"] == "from pixels up to 255"


def test_a_file_that_notes_a_mean_of_pixels_up_to_255_is_quantized_with_one_up_to_1(
    small, tmp_path
):
    notes = {"mean": "72.9", "std": "90.0"}
    path = export_to_onnx(small, torch.randn(2, 1, 28, 28), tmp_path / "n.onnx", notes=notes)
    found = images_for(onnx.load(path), "fashion-mnist", 64)
    assert found.source.endswith("the file notes (28 pixels, mean 0.285882, std 0.352941)")
    with pytest.raises(LabError, match="divide numbers for pixels up to 255"):
        images_for(onnx.load(path), "fashion-mnist", 64, mean="72.9")


def test_a_checkpoint_with_an_average_of_others_says_which_of_the_two_was_taken(small, tmp_path):
    state = small.state_dict()
    average = {name: tensor * 0.5 for name, tensor in state.items()}
    for key, content in {"ema": average, "ema.module": {"module": average}}.items():
        path = saved({"model": state, "ema": content if "." in key else average}, tmp_path / "w.pt")
        found, told = read_weights(path)
        assert all(torch.equal(found[name], state[name]) for name in state)
        assert told["weights"] == f"model; the file also holds {key}"


def test_statistics_of_the_network_itself_are_not_taken_for_those_of_pictures(tmp_path):
    norm = nn.BatchNorm2d(3)
    norm.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3]))
    assert read_weights(saved(norm.state_dict(), tmp_path / "w.pth"))[1] == {}


def test_the_exported_file_says_how_its_pictures_are_to_be_scaled(small, tmp_path):
    path = saved(
        {"model": small.state_dict(), "mean": 0.25, "std": 0.5, "img_size": 32}, tmp_path / "w.pth"
    )
    done = CliRunner().invoke(
        cli.app, ["export", "cnn-small", "--weights", str(path), "--out", str(tmp_path / "n.onnx")]
    )
    assert "pictures: 32 pixels; w.pth says mean 0.25, std 0.5" in done.output
    model = onnx.load(tmp_path / "n.onnx")
    assert model.graph.input[0].type.tensor_type.shape.dim[2].dim_value == 32
    images = load("fashion-mnist", "train", limit=64).images.numpy() / 255
    found = next(iter(images_for(model, "fashion-mnist", 64).batches))
    assert found.shape == (32, 1, 32, 32)
    assert float(found.mean()) == pytest.approx((images.mean() - 0.25) / 0.5, abs=0.05)
    assert images_for(model, "fashion-mnist", 64).source.endswith(
        "the file notes (32 pixels, mean 0.25, std 0.5)"
    )
    assert (
        "as typed (32 pixels, mean 0.5, std 0.5)"
        in images_for(model, "fashion-mnist", 64, mean=(0.5,)).source
    )


def published(folder, digest):
    """What torchvision says of weights that it publishes; they lie in a folder of this machine."""

    class Weights(torchvision.models.WeightsEnum):
        IMAGENET1K_V1 = torchvision.models._api.Weights(
            url=(folder / f"squeezenet-{digest}.pth").as_uri(),
            transforms=partial(ImageClassification, crop_size=224),
            meta={"num_params": 1, "_metrics": {}},
        )
        DEFAULT = IMAGENET1K_V1

    return lambda name: Weights


def test_published_weights_are_fetched_when_asked_for_and_compared_with_their_hash(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    torch.manual_seed(0)
    network = torchvision.models.squeezenet1_1(num_classes=3).eval()
    path = saved(network.state_dict(), tmp_path / "weights.pth")
    digest = sha256(path)[:8]
    path.rename(tmp_path / f"squeezenet-{digest}.pth")
    monkeypatch.setattr(torchvision.models, "get_model_weights", published(tmp_path, digest))
    found, shape, notes = network_with("squeezenet1_1", "DEFAULT")
    batch = torch.randn(1, 3, 64, 64)
    assert torch.equal(found(batch), network(batch))
    assert shape == (3, 224, 224)
    assert notes["mean"] == "0.485,0.456,0.406"
    (tmp_path / f"squeezenet-{digest}.pth").rename(tmp_path / "squeezenet-00000000.pth")
    # another content; nobody answers
    for wrong, said in (("00000000", "invalid hash"), (digest, "squeezenet")):
        monkeypatch.setattr(torchvision.models, "get_model_weights", published(tmp_path, wrong))
        monkeypatch.setenv("TORCH_HOME", str(tmp_path / wrong))
        with pytest.raises(LabError, match="cannot be fetched") as caught:
            network_with("squeezenet1_1", "DEFAULT")
        assert said in str(caught.value)
        assert "labkit export squeezenet1_1 --weights FILE" in caught.value.fix


def test_an_unknown_name_is_refused_with_the_way_to_bring_a_network_of_ones_own(small, tmp_path):
    path = saved(small.state_dict(), tmp_path / "w.pth")
    with pytest.raises(LabError, match="my_file:my_function"):
        network_with("nothing", path)
    with pytest.raises(LabError, match="no_such_file:net did not return a network"):
        network_with("no_such_file:net", path)


def test_the_command_exports_a_network_of_ones_own_and_says_that_its_code_runs(
    tmp_path, monkeypatch
):
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n\n\ndef tiny():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), "
        "nn.Linear(4, 5))\n"
    )
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    )
    saved(network.state_dict(), tmp_path / "mine.pth")
    done = CliRunner().invoke(
        cli.app, ["export", "my_nets:tiny", "--weights", "mine.pth", "--size", "20"]
    )
    assert done.exit_code == 0, done.output
    assert "Running your code: my_nets:tiny" in done.output
    assert "same answer 100.00% of 10" in done.output
    assert (tmp_path / "mine.onnx").is_file()
