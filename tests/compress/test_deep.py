"""The pipeline: every stage's file is real and smaller, the last one gives back the network that was tested."""

import copy

import pytest
import torch
from typer.testing import CliRunner

from labkit import cli, data, models
from labkit.compress import DeepRecipe, deep_compression, load, prunable, sparsity_of
from labkit.compress.magnitude import masks_of
from labkit.errors import LabError
from labkit.train import TrainConfig, accuracy, fit, save_checkpoint

RECIPE = DeepRecipe(sparsity=0.8, bits=3, epochs=2, batch=50)


pytestmark = pytest.mark.slow  # the first test that comes takes a network through all stages


@pytest.fixture(scope="module")
def images():
    return data.load("fashion-mnist", "train", limit=1000)


@pytest.fixture(scope="module")
def network(images):
    torch.manual_seed(0)
    model, _ = models.build("cnn-medium", classes=10)
    fit(model, images, TrainConfig(epochs=5, batch=50, learning_rate=0.02), device="cpu")
    return model.eval()


@pytest.fixture(scope="module")
def stages(network, images, tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("stages"), copy.deepcopy(network.state_dict())
    about = {"name": "cnn-medium", "shape": (1, 28, 28), "dataset": "fashion-mnist"}
    found = deep_compression(network, images, folder, about=about, recipe=RECIPE)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items()), "a copy is compressed"
    return found


def test_each_stage_has_a_file_that_is_smaller_than_the_one_before(stages):
    assert [stage.name for stage in stages] == ["fp32", "pruned", "shared", "folded", "huffman"]
    sizes = [stage.bytes for stage in stages]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 5
    assert sizes[0] > 15 * sizes[-1]  # 72,000 weights: the tables count here


def test_each_file_holds_the_network_of_its_stage(stages):
    for stage in stages[1:]:
        found = load(stage.path).network.state_dict()
        assert all(torch.equal(found[key], value) for key, value in stage.network.state_dict().items()), stage.name


def test_each_stage_has_done_its_work_and_undone_none(stages):
    _, pruned, shared, folded, huffman = (stage.network for stage in stages)
    assert sparsity_of(pruned) == pytest.approx(0.8, abs=1e-4)
    for model in (shared, folded, huffman):
        masks = masks_of(pruned)
        assert all(torch.equal(mask, masks[name]) for name, mask in masks_of(model).items())
        assert all(len(weight[weight != 0].unique()) <= 8 for weight in prunable(model).values())


def test_the_network_has_not_forgotten(stages, network, images):
    test = data.load("fashion-mnist", "test", limit=1000)
    before, after = (accuracy(each, test, device="cpu") for each in (network, stages[-1].network))
    assert before > 0.7
    assert after > before - 0.05


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def test_the_command_compresses_a_checkpoint_and_export_reads_what_it_wrote(network, tmp_path):
    checkpoint = save_checkpoint(tmp_path / "fashion-mnist-cnn-medium.pt", {"model": network.state_dict()}, {})
    out = tmp_path / "net.small"
    done = call("compress", checkpoint, out, "--limit", 500, "--sparsity", 0.7, "--bits", 3, "--epochs", 1)
    assert done.exit_code == 0, done.output
    assert "huffman" in done.output and "above Shannon's bound" in done.output
    assert "after (500 test images)" in done.output
    found = load(out)
    assert (found.name, found.dataset, found.shape) == ("cnn-medium", "fashion-mnist", (1, 28, 28))
    assert sparsity_of(found.network) == pytest.approx(0.7, abs=1e-4)
    done = call("export", out, "--out", tmp_path / "net.onnx")
    assert done.exit_code == 0, done.output
    assert "on fashion-mnist test images: " in done.output


def test_the_command_without_options_compresses_as_the_recipe_says(monkeypatch, tmp_path):
    asked = []

    def noted(source, out, recipe, **more):
        asked.append(recipe)
        raise LabError("Seen.", fix="")

    monkeypatch.setattr("labkit.compress.compress_by_name", noted)
    CliRunner().invoke(cli.app, ["compress", "vgg-medium", str(tmp_path / "net.small")])
    assert asked == [DeepRecipe()]


def test_what_is_no_checkpoint_is_said_in_words(tmp_path):
    for source in (tmp_path / "fashion-mnist-cnn-medium.pt", "no-such-network"):
        done = call("compress", source, tmp_path / "x.small")
        assert isinstance(done.exception, LabError)
    assert not (tmp_path / "x.small").exists()
