"""What large batches lose on the committed data, and what the tricks of lessons 04 and 05 win back.

Fashion-MNIST at 14 x 14, 8,192 images, 6 epochs, a CNN of 18,000 weights with batch norm, SGD with momentum 0.9 and
a cosine; all 10,000 test images; 5 seeds, compared seed by seed. Sharpness: 4,096 images, trained at a constant rate
until the loss on all of them is 0.1, measured on 1,000 of them. About ten minutes on two cores; `--quick` (2 seeds,
2,048 images, half the epochs: too few for the targets to mean much) under one.
"""

import argparse
import math
from dataclasses import replace
from functools import partial

from figures import Figures

from labkit.data import load
from labkit.models.cnn import cnn
from labkit.train import TrainConfig
from labkit.train.sweep import difference, flatness, halved, mean_interval, ratio, run, values

SMALL, LARGE, RATE = 64, 1024, 0.05
MAKE = partial(cnn, 8)
WARM = {"warmup": "gradual", "warmup_epochs": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 seeds and fewer images, under a minute")
    quick, figures = parser.parse_args().quick, Figures()
    train = halved(load("fashion-mnist", "train", limit=2_048 if quick else 8_192))
    test = halved(load("fashion-mnist", "test", limit=2_000 if quick else 10_000))
    seeds = 2 if quick else 5
    print(f"# {train!r}; {test!r}; {seeds} seeds")
    ladder(figures, (train, test), seeds, quick=quick)
    sharp(figures, (train.subset(1_024 if quick else 4_096), test), seeds, quick=quick)
    figures.exit()


def rungs(epochs, quick):
    """{name: TrainConfig} of the ladder; those that are compared with a target."""
    base = TrainConfig(optimizer="sgd", schedule="cosine", weight_decay=0.0, learning_rate=RATE, epochs=epochs)
    large, k = replace(base, batch=LARGE), LARGE / SMALL
    root, lamb = replace(large, learning_rate=RATE * math.sqrt(k)), replace(large, optimizer="lamb")
    settings = {
        "small": replace(base, batch=SMALL),
        "large": large,
        "root_warmup": replace(root, **WARM),
        "linear_warmup": replace(large, learning_rate=RATE * k, **WARM),
        "root_warmup_4x_longer": replace(root, epochs=4 * epochs, **WARM),
        "root_warmup_ghosts_4x_longer": replace(root, epochs=4 * epochs, ghost_size=SMALL, **WARM),
        "lamb_4x_longer": replace(lamb, epochs=4 * epochs, **WARM),
    }
    return {name: config for name, config in settings.items() if not (quick and "ghosts" in name)}


def ladder(figures, data, seeds, *, quick):
    """The gap at equal epochs, the share that scaling and warm-up win back, and what the best rung leaves of it."""
    settings = rungs(3 if quick else 6, quick)
    found = run(settings, MAKE, data, seeds=seeds)
    for name in settings:
        print(f"# {name}: accuracy {mean_interval(values(found, name))}, {values(found, name, 'steps')[0]} steps")
    gap = difference(found, "small", "large")
    figures.add("gap", gap.mean, at_least=2, unit="points")
    figures.add("gap_low_end", gap.low, at_least=0, unit="points")
    won = max(difference(found, name, "large").mean for name in ("root_warmup", "linear_warmup"))
    figures.add("recovered_by_scaling_and_warmup", won / gap.mean, at_least=0.5)
    best = min((name for name in settings if name != "small"), key=lambda name: -values(found, name).mean())
    left = difference(found, "small", best)
    print(f"# best rung: {best}, behind by {left}")
    figures.add("ladder_gap", left.mean, at_most=0.5, unit="points")


def sharp(figures, data, seeds, *, quick):
    """How much sharper the large batch's solution is at equal training loss."""
    base = TrainConfig(optimizer="sgd", weight_decay=0.0, learning_rate=RATE, epochs=300)
    settings = {"small": replace(base, batch=SMALL), "large": replace(base, batch=512 if quick else LARGE)}
    found = run(settings, MAKE, data, seeds=seeds, target=0.3 if quick else 0.1)
    flat = flatness(found, data[0].subset(1_000))
    reached = ", ".join(f"{name} {values(found, name, 'loss').mean():.3f}" for name in settings)
    print(f"# training loss: {reached}")
    print(f"# test accuracy, small minus large, at equal loss: {difference(found, 'small', 'large')}")
    print(f"# largest eigenvalue, large over small: {ratio(flat, 'large', 'small', 'eigenvalue')}")
    sharper = ratio(flat, "large", "small", "sharpness")
    print(f"# sharpness, large over small: {sharper}")
    figures.add("sharpness_ratio", sharper.mean, at_least=3)


if __name__ == "__main__":
    main()
