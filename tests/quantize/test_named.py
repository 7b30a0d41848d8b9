"""From names: what `labkit quantize` does."""

import re
from functools import partial

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from labkit import cli
from labkit.data import load
from labkit.errors import LabError
from labkit.export import parity, precision_of, to_onnx
from labkit.export.runtime import notes
from labkit.quantize import Limit, comparison_images, images_for, quantize_file
from labkit.quantize.quantize_file import _calibration_and_held_out
from labkit.train import TrainConfig
from labkit.train.by_name import training


def run(*words):
    result = CliRunner().invoke(cli.app, ["quantize", *map(str, words)])
    if result.exception:
        raise result.exception
    return result.output


@pytest.mark.parametrize("recipe", ["tensorrt", "onnxruntime"])
def test_the_command_writes_an_int8_file_that_computes_the_same(
    recipe, onnx_file, network, images, tmp_path
):
    out = tmp_path / "int8.onnx"
    said = run(
        onnx_file,
        out,
        "--data",
        "fashion-mnist",
        "--count",
        64,
        "--recipe",
        recipe,
        "--method",
        "percentile",
    )
    assert re.search(r"int8\.onnx \(\d+(\.\d)? kB, 3\d% of", said)
    assert precision_of(onnx.load(out)) == "int8"
    assert parity(network, out, [images]).cosine > 0.99


@pytest.mark.parametrize(
    ("asked", "isa", "bits"), [("8", "avx2", 8), ("auto", "avx2", 7), ("auto", "avx512_vnni", 8)]
)
def test_weights_have_as_many_bits_as_the_user_or_the_cpu_says_and_the_file_says_so(
    asked, isa, bits, onnx_file, tmp_path, monkeypatch
):
    monkeypatch.setattr("labkit.device.cpu_isa", lambda: [isa])
    words = (
        "--data",
        "fashion-mnist",
        "--count",
        64,
        "--recipe",
        "onnxruntime",
        "--weight-bits",
        asked,
        "--min-sqnr",
        1,
    )
    run(onnx_file, tmp_path / "q.onnx", *words)
    model = onnx.load(tmp_path / "q.onnx")
    weights = [
        onnx.numpy_helper.to_array(each)
        for each in model.graph.initializer
        if each.name.endswith("_quantized")
    ]
    largest = max(abs(each.astype(int)).max() for each in weights if each.ndim == 4)
    assert 2 ** (bits - 2) < largest <= 2 ** (bits - 1)
    assert (
        f"weights of {bits} bits"
        in {entry.key: entry.value for entry in model.metadata_props}["quantized"]
    )


