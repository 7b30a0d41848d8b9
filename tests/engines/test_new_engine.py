"""A new engine is one file: doctor, command line, tests and lessons find it by themselves."""

import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from labkit import cli, engines, ledger
from labkit.errors import LabError

TOY = '''
"""toy: torch, one image at a time."""

import torch

from labkit.device.packages import Check
from labkit.engines.served import Served

RUNS, PRECISIONS = "torch", ("fp32",)


def check():
    yield Check("toy part", False, "not here: rows of this engine are toys", fix="build one of wood")


def load(model, example, *, precision, threads):
    return Served(
        device="cpu",
        threads=threads,
        run=lambda batch: torch.cat([model(image) for image in batch.split(1)]),
    )
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of somebody's own engines, as if its files lay in labkit/engines: one that works."""
    place = tmp_path / "my engines"
    place.mkdir()
    (place / "toy.py").write_text(TOY, encoding="utf-8")
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(place)])
    yield place
    for name in ("toy", "broken"):
        sys.modules.pop(f"labkit.engines.{name}", None)


def test_the_engines_stand_in_the_order_of_their_names(folder):
    found = {name: engines.get(name) for name in engines.names()}
    assert list(found) == sorted(
        {"eager", "onnxruntime", "openvino", "tensorrt", "toy"} | set(found)
    )
    assert engines.names(runs="torch") == tuple(
        name for name, engine in found.items() if engine.RUNS == "torch"
    )
    small = [
        name
        for name, engine in found.items()
        if engine.RUNS == "onnx" and "int8" in engine.PRECISIONS
    ]
    assert engines.names(runs="onnx", precision="int8") == tuple(small)
    assert "toy" in engines.names(runs="torch")
    assert "toy" not in small


def test_bench_measures_it_and_the_ledger_keeps_the_row(folder):
    words = ["bench", "cnn-small", "--engine", "toy", "--batch", "2", "--seconds", "0.1"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert "1/1 cnn-small toy, batch 2" in result.output
    (row,) = ledger.load("latencies").to_dict("records")
    assert (row["name"], row["batch"]) == ("cnn-small toy fp32", 2)
    assert row["p50_ms"] > 0


def test_what_it_cannot_do_is_said_by_the_harness(folder):
    batch = torch.zeros(1, 1, 28, 28)
    with pytest.raises(LabError, match="toy has no int8"):
        engines.load("toy", torch.nn.Identity(), batch, precision="int8")
    with pytest.raises(LabError, match=r"toy runs torch modules[\s\S]*onnxruntime or openvino"):
        engines.load("toy", "model.onnx", batch)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("1 +", "SyntaxError"),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        ("RUNS = 'torch'", "no PRECISIONS"),
    ],
)
def test_a_file_that_does_not_load_is_named_and_the_others_go_on(folder, text, word):
    (folder / "broken.py").write_text(text, encoding="utf-8")
    with pytest.raises(LabError, match="The engine broken does not load") as caught:
        engines.get("broken")
    assert word in caught.value.found
    assert engines.get("eager").RUNS == "torch"


@pytest.mark.slow
def test_the_doctor_and_the_help_of_the_command_line_name_it(folder):
    (folder / "broken.py").write_text("1 +", encoding="utf-8")
    code = f"import sys, labkit.engines; labkit.engines.__path__.append({str(folder)!r}); "
    code += "from labkit.cli import main; sys.argv[1:] = {}; main()"
    doctor, helped = (
        subprocess.run(
            [sys.executable, "-c", code.format(words)], capture_output=True, text=True, check=True
        ).stdout
        for words in (["doctor"], ["bench", "--help"])
    )
    assert "ok  engine toy             runs torch modules in fp32\n" in doctor
    assert "-   toy part               not here: rows of this engine are toys\n" in doctor
    assert "next: build one of wood" in doctor
    assert "-   engine broken          does not load: SyntaxError" in doctor
    assert "What every lesson needs is here." in doctor
    assert "openvino, tensorrt, toy or all" in " ".join(helped.split())
