"""What large batches lose on the committed data, and what the tricks of lessons 05 and 06 win back.

The problem of the lessons: 512 images of Fashion-MNIST at 14 x 14, a CNN of 6,274 weights with batch norm, SGD without
momentum, batch 16 against batch 256; 5,000 test images; 6 seeds, compared seed by seed.

- `gap`: test accuracy at equal epochs (16, along a cosine) and rate; `recovered` by the best of root and linear
  scaling, with and without a warm-up, and what is left with four times the epochs. The best is chosen on other seeds.
- At equal training loss (below 0.01, at a constant rate): the gap that is left, and what four times the rate gains.
- `critical_batch`: from the steps to a training loss of 0.8, over what the gradient noise scale predicts.

About four minutes on two cores; `--quick` (3 seeds) about two.
"""

import argparse
from dataclasses import replace

import numpy as np
import torch
from figures import Figures
from scipy.optimize import curve_fit
from sweeps import run
from torch.nn.functional import cross_entropy

from labkit.data import load
from labkit.device import using_threads
from labkit.measure.stats import mean_interval, mean_ratio
from labkit.models.cnn import tiny
from labkit.train import TrainConfig
from labkit.train.sweep import halved, values

SMALL, LARGE = 16, 256
BASE = TrainConfig(optimizer="sgd", momentum=0.0, learning_rate=0.25, weight_decay=0.0)
SIZES = (16, 32, 64, 128, 256)
RATES = (0.125, 0.25, 0.5, 1.0, 2.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 seeds")
    seeds, figures = range(3 if parser.parse_args().quick else 6), Figures()
    train, test = halved(load("fashion-mnist", "train", limit=512)), halved(load("fashion-mnist", "test", limit=5_000))
    print(f"# {train!r}; {test!r}; {len(seeds)} seeds")
    ladder(figures, (train, test), seeds)
    minima(figures, (train, test), seeds)
    critical(figures, train, seeds)
    figures.exit()


def rungs():
    """{name: TrainConfig} of the ladder."""
    small = replace(BASE, schedule="cosine", epochs=16, batch=SMALL)
    large, k = replace(small, batch=LARGE), LARGE / SMALL
    warm = {"warmup": "gradual", "warmup_epochs": 2}
    root, linear = replace(large, learning_rate=0.25 * k**0.5), replace(large, learning_rate=0.25 * k)
    settings = {"small": small, "large": large, "root": root, "linear": linear}
    settings |= {"root_warmup": replace(root, **warm), "linear_warmup": replace(linear, **warm)}
    longer = replace(root, epochs=64)
    return settings | {"root_4x_longer": longer, "root_ghosts_4x_longer": replace(longer, ghost_size=SMALL)}


def ladder(figures, data, seeds):
    """The gap at equal epochs, the share that scaling wins back, and what the longer regime leaves of it."""
    found = run(rungs(), tiny, data, seeds=seeds)
    for name in rungs():
        print(f"# {name}: accuracy {mean_interval(values(found, name))}, {values(found, name, 'steps')[0]} steps")
    gap = ahead(found, "small", "large")
    figures.add("gap", gap.mean, at_least=3, unit="points")
    figures.add("gap_low_end", gap.low, at_least=0, unit="points")
    won = best(found, "root", "linear", "root_warmup", "linear_warmup") - values(found, "large")
    figures.add("recovered_by_scaling_and_warmup", won.mean() / gap.mean, at_least=0.5)
    left = mean_interval(values(found, "small") - best(found, "root_4x_longer", "root_ghosts_4x_longer"))
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


def minima(figures, data, seeds):
    """The gap at equal training loss, at the small batch's rate and at four times that rate."""
    small, large = replace(BASE, batch=SMALL, epochs=150), replace(BASE, batch=LARGE, epochs=1200)
    settings = {"small": small, "large": large, "large, 4 x rate": replace(large, learning_rate=4 * BASE.learning_rate)}
    found = [each.end for each in run(settings, tiny, data, seeds=seeds, target=0.01)]
    figures.add("loss_at_the_end", max(each.loss for each in found), at_most=0.0105, unit="nats")
    left, behind = (ahead(found, "small", name) for name in list(settings)[1:])
    gain = ahead(found, "large, 4 x rate", "large")
    print(f"# test accuracy at equal loss, small minus large: {left}; at 4 x rate: {behind}; its gain: {gain}")
    figures.add("gap_at_equal_loss", left.mean, at_most=3, unit="points")
    figures.add("gain_of_4_times_the_rate", gain.mean, at_least=0.25, unit="points")


def critical(figures, train, seeds):
    """The critical batch size from the steps to a loss, against the one that the gradient noise predicts."""
    names = {(batch, rate): f"{batch} at {rate}" for batch in SIZES for rate in RATES}
    grid = {
        name: replace(BASE, batch=batch, learning_rate=rate, epochs=int(np.ceil((50 + 1_800 / batch) * batch / 512)))
        for (batch, rate), name in names.items()
    }
    tried = [each.end for each in run(grid, tiny, (train, None), seeds=seeds, target=0.8)]
    steps = np.array([best_steps([values(tried, names[batch, rate], "steps") for rate in RATES]) for batch in SIZES])
    for batch, each in zip(SIZES, steps, strict=True):
        print(f"# batch {batch}: {mean_interval(each)} steps to a loss of 0.8")
    found = np.array([fitted(column) for column in steps.T])
    predicted = np.array([predict(each, train) for each in on_the_way(train, seeds)])
    print(f"# critical batch size: found {mean_interval(found)}, predicted {mean_interval(predicted)}")
    figures.add("critical_batch_found_over_predicted", mean_ratio(found, predicted).mean, at_least=0.5, at_most=2)


def best_steps(steps):
    """(seeds,) steps of the rate that is best for all other seeds; a training without end is the worst."""
    steps = np.nan_to_num(np.array(steps), nan=np.nanmax(steps) * 2)
    chosen = [np.delete(steps, seed, axis=1).mean(1).argmin() for seed in range(steps.shape[1])]
    return steps[chosen, range(steps.shape[1])]


def fitted(steps):
    """The critical batch size of steps = least (1 + critical / batch)."""
    curve = lambda batch, least, critical: least + np.log1p(np.exp(critical) / batch)  # noqa: E731
    return np.exp(curve_fit(curve, np.array(SIZES), np.log(steps), p0=(2.5, 4))[0][1])


def on_the_way(train, seeds):
    """For each seed the networks met on the way to the same loss."""
    way = {"way": replace(BASE, batch=SMALL, epochs=10)}
    return [each.looks for each in run(way, tiny, (train, train), seeds=seeds, target=0.8)]


def predict(networks, train):
    """Geometric mean of the gradient noise scale of these networks, without the estimates that failed (below 0)."""
    with using_threads(1):
        scales = np.array([noise_scale(network, train) for network in networks])
    if (scales <= 0).any():
        print(f"# {(scales <= 0).sum()} of {len(scales)} estimates of the noise scale failed: below 0, left out")
    return np.exp(np.log(scales[scales > 0]).mean())


def noise_scale(network, train, few=16, many=256):
    """tr(covariance) / |gradient|^2, from E|g_B|^2 = |gradient|^2 + tr(covariance) / B at two sizes B
    (arXiv:1812.06162). Below 0 the estimate has failed. With batch norm the gradient depends on B itself: a bias."""
    x, y = next(iter(train.batches(len(train))))

    def square(batch, times):
        draws = [torch.randint(len(x), (batch,)) for _ in range(times)]
        slopes = [torch.autograd.grad(cross_entropy(network(x[d]), y[d]), list(network.parameters())) for d in draws]
        return np.mean([float(sum(slope.square().sum() for slope in each)) for each in slopes])

    network.train()
    at_few, at_many = square(few, 48), square(many, 8)
    noise = (at_few - at_many) / (1 / few - 1 / many)
    return noise / (at_many - noise / many)


if __name__ == "__main__":
    main()
