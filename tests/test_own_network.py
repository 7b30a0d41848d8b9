"""docs/your-own-network.md, walked from a checkpoint and a folder of pictures to the last
command.
"""

import importlib.util
import re
import shlex

import numpy as np
import onnx
import pytest
import torch
from PIL import Image, ImageOps
from typer.testing import CliRunner

from labkit import cli, ledger, models
from labkit.data import load
from labkit.errors import LabError
from labkit.files import root

PAGE = (root() / "docs" / "your-own-network.md").read_text(encoding="utf-8")
STEPS = re.findall(r"```sh\nlabkit ([^\n]+)\n```\n```text\n(.+?)```", PAGE, flags=re.DOTALL)


def call(*words):
    result = CliRunner().invoke(cli.app, words)
    if result.exception:
        raise result.exception
    return result.output


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the reader's files: weights of a network of the course, and pictures of
    several sizes.
    """
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save({"epoch": 1, "state_dict": models.build("cnn-small")[0].state_dict()}, "model.pth")
    folder = tmp_path / "photos"
    folder.mkdir()
    for place, pixels in enumerate(load("fashion-mnist", "test", limit=200).images[:, 0].numpy()):
        Image.fromarray(pixels).resize((40 + place % 3, 50)).save(folder / f"{place:03}.jpg")
    return tmp_path


def test_the_program_of_the_page_answers_a_picture_made_ready_as_it_says(here, capsys):
    """A network that hands out the mean of each channel says blue of a grey picture, made ready
    by ImageNet's scale.
    """
    given, found = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("input", ["N", 3, 32, 32]), ("scores", ["N", 3]))
    )
    mean = onnx.helper.make_node("ReduceMean", ["input", "sides"], ["scores"], keepdims=0)
    sides = onnx.helper.make_tensor("sides", onnx.TensorProto.INT64, [2], [2, 3])
    graph = onnx.helper.make_graph([mean], "means", [given], [found], [sides])
    opset = onnx.helper.make_opsetid("", 18)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), "model-ort.onnx")
    (program,) = re.findall(r"```python\n(.+?)```", PAGE, flags=re.DOTALL)
    exec(program, {})  # of this repository
    assert capsys.readouterr().out == "2\n"


def test_the_program_of_the_page_reads_every_kind_of_picture_bit_for_bit_as_labkit_does(tmp_path):
    (program,) = re.findall(r"```python\n(.+?)```", PAGE, flags=re.DOTALL)
    words = {}
    exec(program.partition("session = ")[0], words)  # of this repository
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 4)).astype(np.uint8)
    colours = Image.fromarray(pixels)
    deep = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    lying = Image.Exif()
    lying[0x0112] = 6
    colours.save(tmp_path / "0.png")
    colours.convert("LA").save(tmp_path / "1.png")
    colours.convert("P").save(tmp_path / "2.png", transparency=3)
    deep.save(tmp_path / "3.png")
    deep.save(tmp_path / "4.png", transparency=int(pixels[0, 0, 0]) * 257)
    deep.save(tmp_path / "5.tif")
    colours.convert("CMYK").save(tmp_path / "6.jpg")
    colours.save(tmp_path / "7.webp")
    colours.convert("RGB").save(tmp_path / "8.jpg", exif=lying)
    colours.convert("1").save(tmp_path / "9.bmp")
    read = load(f"folder:{tmp_path}", size=5).images
    for path, found in zip(sorted(tmp_path.glob("[0-9].*")), read, strict=True):
        fitted = ImageOps.fit(words["picture"](path), (5, 5), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(np.asarray(fitted), found.permute(1, 2, 0), err_msg=path.name)


@pytest.mark.slow
def test_each_command_of_the_page_does_what_the_page_shows(here):
    assert len(STEPS) == 8
    for command, shown in STEPS:
        words = shlex.split(command.replace("resnet18", "cnn-small"))
        if words[0] == "build" and importlib.util.find_spec("tensorrt_rtx_bindings") is None:
            continue
        quick = {
            "bench": ["--seconds", "0.2"],
            "quantize": ["--count", "64", "--min-sqnr", "-99"],
        }.get(words[0], [])
        output = call(*words, *quick)
        lines = [
            line
            for line in shown.splitlines()
            if not re.search(r"not compared|\.engine|noise: ", line)
        ]
        begins = [re.split(r"\d", line)[0].strip() for line in lines]
        assert [text for text in begins if text not in output] == [], command
    written = {path.name: path for path in here.glob("*.onnx")}
    assert set(written) == {f"model{end}.onnx" for end in ("", "-ort", "-ov", "-trt", "-auto")}
    notes = {each.key: each.value for each in onnx.load(written["model-ort.onnx"]).metadata_props}
    assert notes["calibrated"].startswith(
        "64 examples of folder:photos train, scale as typed (32 pixels"
    )
    assert {"model-ort onnxruntime", "model-ov openvino"} <= set(ledger.load("ratios")["arm"])


WRONG = {
    "export model.pth": "labkit export NETWORK --weights model.pth",
    "export cnn-medium --weights model.pth": "another network than cnn-medium",
    "export cnn-small --weights missing.pth": "missing.pth",
    "quantize model.onnx x.onnx": "add --data",
    "quantize model.onnx x.onnx --data fotos": "fotos",
    "quantize model.onnx x.onnx --data texts": "notes.txt",
    "quantize model.onnx x.onnx --data two": "at least 64 examples",
    "quantize model.onnx x.onnx --data photos --keep auto --count 80": "--count",
    "quantize model.onnx x.onnx --data photos --mean 120,120,120 --std 1,1,1": "by 255",
    "quantize half.onnx x.onnx --data photos": "FP16 already",
    "bench model.onnx": "choose the engine onnxruntime",
    "bench missing.onnx --engine onnxruntime": "missing.onnx",
}


@pytest.mark.slow
def test_wrong_turns_are_answered_in_the_words_of_the_user_and_leave_no_file(here):
    call("export", "cnn-small", "--weights", "model.pth", "--out", "model.onnx")
    call("quantize", "model.onnx", "half.onnx", "--precision", "fp16")
    for name in ("two", "texts"):
        (here / name).mkdir()
    (here / "texts" / "notes.txt").write_text("no picture")
    for path in list((here / "photos").iterdir())[:2]:
        (here / "two" / path.name).write_bytes(path.read_bytes())
    for command, said in WRONG.items():
        with pytest.raises(LabError) as error:
            call(*shlex.split(command))
        assert said in str(error.value), command
    assert not (here / "x.onnx").exists()