def test_a_folder_of_pictures_needs_no_classes_no_prefix_and_no_common_size(onnx_file, tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for place, pixels in enumerate(load("fashion-mnist", "train", limit=70).images[:, 0].numpy()):
        Image.fromarray(pixels).resize((30 + place, 40)).save(folder / f"{place}.png")
    said = run(onnx_file, tmp_path / "int8.onnx", "--data", folder, "--count", 64)
    assert "Not compared with the original on real images, for want of them" in said
    assert precision_of(onnx.load(tmp_path / "int8.onnx")) == "int8"
    with pytest.raises(LabError, match="no classes to learn"):
        training("cnn-small", f"folder:{folder}", TrainConfig(size=28))
    (folder / "notes.txt").write_text("not a picture")
    said = run(onnx_file, tmp_path / "again.onnx", "--data", folder, "--count", 64)
    assert said.count("1 of 71 files left out") == 1 and "notes.txt" in said


@pytest.fixture
def pictures(tmp_path):
    """A folder of 130 pictures of two sizes in two classes, without a split."""
    for place, pixels in enumerate(load("fashion-mnist", "train", limit=130).images[:, 0].numpy()):
        path = tmp_path / "pictures" / ("one", "two")[place > 65] / f"{place:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize((30 + place % 2, 40)).save(path)
    return tmp_path / "pictures"


def test_of_a_folder_without_test_images_some_are_held_out_and_never_observed(onnx_file, pictures):
    model = onnx.load(onnx_file)
    seen = {split: images_for(model, str(pictures), 256, split) for split in ("train", "test")}
    pixels = {
        split: {each.tobytes() for batch in data.batches for each in batch}
        for split, data in seen.items()
    }
    assert (seen["train"].count, seen["test"].count) == (65, 65)
    assert not pixels["train"] & pixels["test"]
    assert set(seen["test"].labels) == {0, 1}
    (pictures / "two").rename(pictures / "three")
    for path in sorted((pictures / "three").iterdir())[:3]:
        path.unlink()
    assert images_for(model, str(pictures), 256).count == 127  # too few to share
    with pytest.raises(LabError, match="expected: 128"):
        images_for(model, str(pictures), 256, "test")


def test_pictures_are_normalised_as_the_user_says_and_the_file_says_how(
    onnx_file, pictures, tmp_path
):
    usual = next(iter(images_for(onnx.load(onnx_file), str(pictures), 64).batches))
    own = images_for(onnx.load(onnx_file), str(pictures), 64, mean=(0.25,), std=(0.5,))
    pixels = usual * sum((0.229, 0.224, 0.225)) / 3 + sum((0.485, 0.456, 0.406)) / 3
    torch.testing.assert_close(
        torch.from_numpy(next(iter(own.batches))), torch.from_numpy((pixels - 0.25) / 0.5)
    )
    run(
        onnx_file,
        tmp_path / "q.onnx",
        "--data",
        pictures,
        "--count",
        64,
        "--mean",
        "0.25",
        "--std",
        "0.5",
    )
    said = {entry.key: entry.value for entry in onnx.load(tmp_path / "q.onnx").metadata_props}
    assert said["calibrated"].endswith(
        "pictures train, scale as typed (28 pixels, mean 0.25, std 0.5)"
    )


def test_colour_pictures_feed_a_grey_network_by_their_brightness(onnx_file, tmp_path):
    folder, pixels = (
        tmp_path / "colours",
        np.random.default_rng(0).integers(0, 256, (64, 7, 7, 3)).astype(np.uint8),
    )
    folder.mkdir()
    for place, picture in enumerate(pixels):
        Image.fromarray(picture).resize((28, 28)).save(folder / f"{place:02}.png")
    data = images_for(onnx.load(onnx_file), str(folder), 64, mean=(0.0,), std=(1.0,))
    found = np.concatenate(list(data.batches))
    wanted = [
        np.asarray(Image.open(path).convert("L")) / 255 for path in sorted(folder.glob("*.png"))
    ]
    assert found.shape == (64, 1, 28, 28)
    assert np.abs(np.sort(found.mean((1, 2, 3))) - np.sort(np.mean(wanted, (1, 2)))).max() < 0.01


def test_grey_pictures_feed_a_colour_network_that_was_trained_with_three_numbers(tmp_path):
    source = to_onnx(torch.nn.Conv2d(3, 4, 3), torch.randn(2, 3, 28, 28), tmp_path / "colour.onnx")
    scale = {"mean": "0.485,0.456,0.406", "std": "0.229,0.224,0.225"}
    data = images_for(onnx.load(source), "fashion-mnist", 64, **scale)
    black = next(iter(data.batches)).min((0, 2, 3))
    np.testing.assert_allclose(
        black, -np.array([0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225], rtol=1e-5
    )
    assert data.source.startswith(
        "fashion-mnist train, grey as colour, scale as typed (28 pixels, mean 0.485,"
    )


def test_the_choice_of_auto_is_judged_on_the_split_that_the_user_names_and_the_file_says_on_which(
    onnx_file, pictures, tmp_path
):
    words = [
        "--data",
        "fashion-mnist",
        "--count",
        "64",
        "--recipe",
        "onnxruntime",
        "--keep",
        "auto",
        "--loss",
        "5",
    ]
    said = run(onnx_file, tmp_path / "a.onnx", *words, "--unseen", "test")
    judged = notes(onnx.load(tmp_path / "a.onnx"))["judged"]
    assert judged.startswith("1024 examples of fashion-mnist test")
    assert judged.endswith("which the network was not trained on")
    assert f"Judged on {judged}." in said
    run(onnx_file, tmp_path / "b.onnx", *words)
    judged = notes(onnx.load(tmp_path / "b.onnx"))["judged"]
    assert judged.startswith("1024 examples of fashion-mnist train")
    assert judged.endswith("unknown")
    with pytest.raises(LabError, match="320: 256 for the comparison at the end"):
        run(onnx_file, tmp_path / "c.onnx", "--data", pictures, *words[2:], "--unseen", "test")


def test_no_image_that_judges_the_choice_is_among_those_of_the_comparison(onnx_file):
    model = onnx.load(onnx_file)
    _, judged = _calibration_and_held_out(
        partial(images_for, model, "fashion-mnist"), 64, Limit(unseen="test")
    )
    compared = comparison_images(onnx_file, "fashion-mnist")
    pixels = [
        {each.tobytes() for batch in data.batches for each in batch} for data in (judged, compared)
    ]
    assert [len(each) for each in pixels] == [1024, 256]
    assert not pixels[0] & pixels[1]


@pytest.mark.parametrize(
    ("mean", "said"),
    [("0.5;0.5", "found: 0.5;0.5"), ("120", "by 255"), ("0.5,0.4", "1 or 1 numbers")],
)
def test_numbers_that_do_not_fit_the_pictures_are_refused(mean, said, onnx_file, tmp_path):
    with pytest.raises(LabError, match=re.escape(said)):
        run(onnx_file, tmp_path / "q.onnx", "--data", "fashion-mnist", "--mean", mean)


def test_half_precision_needs_no_data_and_both_together_are_smaller_still(onnx_file, tmp_path):
    half = quantize_file(onnx_file, tmp_path / "half.onnx", "fp16")
    # its head is a product
    blocks = quantize_file(onnx_file, tmp_path / "blocks.onnx", "int8-blocks")
    assert "MatMulNBits" in {node.op_type for node in onnx.load(blocks).graph.node}
    both = quantize_file(
        onnx_file, tmp_path / "both.onnx", "int8+fp16", data="fashion-mnist", count=64
    )
    assert precision_of(onnx.load(half)) == "fp16"
    assert both.stat().st_size < half.stat().st_size < onnx_file.stat().st_size


@pytest.mark.parametrize(
    ("words", "idle", "condition"),
    [
        (
            ("--precision", "fp16", "--recipe", "openvino"),
            "--recipe",
            "--precision int8 or int8+fp16",
        ),
        (("--precision", "fp16", "--keep", "auto"), "--keep", "--precision int8 or int8+fp16"),
        (
            ("--precision", "int8-blocks", "--method", "entropy"),
            "--method",
            "--precision int8 or int8+fp16",
        ),
        (
            ("--precision", "fp8", "--data", "fashion-mnist", "--weight-bits", "7"),
            "--weight-bits",
            "--precision int8",
        ),
        (("--precision", "fp16", "--mean", "0.5", "--count", "128"), "--mean, --count", "--data"),
        (("--data", "fashion-mnist", "--labels", "--loss", "3"), "--loss, --labels", "--keep auto"),
        (("--data", "fashion-mnist", "--unseen", "test"), "--unseen", "--keep auto"),
    ],
)
def test_switches_that_would_do_nothing_are_refused_before_any_work(
    words, idle, condition, onnx_file, tmp_path
):
    with pytest.raises(LabError, match=re.escape(f"{idle} would do nothing here")) as refused:
        run(onnx_file, tmp_path / "q.onnx", *words)
    assert refused.value.expected.startswith(condition)
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--min-sqnr", "nan"),
        ("--keep", "auto", "--loss", "-1"),
        ("--std", "0"),
        ("--std", "0.5,0,0.5"),
    ],
)
def test_limits_and_scales_out_of_range_are_refused_before_any_work(words, onnx_file, tmp_path):
    with pytest.raises(LabError, match=r"out of range|above 0 to 1"):
        run(onnx_file, tmp_path / "q.onnx", "--data", "fashion-mnist", *words)


