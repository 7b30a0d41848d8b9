"""What large batches lose on the committed data, and what the tricks of lessons 06 and 07 win back.

The problem of the lessons: 512 images of Fashion-MNIST at 14 x 14, a CNN of 6,274 weights with
batch norm, SGD without momentum, batch 16 against batch 256; 5,000 test images; 6 seeds, compared
seed by seed.

`gap`: test accuracy at equal epochs (16, along a cosine) and rate; `recovered` by the best of root
and linear scaling, with and without a warm-up, and what is left with four times the epochs. The
best is chosen on other seeds. What is left at equal training loss, and the critical batch size,
lessons 06 and 07 measure themselves.

About two minutes on two cores; `--quick` (3 seeds) about one.
"""

import argparse
from dataclasses import replace

import numpy as np
from figures import Figures

from labkit.data import load
from labkit.measure.stats import mean_interval
from labkit.models.cnn import tiny
from labkit.train import TrainConfig
from labkit.train.sweep import Job, halved, tune_one, values
from labkit.train.workers import work

SMALL, LARGE = 16, 256
BASE = TrainConfig(
    optimizer="sgd", momentum=0.0, schedule="cosine", learning_rate=0.25, weight_decay=0.0
)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="3 seeds")
    seeds, figures = range(3 if parser.parse_args().quick else 6), Figures()
    train, test = (
        halved(load("fashion-mnist", "train", limit=512)),
        halved(load("fashion-mnist", "test", limit=5_000)),
    )
    print(f"# {train!r}; {test!r}; {len(seeds)} seeds")
    ladder(figures, (train, test), seeds)
    figures.exit()


def rungs():
    """{name: TrainConfig} of the ladder."""
    small = replace(BASE, epochs=16, batch=SMALL)
    large, k = replace(small, batch=LARGE), LARGE / SMALL
    warm = {"warmup": "gradual", "warmup_epochs": 2}
    root, linear = (
        replace(large, learning_rate=0.25 * k**0.5),
        replace(large, learning_rate=0.25 * k),
    )
    settings = {"small": small, "large": large, "root": root, "linear": linear}
    settings |= {"root_warmup": replace(root, **warm), "linear_warmup": replace(linear, **warm)}
    longer = replace(root, epochs=64)
    return settings | {
        "root_4x_longer": longer,
        "root_ghosts_4x_longer": replace(longer, ghost_size=SMALL),
    }


def ladder(figures, data, seeds):
    """The gap at equal epochs, the share that scaling wins back, and what the longer regime
    leaves of it.
    """
    each = {"make": tiny, "data": data}
    jobs = [
        Job(name=name, config=replace(rung, seed=seed), **each)
        for name, rung in rungs().items()
        for seed in seeds
    ]
    found = work(tune_one, jobs)
    for name in rungs():
        print(
            f"# {name}: accuracy {mean_interval(values(found, name))}, "
            f"{values(found, name, 'steps')[0]} steps"
        )
    gap = ahead(found, "small", "large")
    figures.add("gap", gap.mean, at_least=3, unit="points")
    figures.add("gap_low_end", gap.low, at_least=0, unit="points")
    won = best(found, "root", "linear", "root_warmup", "linear_warmup") - values(found, "large")
    figures.add("recovered_by_scaling_and_warmup", won.mean() / gap.mean, at_least=0.5)
    left = mean_interval(
        values(found, "small") - best(found, "root_4x_longer", "root_ghosts_4x_longer")
    )
    print(f"# with four times the epochs behind by {left}")
    figures.add("ladder_gap", left.mean, at_most=1, unit="points")


def ahead(found, name, other):
    """How much more accurate `name` is than `other`, seed by seed: an `Interval` in points."""
    return mean_interval(values(found, name) - values(found, other))


def best(found, *names):
    """(seeds,) accuracy of the setting that is best for all other seeds, seed by seed."""
    points = np.array([values(found, name) for name in names])
    chosen = [np.delete(points, seed, axis=1).mean(1).argmax() for seed in range(points.shape[1])]
    return points[chosen, range(points.shape[1])]


if __name__ == "__main__":
    main()
