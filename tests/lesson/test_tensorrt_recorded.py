"""What lesson 17 says about recording a GPU's results, tried without one: the race, the file,
and the table of it.
"""

import time
from types import SimpleNamespace

import pytest
import torch

from labkit import device, ledger
from labkit.ledger.rows import Completion
from labkit.lesson import start
from labkit.lesson.support import load_support

NAME = "17_tensorrt_deployment"


def load(engine, path, example, *, precision):
    """An engine whose plans differ in time alone."""
    seconds = {"fp16": 1e-4, "int8": 4e-4, "fp32": 2e-4}[precision]

    def call(x):
        time.sleep(seconds)
        return x.mean((2, 3))

    return call


@pytest.fixture
def images(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "to", lambda self, place: self)  # there is no "cuda" here
    return torch.rand(64, 2, 1, 1)


def test_a_race_of_the_lesson_is_recorded_and_shown_by_the_lesson(images, tmp_path, monkeypatch):
    monkeypatch.setattr(device, "commit", lambda: "abc")
    lab = start(NAME, "quick", 0)
    support = load_support("tensorrt_deployment")
    monkeypatch.setattr(support, "engines", SimpleNamespace(load=load))
    files = dict.fromkeys(("fp32", "fp16", "int8"), "file.onnx")
    board = support.Board(layer_types=None, same_class=None)
    board.rows = {
        name: support.Row(name, 1, (), same)
        for name, same in (("fp32", 100), ("fp16", 99.9), ("int8", 98))
    }
    raced = {
        batch: support.race_of(board, files, images, batch, seconds=1) for batch in support.BATCHES
    }
    assert raced[1024]["int8"].high < 1
    done = {"cell_count": 1, "seconds": 1.0, "finished_utc": ledger.now()}
    ledger.add(Completion(run_key=lab.run_key, notebook=NAME, **done))
    (path,) = ledger.record("A GPU", profile="quick", folder=tmp_path / "recorded")
    assert path.name == "tensorrt-deployment.json"
    shown = support.recorded_races(tmp_path / "recorded")
    assert set(shown["hardware"]) == {"A GPU"} and set(shown["batch"]) == {1, 64, 1024}
    # which the report draws, one picture for the largest group of one batch
    served = ledger.load("deployments")
    served = served[served["batch"] == 64].set_index("model")
    assert served["accuracy"].to_dict() == pytest.approx({"fp32": 1, "fp16": 0.999, "int8": 0.98})
    assert (served["latency_p50_ms"] > 0).all()
    assert {"int8", "fp32"} <= set(shown["arm"]) and set(shown["baseline"]) == {"fp16"}
