"""The network that comes trained: its weights are those of the manifest, and as good as it says."""

import json
import shutil

import pytest
import torch

from labkit import models
from labkit.data import load
from labkit.errors import DataError, LabError
from labkit.files import root, sha256
from labkit.measure import multiply_adds
from labkit.models.trained import _manifest_of, trained
from labkit.train import accuracy

FOLDER = root() / "data" / "trained"


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The folder of a copy that may be damaged."""
    shutil.copytree(FOLDER, tmp_path / "data" / "trained")
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    return tmp_path / "data" / "trained"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("vgg-medium", 92), ("convnext-mini", 89)])
def test_its_accuracy_is_what_the_manifest_says_and_not_below_what_lessons_need(name, least):
    network, manifest = trained(name)
    assert not network.training
    test = load("fashion-mnist", "test")
    assert len(test) == manifest["images"] == 10_000
    network.to(memory_format=torch.channels_last)  # in half the time
    found = 100 * accuracy(network, test, device="cpu", batch=100)
    assert found >= least
    # processors round differently
    assert found == pytest.approx(100 * manifest["accuracy"], abs=0.05)


def test_it_is_small_enough_to_be_fetched_and_trained_on_a_laptop():
    network, manifest = trained()
    file = FOLDER / manifest["file"]
    assert sha256(file) == manifest["sha256"]
    assert file.stat().st_size < 6_500_000
    assert 1e6 <= sum(weight.numel() for weight in network.parameters()) <= 2.4e6
    assert multiply_adds(network, models.example("vgg-medium", 1)) < 31e6


def test_the_manifest_says_how_to_train_it_again():
    manifest = _manifest_of("vgg-medium")
    assert manifest["command"].startswith("labkit train --model vgg-medium")
    assert f"--epochs {manifest['epochs']}" in manifest["command"]
    assert set(manifest) >= {"commit", "torch", "accuracy", "sha256", "cpu"}
    assert len(manifest["commit"]) == 40


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_the_file_of_each_trained_network_is_the_one_of_its_manifest(name):
    manifest = _manifest_of(name)
    assert sha256(FOLDER / manifest["file"]) == manifest["sha256"]
    weights = sum(weight.numel() for weight in trained(name)[0].parameters())
    assert weights == manifest["weights"]


def test_a_trained_network_comes_in_eval_mode():
    network, _ = trained()
    assert not any(layer.training for layer in network.modules())


def test_each_call_gives_a_network_of_its_own():
    first, second = trained()[0], trained()[0]
    with torch.no_grad():
        next(first.parameters()).zero_()
    assert next(second.parameters()).abs().sum() > 0


@pytest.mark.parametrize("place", [0, 5000, -1])
def test_a_flipped_bit_in_the_weights_is_noticed(copied, place):
    path = copied / _manifest_of("vgg-medium")["file"]
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="not the published one"):
        trained()


def test_missing_weights_are_named_with_the_command_that_trains_them(copied):
    (copied / _manifest_of("vgg-medium")["file"]).unlink()
    with pytest.raises(DataError, match="labkit train --model vgg-medium"):
        trained()


def test_a_network_that_does_not_come_trained_is_refused_with_those_that_do(copied):
    with pytest.raises(LabError, match="vgg-medium"):
        trained("cnn-large")
    (copied / "cnn-large.json").write_text(
        json.dumps({**_manifest_of("vgg-medium"), "classes": 10})
    )
    with pytest.raises(RuntimeError):  # another network's weights
        trained("cnn-large")


@pytest.mark.parametrize("name, least", [("decoder-medium", 0.5), ("decoder-small", 0.4)])
def test_the_decoders_have_learned_the_text_of_the_course(name, least):
    """Not as exactly as the manifest says: the text changes with the lessons."""
    decoder, manifest = trained(name)
    assert manifest["command"].startswith(f"labkit train --model {name} --dataset course-text")
    test = load("course-text", "test").subset(32)
    assert accuracy(decoder, test, device="cpu", batch=32) > least
    assert sum(each.stat().st_size for each in FOLDER.glob("decoder-*")) < 3e6
