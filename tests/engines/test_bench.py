"""`labkit bench`: rows in the ledger under a run of their own, with numbers or with a reason."""

import time
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from typer.testing import CliRunner

from labkit import cli, engines, ledger
from labkit.engines.bench import bench
from labkit.engines.misfit import misfits
from labkit.engines.opening import opened
from labkit.engines.racing import race
from labkit.errors import LabError, MeasureError, Unavailable
from labkit.export import to_onnx
from labkit.measure import Plan


def test_each_batch_size_becomes_a_row_of_one_run():
    rows = list(bench(opened("cnn-small"), [1, 4], plan=Plan(seconds=0.2)))
    stored = ledger.load("latencies")
    assert stored["batch"].tolist() == [1, 4]
    assert stored["p50_ms"].tolist() == [row.p50_ms for row in rows]
    assert set(stored["name"]) == {"cnn-small eager fp32"}
    assert set(stored["run_key"]) == set(ledger.load("runs")["run_key"])


def test_the_time_that_an_engine_takes_to_load_stands_in_its_row(monkeypatch):
    whole = engines.load

    def slow(*args, **settings):
        time.sleep(0.3)
        return whole(*args, **settings)

    monkeypatch.setattr(engines, "load", slow)
    (row,) = bench(opened("cnn-small"), [1], plan=Plan(seconds=0.1))
    assert row.load_ms >= 300
    assert "loaded in" in row.summary()


def test_an_engine_that_is_missing_gives_a_reason_and_no_number(monkeypatch):
    def fail(*args, **settings):
        raise Unavailable("There is no compiler.")

    monkeypatch.setattr(engines, "load", fail)
    (row,) = bench(opened("cnn-small"), [1])
    assert (row.p50_ms, row.reason) == (None, "There is no compiler.")
    assert ledger.load("latencies")["p50_ms"].isna().all()


def test_the_command_prints_progress_and_a_line_a_batch():
    words = ["bench", "cnn-small", "--batch", "1", "--batch", "2", "--seconds", "0.2"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert "2/2 cnn-small eager, batch 2" in result.output
    assert result.output.count("\n    median ") == 2


def test_several_engines_race_beside_a_second_session_of_the_first(monkeypatch):
    loaded, load = [], engines.load
    monkeypatch.setattr(
        engines,
        "load",
        lambda name, *rest, **more: loaded.append(name) or load("eager", *rest, **more),
    )
    words = ["bench", "cnn-small", "--engine", "eager", "--engine", "inductor", "--seconds", "0.2"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert loaded == ["eager", "inductor", "eager", "inductor", "eager"]
    stored = ledger.load("ratios")
    assert stored["arm"].tolist() == ["inductor", "a second session"]
    assert set(stored["run_key"]) <= set(ledger.load("runs")["run_key"])
    assert "in turn, batch 1:\ninductor against eager" in result.output


def test_each_file_is_opened_once_for_its_own_rows_and_for_the_race(tmp_path, monkeypatch):
    path = to_onnx(torch.nn.Linear(12, 3), torch.randn(2, 12), tmp_path / "net.onnx")
    seen = []
    monkeypatch.setattr(
        "labkit.engines.opening.opened",
        lambda name, *rest, **more: seen.append(name) or opened(name, *rest, **more),
    )
    words = [
        "bench",
        str(path),
        "--engine",
        "onnxruntime",
        "--engine",
        "openvino",
        "--seconds",
        "0.1",
    ]
    result = CliRunner().invoke(cli.app, words)
    assert "in turn, batch 1" in result.output
    assert seen == [str(path)]


def test_files_of_one_network_race_and_files_of_two_are_refused(tmp_path):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    model = onnx.load(to_onnx(network, torch.randn(2, 3, 2, 2), tmp_path / "net.onnx"))
    onnx.save(model, tmp_path / "same.onnx")
    weight = next(each for each in model.graph.initializer if len(each.dims) == 2)
    weight.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weight), weight.name))
    onnx.save(model, tmp_path / "other.onnx")
    first, same, other = (
        (opened(tmp_path / name), "onnxruntime") for name in ("net.onnx", "same.onnx", "other.onnx")
    )
    (found,) = race([first, same], [1], plan=Plan(seconds=0.2))
    assert "same onnxruntime against net onnxruntime" in found.summary()
    assert [row.arm for row in found.rows] == ["same onnxruntime", "a second session"]
    with pytest.raises(
        MeasureError, match=r"other onnxruntime(?s:.*)are these files of one network"
    ):
        list(race([first, other], [1], plan=Plan(seconds=0.2)))


