"""The part `tensorrt` of deploy.py: engines of every network in every precision, and engine files not to be loaded."""

import sys
import tempfile
import warnings
from pathlib import Path

import torch

from labkit import export, models, quantize
from labkit.data import load
from labkit.engines.tensorrt import Untrusted, build, compared, facts, library, obtain, vouched
from labkit.errors import LabError, Unavailable
from labkit.files import root

sys.path.insert(0, str(root() / "tests"))
from hostile_engines import MISMATCHES, TAMPERED, flipped, put

QUICK = ("cnn-small", "vgg-small")


def tensorrt(figures, quick):
    """Everything here runs without a GPU; where TensorRT-RTX is not to be had, each line says not-measured."""
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for name in QUICK if quick else models.names():
            every_precision(figures, name, Path(folder))
        untrusted(figures, Path(folder))


def every_precision(figures, name, folder):
    """fp32, fp16, int8 and int8+fp16 of one network: are the heavy nodes computed in what the file asks for?"""
    for precision, make in makers(name, folder).items():
        key = f"{name}_{precision}"
        try:
            built = build(make())
        except (LabError, Unavailable) as error:
            print(f"# {key}: {error}")
            figures.add(f"as_asked_{key}", None, at_least=100, unit="%")
            continue
        table = compared(built.source.model, built.kernels)
        as_asked = 100 * float((table["requested"] == table["actual"]).mean())
        figures.add(f"as_asked_{key}", as_asked, at_least=100, unit="%")
        figures.add(f"plan_{key}", len(built.plan) / 1e6, unit="MB")
        figures.add(f"build_{key}", built.seconds, unit="s")
        if precision.startswith("int8"):
            asked = sum(isinstance(module, torch.nn.Conv2d) for module in models.build(name)[0].modules())
            found = int(((table["operator"] == "Conv") & (table["actual"] == "int8")).sum())
            figures.add(f"int8_convolutions_{key}", found, at_least=asked, at_most=asked)


def makers(name, folder):
    """{precision: a function that writes the ONNX file and returns its path}; later ones build on earlier ones."""
    path = {key: folder / f"{name}-{key}.onnx" for key in ("fp32", "fp16", "int8", "int8+fp16")}
    torch.manual_seed(0)
    return {
        "fp32": lambda: export.to_onnx(models.build(name)[0], models.example(name, 2), path["fp32"]),
        "fp16": lambda: quantize.to_fp16(path["fp32"], path["fp16"]),
        "int8": lambda: quantize.static(path["fp32"], path["int8"], calibration(name)),
        "int8+fp16": lambda: quantize.to_fp16(path["int8"], path["int8+fp16"]),
    }


def calibration(name):
    """What the quantizer observes: the ranges do not matter here, only the graph does."""
    _, shape = models.build(name)
    train = load("fashion-mnist", "train", limit=64)
    if shape == (1, 28, 28):
        return train
    if len(shape) == 1:
        tokens = [models.example(name, 32, seed=seed).numpy() for seed in range(2)]
        return quantize.Calibration(tuple(tokens), "random tokens: only the graph matters here")
    grey = [images for images, _ in train.batches(16, size=shape[1])]
    return quantize.Calibration(
        tuple(images.expand(-1, shape[0], -1, -1).numpy() for images in grey), "fashion-mnist, enlarged"
    )


def untrusted(figures, folder):
    """Flipped files, files for something else, files that someone else made: how many are refused unread?"""
    try:
        engine = obtain(folder / f"{QUICK[0]}-fp32.onnx", folder=folder / "engines")
    except Unavailable as error:
        print(f"# {error}")
        return
    about = {"onnx_sha256": engine.row.onnx_sha256, "settings": engine.row.settings, **facts(library())}
    copies = list(flipped(engine.plan))
    refused = sum(is_refused(engine.path, copy, about) for copy in copies)
    figures.add("flipped_engines_refused", refused, at_least=len(copies))
    others = sum(is_refused(engine.path, engine.plan, about | other) for other in MISMATCHES.values())
    figures.add("mismatched_engines_refused", others, at_least=len(MISMATCHES))
    figures.add(
        "foreign_engines_refused", sum(foreign(tamper, engine, about) for tamper in TAMPERED), at_least=len(TAMPERED)
    )
    figures.add("own_engine_accepted", float(not is_refused(engine.path, engine.plan, about)), at_least=1)


def is_refused(path, data, about):
    """Whether a file with these bytes is refused."""
    put(path, data)
    return not is_vouched(path, about)


def is_vouched(path, about):
    try:
        vouched(path, **about)
    except Untrusted:
        return False
    return True


def foreign(tamper, engine, about):
    """Whether a file that was tampered with is refused. The true one is put back."""
    put(engine.path, engine.plan)
    tamper(engine.path)
    refused = not is_vouched(engine.path, about)
    put(engine.path, engine.plan)
    return refused