def test_grey_images_become_colour_and_large_for_a_model_that_wants_both(tmp_path):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())
    source = to_onnx(net, torch.randn(2, 3, 40, 40), tmp_path / "colour.onnx")
    path = quantize_file(source, tmp_path / "q.onnx", data="fashion-mnist", count=64)
    assert precision_of(onnx.load(path)) == "int8"


def test_int8_without_data_an_unknown_precision_and_a_model_of_tokens_are_refused(
    onnx_file, tmp_path
):
    with pytest.raises(LabError, match="--data fashion-mnist"):
        quantize_file(onnx_file, tmp_path / "q.onnx")
    with pytest.raises(LabError, match="int8 or fp8"):
        quantize_file(onnx_file, tmp_path / "q.onnx", "int4")
    words = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Flatten())
    source = to_onnx(words, torch.zeros(2, 5, dtype=torch.int64), tmp_path / "words.onnx")
    with pytest.raises(LabError, match="does not take images"):
        quantize_file(source, tmp_path / "q.onnx", data="fashion-mnist")
    assert not (tmp_path / "q.onnx").exists()


def test_a_file_that_is_no_onnx_file_is_refused(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no protobuf")
    with pytest.raises(LabError):
        quantize_file(tmp_path / "bad.onnx", tmp_path / "q.onnx", "fp16")
