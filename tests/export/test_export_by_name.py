"""From a name or a checkpoint to an ONNX file and its measurement: what `labkit export` and
`labkit bench` do.
"""

import pytest
import torch
from typer.testing import CliRunner

from labkit import cli, export, ledger, models, train
from labkit.engines.deployment import export_by_name
from labkit.errors import LabError
from labkit.train import CheckpointError, save_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(1)
    network, _ = models.build("cnn-small", classes=10)
    return save_checkpoint(
        tmp_path / "fashion-mnist-cnn-small.pt", {"model": network.state_dict()}, {}
    ), network


def test_a_checkpoint_comes_back_as_the_network_it_was(checkpoint):
    path, network = checkpoint
    found, name, dataset, shape = train.restored(path)
    assert (name, dataset, shape, found.training) == (
        "cnn-small",
        "fashion-mnist",
        (1, 28, 28),
        False,
    )
    batch = models.example("cnn-small", 3)
    assert torch.equal(found(batch), network.eval()(batch))


def test_a_checkpoint_is_exported_and_compared_on_random_and_on_real_images(checkpoint, tmp_path):
    path, _, found = export_by_name(checkpoint[0], tmp_path / "net.onnx", opset=18)
    assert set(found) == {"random inputs", "fashion-mnist test images"}
    assert [parity.items for parity in found.values()] == [10, 74]
    assert all(parity.require() for parity in found.values())
    assert export.checked(path).opset_import[0].version == 18


def test_a_checkpoint_of_something_else_is_refused(checkpoint, tmp_path):
    path, _ = checkpoint
    with pytest.raises(LabError, match="which network"):
        train.restored(path.rename(path.with_name("mine.pt")))
    other = save_checkpoint(tmp_path / "x-cnn-large.pt", {"model": checkpoint[1].state_dict()}, {})
    with pytest.raises(CheckpointError, match="not of cnn-large"):
        train.restored(other)
    with pytest.raises(LabError, match="no checkpoint"):
        train.restored(tmp_path / "y-cnn-large.pt")


@pytest.mark.slow
def test_the_commands_export_a_network_and_measure_the_file(tmp_path):
    file = str(tmp_path / "net.onnx")
    done = CliRunner().invoke(cli.app, ["export", "cnn-small", "--out", file])
    assert done.exit_code == 0, done.output
    assert "net.onnx" in done.output and "same answer 100.00% of 10" in done.output
    done = CliRunner().invoke(
        cli.app,
        [
            "bench",
            file,
            "--engine",
            "onnxruntime",
            "--threads",
            "1",
            "--batch",
            "2",
            "--seconds",
            "0.2",
        ],
    )
    assert done.exit_code == 0, done.output
    row = ledger.load("latencies").iloc[0]
    assert (row["name"], row["batch"], row["threads"], row["device"]) == (
        "net.onnx onnxruntime fp32",
        2,
        1,
        "cpu",
    )
    assert row["p50_ms"] > 0


def test_a_hostile_file_is_not_measured(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"bad")
    done = CliRunner().invoke(
        cli.app, ["bench", str(tmp_path / "bad.onnx"), "--engine", "onnxruntime"]
    )
    assert isinstance(done.exception, LabError) and "refused" in done.exception.what
