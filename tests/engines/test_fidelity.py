"""An INT8 file is compared with the network, and an engine with the file, before a number is believed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from labkit import cli, engines, ledger
from labkit.data import load
from labkit.engines import fidelity
from labkit.engines.bench import bench
from labkit.engines.served import Served
from labkit.errors import LabError
from labkit.export import to_onnx
from labkit.measure import Plan
from labkit.quantize import static


@pytest.fixture(scope="module")
def files(exported, tmp_path_factory):
    """(fp32, int8) files of a small network."""
    source, folder = exported("cnn-small"), tmp_path_factory.mktemp("fidelity")
    train = load("fashion-mnist", "train", limit=200)
    return source, static(source, folder / "int8.onnx", train, recipe="onnxruntime")


def test_decibels_and_equal_answers_by_hand():
    found = fidelity.between(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.9, 0.0], [1.0, 0.0]]))
    assert found.db == pytest.approx(10 * np.log10(2 / 2.01))
    assert found.same == 0.5
    assert fidelity.between(np.eye(2), np.eye(2)) == fidelity.Fidelity(float("inf"), 1.0)


def test_the_file_and_each_engine_are_compared_or_say_why_not(files):
    images = next(iter(load("fashion-mnist", "test", limit=64).batches(64)))[0].numpy()
    found = {who: (alike, meant) for who, alike, meant in fidelity.quantized(*files, images)}
    assert list(found) == ["the file as written", *engines.names(runs="onnx", precision="int8")]
    assert found["the file as written"][0].db > 20
    alike, meant = found["onnxruntime"]
    assert alike.db > 20
    assert meant.db > fidelity.ENGINE_DB
    if not torch.cuda.is_available():
        assert found["tensorrt"][0] is None
        assert "TensorRT" in found["tensorrt"][1]


def test_the_row_of_an_int8_engine_says_how_well_it_answers_what_the_file_means(files):
    (row,) = bench(files[1], [2], engine="onnxruntime", plan=Plan(seconds=0.2))
    assert row.p50_ms > 0
    assert row.sqnr_db > fidelity.ENGINE_DB
    assert ledger.load("latencies")["sqnr_db"].tolist() == [row.sqnr_db]
    assert "answers as the file means" in row.summary()


def test_an_engine_that_answers_something_else_gets_a_reason_and_no_number(files, monkeypatch):
    right = engines.load

    def wrong(*args, **settings):
        served = right(*args, **settings)
        return replace(served, run=lambda *batch: torch.clamp(served.run(*batch), max=0.01))

    monkeypatch.setattr(engines, "load", wrong)
    (row,) = bench(files[1], [8], engine="onnxruntime", plan=Plan(seconds=0.2))
    assert row.p50_ms is None
    assert row.sqnr_db < fidelity.ENGINE_DB
    assert "something else than the file means" in row.reason
    images = np.random.default_rng(0).random((8, 1, 28, 28), np.float32)
    found = {who: meant for who, _, meant in fidelity.quantized(*files, images)}
    assert found["onnxruntime"].db < fidelity.ENGINE_DB


def test_a_float_engine_is_not_compared(files):
    (row,) = bench(files[0], [1], engine="onnxruntime", plan=Plan(seconds=0.2))
    assert row.sqnr_db is None
    assert isinstance(engines.load("onnxruntime", files[0], torch.zeros(1, 1, 28, 28)), Served)


def quantize(files, out, *words, data="fashion-mnist"):
    words = ["quantize", files[0], out, "--data", data, "--count", 64, "--recipe", "onnxruntime", *words]
    return CliRunner().invoke(cli.app, list(map(str, words)))


def test_the_command_tells_what_the_file_and_each_engine_keep(files, tmp_path):
    done = quantize(files, tmp_path / "q.onnx")
    assert done.exit_code == 0, done.output
    assert "256 examples of fashion-mnist test" in done.output
    for who in ("the file as written", *engines.names(runs="onnx", precision="int8")):
        assert f"    {who}: " in done.output


def test_a_file_below_the_limit_is_an_error_and_is_kept_under_another_name(files, tmp_path):
    done = quantize(files, tmp_path / "q.onnx", "--min-sqnr", 90)
    assert isinstance(done.exception, LabError)
    assert "at least 90 dB" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["q.rejected.onnx"]


def test_a_folder_without_test_images_still_quantizes_and_it_is_said_that_nothing_was_compared(files, tmp_path):
    images = load("fashion-mnist", "train", limit=80).images
    for place, pixels in enumerate(images.squeeze().numpy()):
        folder = tmp_path / "mine" / f"class{place % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{place}.png")
    source = to_onnx(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten()), torch.randn(2, 3, 28, 28),
                     tmp_path / "colour.onnx")  # fmt: skip
    done = quantize((source,), tmp_path / "q.onnx", data=f"folder:{tmp_path / 'mine'}")
    assert done.exit_code == 0, done.output
    assert "Not compared with fp32" in done.output
    assert (tmp_path / "q.onnx").is_file()
