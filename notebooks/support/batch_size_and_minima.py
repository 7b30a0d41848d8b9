"""For the lesson on batch size and minima: its pictures.

Nothing here measures or trains; the lesson does. Trainings come as `Runs` of labkit.train.repeat,
whose members have `accuracy`, `training_accuracy`, `losses` and `steps`.
"""

import numpy as np
from IPython.display import display

from labkit.measure.stats import mean_interval
from labkit.plots import COLOURS, GREY, canvas, log_axis

SMALL_TEXT = 8.5  # points


def errors(panels):
    """Draw training and validation error against the batch size, one panel for each title.

    panels  {title: {batch: `Runs`}}; dots are means over the seeds, bars their 95 % intervals
    """
    figure, axes = canvas(4.4 * len(panels), 3.2, columns=len(panels))
    for ax, (title, runs_by_batch) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        batches = sorted(runs_by_batch)
        validation = [100 - runs_by_batch[batch].accuracy for batch in batches]
        training = [100 - _training_accuracy(runs_by_batch[batch]) for batch in batches]
        _draw_means(ax, batches, validation, COLOURS[1], "validation error")
        _draw_means(ax, batches, training, COLOURS[0], "training error")
        ax.set(xlabel="batch size", ylabel="error (%)", xscale="log", ylim=(-2, None))
        ax.set_title(title, fontsize=10)
        ax.set_xticks(batches, batches)
        ax.minorticks_off()
        ax.legend(frameon=False, fontsize=SMALL_TEXT)
    highest = max(ax.get_ylim()[1] for ax in np.atleast_1d(axes))
    for ax in np.atleast_1d(axes):
        ax.set_ylim(-2, highest)
    display(figure)


def _training_accuracy(runs):
    return np.array([run.training_accuracy for run in runs])


def _draw_means(ax, x, samples, colour, label):
    """Draw the mean of each array of samples with its 95 % interval."""
    intervals = [mean_interval(values) for values in samples]
    means = [interval.mean for interval in intervals]
    half_widths = [interval.high - interval.mean for interval in intervals]
    ax.errorbar(x, means, half_widths, fmt="o-", color=colour, label=label)


def descents(runs_by_name, *, images, look_every):
    """Draw the training loss over the epochs and over the steps, one line per training.

    runs_by_name  {name: (batch, `Runs`)}; trainings of one name share a colour
    images        number of training images
    look_every    steps between two losses
    """
    figure, axes = canvas(9, 3.2, columns=2)
    for colour, (name, (batch, runs)) in zip(COLOURS, runs_by_name.items(), strict=False):
        for number, run in enumerate(runs):
            steps = look_every * np.arange(1, len(run.losses) + 1)
            label = None if number else name  # one entry in the legend
            for ax, x in zip(axes, (steps * batch / images, steps), strict=True):
                ax.plot(x, run.losses, color=colour, lw=0.9, alpha=0.5, label=label)
    for ax, label in zip(axes, ("epochs", "steps"), strict=True):
        ax.set(xlabel=label, ylabel="training loss", xscale="log", yscale="log")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_yticks([0.02, 0.1, 0.5, 2], ["0.02", "0.1", "0.5", "2"])
        ax.minorticks_off()
    axes[0].axvline(8, color=GREY, ls=":")
    axes[1].legend(frameon=False, fontsize=SMALL_TEXT)
    display(figure)


def rates(runs, *, goal):
    """Draw validation error against the learning rate, one line per batch size.

    runs  {(batch, learning rate): `Runs`}; small dots are seeds, large ones their means with
          95 % intervals
    goal  validation error that should not be exceeded, in percent: a dotted line
    """
    figure, ax = canvas(7.5, 3.8)
    for colour, batch in zip(COLOURS, sorted({batch for batch, _ in runs}), strict=False):
        in_order = sorted(rate for size, rate in runs if size == batch)
        validation = [100 - runs[batch, rate].accuracy for rate in in_order]
        for rate, seeds in zip(in_order, validation, strict=True):
            ax.plot([rate] * len(seeds), seeds, "o", ms=3, alpha=0.25, color=colour)
        _draw_means(ax, in_order, validation, colour, f"batch {batch}")
    ax.axhline(goal, color=GREY, ls=":")
    ax.annotate("goal: not above", (0, goal), (4, 6), xycoords=("axes fraction", "data"), **_LABEL)
    ax.set(xlabel="learning rate", ylabel="validation error (%)", xscale="log")
    ticks = sorted({rate for _, rate in runs})
    ax.set_xticks(ticks, [f"1/{1 / rate:.0f}" if rate < 1 else f"{rate:g}" for rate in ticks])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=SMALL_TEXT)
    display(figure)


