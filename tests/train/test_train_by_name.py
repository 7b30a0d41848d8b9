"""`labkit train`: from names to a checkpoint, a profile and an accuracy."""

import json
import pstats
import re
import subprocess
import sys
from dataclasses import fields

import numpy
import onnxruntime
import pytest
import torch
from sample_data import class_folders
from typer.testing import CliRunner

from labkit import cli
from labkit.errors import LabError
from labkit.files import root
from labkit.models import build
from labkit.train import TrainConfig, accuracy, load_checkpoint, restored
from labkit.train.by_name import training

SMALL = ("--model", "cnn-small", "--limit", "400", "--batch-size", "100")


def call(*words, expect=0):
    result = CliRunner().invoke(cli.app, ["train", *SMALL, *words])
    assert result.exit_code == expect, result.output
    return result.output


def files(folder):
    return {path.suffix for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_published_options_train_and_leave_checkpoint_profile_and_accuracy(own_artifacts):
    options = (
        "--cudnn-autotuner",
        "--use-torchscript",
        "--num-workers",
        "0",
        "--pin-memory",
        "--n-epochs",
        "2",
    )
    output = call(*options, "--profile", "cprofile")
    assert "8 steps" in output
    assert "--pin-memory has no effect here" in output or torch.cuda.is_available()
    (sidecar,) = own_artifacts.glob("checkpoints/*.pt")
    state, facts = load_checkpoint(sidecar)
    network, _ = build("cnn-small", classes=10)
    network.load_state_dict(state["model"])
    told = float(output.split("Validation accuracy: ")[1].split()[0])
    test = training("cnn-small", "fashion-mnist", TrainConfig(batch=100), limit=400).test
    assert accuracy(network, test, device="cpu") == pytest.approx(told, abs=1e-4)
    assert facts["history"]["accuracy"][-1] == pytest.approx(told, abs=1e-4)


@pytest.mark.slow
def test_the_profile_opens_in_pstats(own_artifacts):
    # In a process of its own: from Python 3.12 on, what an earlier profile of the same process saw
    # may be left out.
    command = [sys.executable, "-m", "labkit.cli", "train", *SMALL, "--profile", "cprofile"]
    subprocess.run(command, cwd=root(), check=True, capture_output=True)
    (file,) = own_artifacts.glob("profiles/*.prof")
    stats = pstats.Stats(str(file))
    names = {name for _, _, name in stats.stats}
    # With Python 3.13 torch.save makes cProfile forget what has not returned by then, such as
    # `fit`.
    assert {"epoch", "backward"} <= names
    assert "fit" in names or sys.version_info >= (3, 13)


def test_the_torch_profile_is_a_trace_of_steps(own_artifacts):
    call("--profile", "torch")
    (file,) = own_artifacts.glob("profiles/*.json")
    names = {event.get("name") for event in json.loads(file.read_text())["traceEvents"]}
    assert "aten::convolution" in names


@pytest.mark.slow
def test_without_a_word_a_profile_is_written_and_with_none_it_is_not(own_artifacts):
    assert "Profile file: " in call()
    (file,) = own_artifacts.glob("profiles/*")
    assert pstats.Stats(str(file)).total_calls > 100
    file.unlink()
    assert "Profile file: " not in call("--profile", "none")
    assert list(own_artifacts.glob("profiles/*")) == []


def test_a_dry_run_takes_one_step_and_writes_nothing(own_artifacts):
    assert "nothing was written" in call("--dry-run", "--epochs", "50")
    assert files(own_artifacts) == set()


@pytest.mark.slow
def test_without_resume_a_training_starts_over_and_with_it_goes_on(own_artifacts):
    first, again, resumed = call(), call(), call("--resume")
    assert "4 steps" in first
    assert (
        first.split("Validation")[1]
        == again.split("Validation")[1]
        == resumed.split("Validation")[1]
    )
    assert "Nothing was left to train" in resumed
    assert "Nothing" not in first + again


@pytest.mark.parametrize("schedule", ["constant", "onecycle"])
def test_a_training_is_lengthened_and_what_follows_its_length_is_said(schedule, own_artifacts):
    words = ("--schedule", schedule, "--optimizer", "muon", "--profile", "none")
    call(*words, "--epochs", "2")
    longer = call(*words, "--epochs", "3", "--resume")
    assert "12 steps" in longer
    assert ("is now that of 3 epochs from the start" in longer) == (schedule == "constant")
    assert ("This is not the training of 3 epochs from the start" in longer) == (
        schedule == "onecycle"
    )
    if schedule == "constant":
        whole = call(*words, "--epochs", "3", "--name", "whole")
        assert longer.split("Validation")[1] == whole.split("Validation")[1]


def test_a_network_with_batch_norm_is_told_what_it_sees_of_a_batch_in_parts(own_artifacts):
    assert "25 images at a time" in call("--accumulate", "4", "--dry-run")
    assert "at a time" not in call("--accumulate", "4", "--ghost-size", "25", "--dry-run")
    assert "at a time" not in call("--dry-run")


AVERAGING = [("--ema", "0.7"), ("--optimizer", "schedule_free", "--learning-rate", "0.1")]


@pytest.mark.parametrize("words", AVERAGING, ids=["ema", "schedule-free"])
def test_the_program_of_the_page_reads_the_network_whose_accuracy_was_printed_and_export_ships_it(
    words, own_artifacts, tmp_path, monkeypatch
):
    output = call(*words, "--schedule", "constant", "--epochs", "3", "--profile", "none")
    printed = float(output.split("Validation accuracy: ")[1].split()[0])
    test = training("cnn-small", "fashion-mnist", TrainConfig(batch=100), limit=400).test
    monkeypatch.chdir(own_artifacts / "checkpoints")

    # the lines of docs/commands.md
    page = (root() / "docs" / "commands.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.+?)```", page, flags=re.DOTALL)
    found = {}
    exec(program, found)  # of this repository
    network, _ = build("cnn-small", classes=10)
    network.load_state_dict(found["weights"])
    assert accuracy(network, test, device="cpu") == pytest.approx(printed, abs=1e-4)
    assert found["accuracy"][-1] == pytest.approx(printed, abs=1e-4)
    assert found["settings"]["schedule"] == "constant"

    # the file that is shipped
    file = str(tmp_path / "net.onnx")
    done = CliRunner().invoke(cli.app, ["export", "fashion-mnist-cnn-small.pt", "--out", file])
    assert done.exit_code == 0, done.output
    session = onnxruntime.InferenceSession(file)
    (given,) = session.get_inputs()
    right = [
        session.run(None, {given.name: x.numpy()})[0].argmax(1) == y.numpy()
        for x, y in test.batches(100)
    ]
    assert numpy.concatenate(right).mean() == pytest.approx(printed, abs=1e-4)


def test_a_recipe_holds_the_options_and_what_is_typed_counts_more(own_artifacts, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'batch = 50\noptimizer = "lamb"\nlabel-smoothing = 0.1\nema = 0.9\naugment = true\n'
    )
    call("--recipe", str(recipe), "--optimizer", "lars")
    (file,) = own_artifacts.glob("checkpoints/*.pt")
    config = load_checkpoint(file)[1]["config"]
    assert {
        name: config[name]
        for name in ("batch", "optimizer", "label_smoothing", "ema", "augment", "clip")
    } == {
        "batch": 100,  # typed
        "optimizer": "lars",  # typed
        "label_smoothing": 0.1,
        "ema": 0.9,
        "augment": True,
        "clip": None,
    }


@pytest.mark.parametrize(
    ("text", "part"),
    [("epoch = 3", "'epoch'"), ("epochs = ", "cannot be read"), (None, "No such file")],
)
def test_a_recipe_that_cannot_be_followed_is_refused(tmp_path, text, part):
    recipe = tmp_path / "recipe.toml"
    if text:
        recipe.write_text(text)
    result = CliRunner().invoke(cli.app, ["train", "--recipe", str(recipe), "--dry-run"])
    assert part in str(result.exception)


def test_a_value_of_another_kind_in_a_recipe_is_named_as_the_option(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('epochs = "many"')
    result = CliRunner().invoke(cli.app, ["train", "--recipe", str(recipe), "--dry-run"])
    assert result.exit_code == 2
    assert "--epochs" in result.output


def test_every_field_of_a_config_is_an_option():
    told = CliRunner().invoke(cli.app, ["train", "--help"], env={"COLUMNS": "200"}).output
    for each in fields(TrainConfig):
        assert re.search(rf"--{each.name.replace('_', '-')}\b", told)


def test_two_trainings_of_one_network_are_kept_apart_by_their_names(own_artifacts):
    call("--name", "with-lars", "--optimizer", "lars", "--profile", "none")
    call("--profile", "none")
    kept = sorted(own_artifacts.glob("checkpoints/*.pt"))
    assert [path.name for path in kept] == [
        "fashion-mnist-cnn-small.pt",
        "fashion-mnist-cnn-small.with-lars.pt",
    ]
    assert [restored(path)[1:3] for path in kept] == [("cnn-small", "fashion-mnist")] * 2
    with pytest.raises(LabError, match="letters"):
        training("cnn-small", "fashion-mnist", TrainConfig(), name="../up")


def test_grey_images_stand_in_three_channels_and_are_brought_to_the_networks_size():
    work = training("efficientnet-lite0", "fashion-mnist", TrainConfig(batch=2), limit=20)
    images, _ = next(iter(work.train.batches(2, size=work.config.size)))
    assert images.shape == (2, 3, 224, 224)
    assert torch.allclose(images[:, 0], images[:, 2])


def test_pretrained_begins_with_published_weights_and_says_which_network_has_none():
    def stem(**settings):
        return training(
            "efficientnet-lite0", "fashion-mnist", TrainConfig(**settings), limit=20
        ).network._conv_stem

    assert torch.equal(
        stem(pretrained=True).weight, build("efficientnet-lite0")[0]._conv_stem.weight
    )
    assert not torch.equal(stem().weight, build("efficientnet-lite0")[0]._conv_stem.weight)
    with pytest.raises(LabError, match="choose efficientnet-lite0"):
        training("cnn-small", "fashion-mnist", TrainConfig(pretrained=True), limit=20)


def test_the_head_of_a_pretrained_network_is_trained_from_the_command_line(own_artifacts):
    words = (
        "--pretrained",
        "--head-only",
        "--optimizer",
        "adam",
        "--size",
        "32",
        "--profile",
        "none",
    )
    call("--model", "efficientnet-lite0", "--limit", "40", "--batch-size", "20", *words)
    (file,) = own_artifacts.glob("checkpoints/*.pt")
    learned, known = load_checkpoint(file)[0]["model"], build("efficientnet-lite0")[0].state_dict()
    assert {name for name in known if not torch.equal(learned[name], known[name])} == {
        "_fc.weight",
        "_fc.bias",
    }


def test_a_network_for_small_images_takes_the_channels_and_the_size_of_the_set(tmp_path):
    for split in ("train", "test"):
        class_folders(tmp_path / "set" / split, side=32)
    work = training("cnn-small", f"folder:{tmp_path / 'set'}", TrainConfig(batch=2), limit=4)
    assert work.network[0][0].weight.shape[1] == 3
    assert work.config.size == 32
    _, checkpoint, _ = work.run()
    assert restored(checkpoint)[-1] == (3, 32, 32)


def test_pictures_of_several_sizes_are_brought_to_the_size_that_is_asked_for(tmp_path):
    for split in ("train", "test"):
        class_folders(tmp_path / "set" / split, side=32)
        class_folders(tmp_path / "set" / split, side=40, kind="jpg")
    with pytest.raises(LabError, match="--size 64"):
        training("cnn-small", f"folder:{tmp_path / 'set'}", TrainConfig(batch=2))
    work = training("cnn-small", f"folder:{tmp_path / 'set'}", TrainConfig(batch=2, size=24))
    assert work.train.images.shape[2:] == (24, 24)


@pytest.mark.slow
def test_augmented_images_train_another_network_and_the_checkpoint_says_so(own_artifacts):
    weights = []
    for words in ((), ("--augment",)):
        call(*words)
        (sidecar,) = own_artifacts.glob("checkpoints/*.pt")
        state, facts = load_checkpoint(sidecar)
        assert facts["config"]["augment"] is bool(words)
        weights.append(next(iter(state["model"].values())))
    assert not torch.equal(*weights)


@pytest.mark.slow
def test_another_size_can_be_asked_for(own_artifacts):
    assert "8 steps" in call("--size", "20", "--epochs", "2")
    (sidecar,) = own_artifacts.glob("checkpoints/*.pt")
    assert restored(sidecar)[-1] == (1, 20, 20)
    work = training("resnet50", "fashion-mnist", TrainConfig(batch=2, size=64), limit=20)
    assert work.config.size == 64


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--model", "encoder-small"), "cannot be trained on fashion-mnist"),
        (("--model", "nothing"), "There is no network"),
        (("--amp", "int4"), "bf16 or fp16"),
        (("--num-workers", "-1"), "workers is -1"),
        (("--batch-size", "0"), "batch is 0"),
        (("--epochs", "0"), "epochs is 0"),
        (("--size", "1"), "size is 1"),
        (("--profile", "gprof"), "cprofile or torch"),
        (("--batch-size", "4000"), "fewer than one batch"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_reason(words, part):
    result = CliRunner().invoke(cli.app, ["train", *SMALL, *words])
    assert isinstance(result.exception, LabError)
    assert part in str(result.exception)
    assert "TrainConfig" not in str(result.exception)