def test_two_files_of_one_name_in_two_folders_race_under_their_paths(tmp_path):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    networks = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        path = to_onnx(network, torch.randn(2, 3, 2, 2), tmp_path / folder / "net.onnx")
        networks.append(opened(str(path)))
    (comparison,) = race(
        [(network, "onnxruntime") for network in networks], [1], plan=Plan(seconds=0.2)
    )
    arms = [row.arm for row in comparison.rows]
    assert arms == [f"{tmp_path / 'second' / 'net.onnx'} onnxruntime", "a second session"]
    assert comparison.rows[0].baseline == f"{tmp_path / 'first' / 'net.onnx'} onnxruntime"


def test_an_engine_that_is_missing_takes_no_part_in_the_race(monkeypatch):
    def load(name, *rest, **more):
        raise Unavailable("There is no compiler.")

    monkeypatch.setattr(engines, "load", load)
    result = CliRunner().invoke(
        cli.app, ["bench", "cnn-small", "--engine", "eager", "--engine", "inductor"]
    )
    assert result.exit_code == 0
    assert "in turn" not in result.output


@pytest.mark.parametrize(
    ("words", "known"), [(["nothing"], "cnn-small"), (["cnn-small", "--engine", "no"], "eager")]
)
def test_what_does_not_exist_is_refused_with_what_there_is_before_any_progress_is_printed(
    words, known
):
    result = CliRunner().invoke(cli.app, ["bench", *words])
    assert isinstance(result.exception, LabError)
    assert known in str(result.exception)
    assert "1/1" not in result.output


@pytest.mark.parametrize(
    "words", [["--batch", "0"], ["--batch", "99999999999"], ["--threads", "0"]]
)
def test_impossible_numbers_are_refused_at_the_command_line(words):
    result = CliRunner().invoke(cli.app, ["bench", "cnn-small", *words])
    assert result.exit_code == 2
    assert f"Invalid value for '{words[0]}'" in result.output


def test_with_data_the_inputs_of_a_file_are_its_test_pictures_again_and_again_where_there_are_few(
    tmp_path, monkeypatch
):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 3))
    path = to_onnx(network, torch.randn(2, 1, 28, 28), tmp_path / "net.onnx")
    pictures = np.random.default_rng(0).random((3, 1, 28, 28), dtype=np.float32)
    asked = []

    def few(name, data, **settings):
        asked.append((name, data, settings))
        return SimpleNamespace(batches=[pictures[:2], pictures[2:]], description="photos")

    monkeypatch.setattr("labkit.engines.opening.comparison_images", few)
    [inputs] = opened(str(path), "photos", size=28, mean="0.5", std=None).inputs(5)
    assert asked == [(str(path), "photos", {"size": 28, "mean": "0.5", "std": None})]
    assert torch.equal(inputs, torch.from_numpy(pictures[[0, 1, 2, 0, 1]]))


def test_data_is_refused_for_a_network_by_its_name_and_its_scale_without_data():
    with pytest.raises(LabError, match="measured on random numbers"):
        opened("cnn-small", "fashion-mnist")
    done = CliRunner().invoke(cli.app, ["bench", "cnn-small", "--mean", "0.5"])
    assert "--mean would do nothing here" in str(done.exception)


def test_a_file_in_int8_is_told_its_recipe_by_engines_that_run_files_only(tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) {y = Relu(x)}'
    graph = onnx.parser.parse_model(text)
    onnx.helper.set_model_props(graph, {"quantized": "recipe onnxruntime"})
    assert [
        len(list(misfits(graph, name))) for name in ("onnxruntime", "openvino", "eager", "inductor")
    ] == [
        0,
        1,
        0,
        0,
    ]