def bowl(paths, *, curvature):
    """Draw descents in a bowl, loss = curvature / 2 * w^2, side by side.

    paths  {learning rate: positions w of the steps}
    """
    figure, axes = canvas(9, 2.8, columns=len(paths))
    w = np.linspace(-2.6, 2.6, 200)
    for ax, colour, (rate, positions) in zip(axes, COLOURS, paths.items(), strict=False):
        ax.plot(w, curvature / 2 * w**2, color=GREY, lw=1)
        seen = np.array([position for position in positions if abs(position) < 2.6])
        label = f"learning rate {rate:.3g}"
        ax.plot(seen, curvature / 2 * seen**2, "o-", color=colour, ms=5, lw=1.2, label=label)
        ax.annotate("start", (positions[0], curvature / 2 * positions[0] ** 2), (8, 0), **_LABEL)
        ax.set_title(f"{label}: factor {1 - rate * curvature:+.3g}", fontsize=10)
        ax.set(xlabel="w", ylabel="loss")
    display(figure)


_LABEL = {"textcoords": "offset points", "fontsize": SMALL_TEXT, "va": "center"}


def lines(heights, distances):
    """Draw the training loss along a line through the end of each training, on the same axes.

    heights    {name: losses}, one loss for each distance
    distances  distances from the end of the training, in lengths of the weights
    """
    figure, ax = canvas(6.5, 3.2)
    for colour, (name, losses) in zip(COLOURS, heights.items(), strict=False):
        ax.plot(distances, losses, color=colour, label=name)
    ax.set(xlabel="distance along the sharpest direction", ylabel="training loss", ylim=(0, 1.5))
    ax.legend(frameon=False, fontsize=SMALL_TEXT)
    display(figure)


def draw_map(spots, moved=None):
    """Draw validation error against sharpness, and return the figure.

    spots  {"family, setting": (sharpness, validation error)}, arrays over the seeds. A large dot
           stands at the geometric mean of the sharpness and the mean of the error, with its
           setting beside it; a family shares a colour
    moved  {name: name}: an arrow goes from the first spot to the second, which is hollow: the same
           networks, written with other weights
    """
    moved = moved or {}
    figure, ax = canvas(8.5, 4.6)
    families = list(dict.fromkeys(name.rsplit(", ", 1)[0] for name in spots))
    centres = {}
    for name, (sharpness, error) in spots.items():
        family, setting = name.rsplit(", ", 1)
        colour = COLOURS[families.index(family)]
        fill = "white" if name in moved.values() else colour
        label = None if family in {known.rsplit(", ", 1)[0] for known in centres} else family
        ax.plot(sharpness, error, "o", ms=3, alpha=0.2, color=colour)
        x, y = centres[name] = np.exp(np.log(sharpness).mean()), error.mean()
        look = {"ms": 9, "mew": 2, "color": colour, "markerfacecolor": fill, "zorder": 3}
        ax.plot([x], [y], "o", label=label, **look)
        ax.annotate(setting, (x, y), (0, 11), ha="center", color=colour, weight="bold", **_LABEL)
    for start, end in moved.items():
        arrow = {"arrowstyle": "->", "lw": 1.8, "shrinkA": 6, "shrinkB": 6}
        ax.annotate("", centres[end], centres[start], arrowprops=arrow)
    log_axis(ax, "x", "{:g}".format)
    ax.set(xlabel="sharpness (largest eigenvalue)", ylabel="validation error (%)")
    figure.legend(loc="outside right center", frameon=False, fontsize=SMALL_TEXT)
    display(figure)
    return figure
