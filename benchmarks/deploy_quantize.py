"""The part `quantize` of deploy.py: what INT8 costs in accuracy, and which data is refused for calibration."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from labkit import device as devices
from labkit import export, models
from labkit.data import load
from labkit.errors import LabError
from labkit.measure.stats import bootstrap_paired
from labkit.quantize import RECIPES, Calibration, logits, observe, prepared, qat, static
from labkit.train import TrainConfig, accuracy, fit

WORST = 0.5  # percentage points of accuracy that INT8 may cost, upper end of the interval
BITS = 2  # of a weight, where rounding after training is not enough


def quantize(figures, quick):
    """A network trained here, quantized after training and on the grid, on the whole test set."""
    refusals(figures)
    name = "cnn-medium" if quick else "resnet18"
    train, test = load("fashion-mnist", "train", limit=3000 if quick else 20_000), load("fashion-mnist", "test")
    test = test.subset(2000) if quick else test
    torch.manual_seed(0)
    network, _ = models.build(name)
    fit(network, train, TrainConfig(epochs=1 if quick else 2, batch=32), device=devices.pick())
    network = network.cpu().eval()
    with tempfile.TemporaryDirectory() as folder:
        drops(figures, name, network, train, test, folder=Path(folder), strict=not quick)
    trained_on_the_grid(figures, network, train.subset(1000 if quick else 5000), test)


def drops(figures, name, network, train, test, *, folder, strict):
    """Each recipe against fp32: the points of accuracy lost, with the paired interval, and the size on disk."""
    fp32 = export.to_onnx(network, models.example(name, 2), folder / "fp32.onnx")
    seen = observe(prepared(fp32), Calibration.of(train))
    before = right(fp32, test)
    figures.add(f"accuracy_{name}_fp32", 100 * before.mean(), unit="%")
    for recipe in RECIPES:
        path = static(fp32, folder / f"{recipe}.onnx", seen, recipe=recipe)
        after = right(path, test)
        low, high = bootstrap_paired(before, after)
        figures.add(f"points_lost_{name}_{recipe}", 100 * (before.mean() - after.mean()), unit="%")
        # a short run has too few images to say so much
        limits = {"at_most": WORST} if strict else {}
        figures.add(f"points_lost_at_most_{name}_{recipe}", -100 * low, unit="%", **limits)
        figures.add(f"points_lost_at_least_{name}_{recipe}", -100 * high, unit="%")
        share = 100 * path.stat().st_size / fp32.stat().st_size
        figures.add(f"size_{name}_{recipe}", share, at_most=35, unit="%")


def right(path, test):
    """(N,) bool: which images the file gets right, computed node by node as it says."""
    found = [logits(path, images) for images, _ in test.batches(500)]
    return np.concatenate(found).argmax(1) == test.labels.numpy()


def trained_on_the_grid(figures, network, train, test):
    """How much of what rounding to very few bits loses is won back by training on the grid."""
    images, _ = next(iter(train.batches(256)))
    fake = qat.calibrate(qat.prepare(network, images[:2], weight_bits=BITS), [images])
    before, rounded = (accuracy(model, test, device="cpu") for model in (network, fake))
    fit(fake, train, TrainConfig(batch=64, learning_rate=2e-3), device="cpu")
    trained = accuracy(fake, test, device="cpu")
    figures.add(f"points_lost_{BITS}_bits", 100 * (before - rounded), unit="%")
    figures.add(f"points_lost_{BITS}_bits_trained", 100 * (before - trained), unit="%")


def refusals(figures):
    """Data that must not calibrate a network."""
    random = np.random.default_rng(0)
    bad = {
        "none": lambda: Calibration.of(None),
        "normal": lambda: Calibration((random.normal(size=(256, 3, 32, 32)),), "somewhere"),
        "uniform": lambda: Calibration((random.random((256, 1, 28, 28)),), "somewhere"),
        "bytes": lambda: Calibration((random.integers(0, 256, (256, 1, 28, 28)),), "somewhere"),
        "few": lambda: Calibration.of(load("fashion-mnist", "train", limit=10)),
        "unnamed": lambda: Calibration(Calibration.of(load("fashion-mnist", "train")).batches, ""),
        "constant": lambda: Calibration((np.ones((256, 1, 28, 28)),), "somewhere"),
    }
    refused = 0
    for name, make in bad.items():
        try:
            make()
            print(f"# {name} was not refused")
        except LabError:
            refused += 1
    figures.add("calibrations_refused", refused, at_least=len(bad))
