"""Draw trainings: learning rates, loss curves, schedules, layers, and a ranking of changes.

Each function shows its picture and returns None. Trainings with several seeds come as `Runs` of
labkit.train.repeat. Of a `Runs`, `accuracy` is (seeds,) and `losses` is (seeds, epochs). `runs -
other` are the differences of the accuracies, seed by seed. `runs.lead(other)` is the interval of
the mean difference.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from labkit.plots.canvas import COLOURS, GREY, canvas

SMALL_TEXT = 8.5  # points
BAND = (0.1, 0.9)  # quantiles over the seeds


def rates(runs: Mapping, *, rules: Mapping | None = None) -> None:
    """Draw test accuracy against the learning rate, with one line per batch size.

    Dots are seeds, the line is their mean.

    runs   {(batch size, learning rate): `Runs`}
    rules  {name of a rule: (learning rate, learning rate that the rule makes of it)}, drawn as
           arrows above the lines
    """
    rules = rules or {}
    figure, ax = canvas(7.5, 4.0)

    # The dots and the line of each batch size.
    for colour, batch in zip(COLOURS, sorted({batch for batch, _ in runs}), strict=False):
        in_order = sorted(rate for size, rate in runs if size == batch)
        for rate in in_order:
            accuracy = runs[batch, rate].accuracy
            ax.plot([rate] * len(accuracy), accuracy, "o", ms=3, alpha=0.25, color=colour)
        means = [runs[batch, rate].accuracy.mean() for rate in in_order]
        ax.plot(in_order, means, "o-", color=colour, label=f"batch {batch}")

    # Room above the lines for the arrows of the rules.
    means = [trained.accuracy.mean() for trained in runs.values()]
    margin = 0.08 * (max(means) - min(means))
    ax.set_ylim(min(means) - margin, max(means) + margin * (1.5 + 1.6 * len(rules)))
    _draw_rules(ax, rules, lowest=max(means) + 1.5 * margin, distance=1.6 * margin)
    ax.set(xlabel="learning rate", ylabel="test accuracy (%)", xscale="log")
    ticks = sorted({rate for _, rate in runs})
    ax.set_xticks(ticks, [_as_fraction(rate) for rate in ticks])
    ax.minorticks_off()
    ax.legend(frameon=False, loc="lower right")
    _show(figure)


def _draw_rules(ax, rules, *, lowest, distance):
    for row, (name, (start, end)) in enumerate(rules.items()):
        height = lowest + row * distance
        ax.annotate(
            "", (end, height), (start, height), arrowprops={"arrowstyle": "->", "color": GREY}
        )
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        middle = (start * end) ** 0.5
        ax.text(
            middle, height, name, ha="center", va="center", fontsize=9, color="#555555", bbox=box
        )
        ax.plot([end, end], [0, height], ":", color=GREY, lw=1)


def _as_fraction(rate):
    """Return a learning rate as text: "1/4" for 0.25, "2" for 2.0."""
    if rate < 1:
        return f"1/{round(1 / rate)}"
    return f"{rate:g}"


def curves(panels: Mapping) -> None:
    """Draw training curves side by side, on the same axes.

    The line is the mean of the seeds, the band holds 8 of 10 seeds.

    panels  {title: {name: `Runs`}}; each name gets a line
    """
    figure, axes = canvas(4.5 * len(panels), 3.2, columns=len(panels))
    axes = np.atleast_1d(axes)
    for ax, (title, by_name) in zip(axes, panels.items(), strict=True):
        _draw_losses(ax, by_name)
        ax.set_title(title, fontsize=10)
        ax.legend(frameon=False, fontsize=SMALL_TEXT)
    lowest, highest = zip(*(ax.get_ylim() for ax in axes), strict=True)
    for ax in axes:
        ax.set_ylim(min(lowest), max(highest))
        _mark_losses(ax)
    _show(figure)


def _draw_losses(ax, by_name):
    """Draw the training loss against the epochs, with a line and a band for each name.

    by_name  {name: `Runs`}
    """
    for colour, (name, runs) in zip(COLOURS, by_name.items(), strict=False):
        epochs = np.arange(1, runs.losses.shape[1] + 1)
        low, high = np.quantile(runs.losses, BAND, axis=0)
        ax.plot(epochs, runs.losses.mean(0), color=colour, label=name)
        ax.fill_between(epochs, low, high, color=colour, alpha=0.15, lw=0)
    ax.set(xlabel="epoch", ylabel="training loss", yscale="log", xlim=(0, None))
    _mark_losses(ax)


def _mark_losses(ax):
    """Label an axis of losses at 1, 2, 5, 10 and so on, within its range."""
    low, high = ax.get_ylim()
    ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10) if low <= tick <= high]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


def schedules(
    by_name: Mapping[str, Callable], *, steps: int, learning_rate: float, runs: Mapping
) -> None:
    """Draw schedules of the learning rate (left) and the training losses they led to (right).

    Both pictures have the epochs on the x axis.

    by_name        {name: schedule}; a schedule is a function (step, steps) -> factor
    steps          steps of the whole training
    learning_rate  number that is multiplied by the factor of each step, or {name: number}
    runs           {name: `Runs`} with the same names
    """
    figure, (left, right) = canvas(9, 3.2, columns=2)
    epochs = next(iter(runs.values())).losses.shape[1]
    # Where lines lie on each other, the earlier and wider one shows at the edges of the later one.
    widths = 1.5 + np.arange(len(by_name))[::-1]
    for colour, width, (name, schedule) in zip(COLOURS, widths, by_name.items(), strict=False):
        rate = learning_rate
        if isinstance(learning_rate, Mapping):
            rate = learning_rate[name]
        rates_by_step = [rate * schedule(step, steps) for step in range(steps)]
        left.plot(
            np.arange(steps) * epochs / steps, rates_by_step, lw=width, color=colour, label=name
        )
    left.set(xlabel="epoch", ylabel="learning rate", ylim=(0, None), xlim=(0, epochs))
    left.legend(frameon=False, fontsize=SMALL_TEXT)
    _draw_losses(right, runs)
    right.set_xlim(0, epochs)
    right.legend(frameon=False, fontsize=SMALL_TEXT)
    _show(figure)


def layers(ratios: Any, schedule: Callable, *, learning_rate: float, names: Sequence[str]) -> None:
    """Draw |w| / |g| of each layer (left), and the learning rate times this ratio (right).

    |w| is the norm of a layer's weight, |g| the norm of its gradient. Both pictures have the steps
    on the x axis.

    ratios         (trainings, steps, layers) of |w| / |g|; the lines are geometric means over the
                   trainings
    schedule       function (step, steps) -> factor
    learning_rate  number that is multiplied by the factor of each step
    names          names of the layers
    """
    figure, (left, right) = canvas(9, 3.3, columns=2)
    steps = ratios.shape[1]
    by_step = np.exp(np.log(ratios).mean(0))  # (steps, layers)
    rates_by_step = by_step * [[learning_rate * schedule(step, steps)] for step in range(steps)]
    for colour, name, ratio, rate in zip(COLOURS, names, by_step.T, rates_by_step.T, strict=False):
        left.plot(ratio, color=colour, label=name)
        right.plot(rate, color=colour)
    middle = np.exp(np.log(rates_by_step).mean(1))
    right.plot(middle, color="black", lw=2.5, label="geometric mean of the layers")
    left.set(xlabel="step", ylabel="|w| / |g|", ylim=(0, None))
    right.set(
        xlabel="step", ylabel="learning rate of the layer", ylim=(0, 1.25 * rates_by_step.max())
    )
    left.legend(frameon=False, fontsize=SMALL_TEXT)
    right.legend(frameon=False, fontsize=SMALL_TEXT, loc="upper right")
    _show(figure)


def ladder(
    rungs: Mapping, against: Any, *, gap: Any = None, groups: Mapping | None = None, label: str = ""
) -> None:
    """Draw a row for each change of a training, the best on top: how much accuracy it gains.

    The gain is the accuracy of the change minus that of `against`, seed by seed. Dots are seeds,
    the bar is the 95 % interval of their mean.

    rungs    {name of the change: `Runs`}
    against  the `Runs` that all are compared with, the line at 0
    gap      the `Runs` of the worst case. Each row then says which share of the difference between
             `gap` (0 %) and `against` (100 %) the change has won back. None: no shares
    groups   {text of the legend: names of rungs}, each in a colour of its own; the others are blue
    label    label of the x axis; "": a difference of test accuracy in points
    """
    groups = groups or {}
    rows = sorted(rungs.items(), key=lambda row: np.mean(row[1] - against))
    figure, ax = canvas(8, 1.1 + 0.33 * len(rows))
    colours = {}
    for colour, names in zip(COLOURS[1:], groups.values(), strict=False):
        colours.update(dict.fromkeys(names, colour))
    for height, (name, runs) in enumerate(rows):
        colour = colours.get(name, COLOURS[0])
        points = runs - against
        interval = runs.lead(against)
        ax.plot(points, [height] * len(points), "o", ms=3.5, alpha=0.3, color=colour)
        ax.plot(
            [interval.low, interval.high],
            [height, height],
            lw=4,
            color=colour,
            solid_capstyle="butt",
        )
        if gap is not None:
            won_back = 100 * np.mean(runs - gap) / np.mean(against - gap)
            side = ax.get_yaxis_transform()
            ax.text(1.02, height, f"{won_back:.0f} %", transform=side, va="center", color=colour)
    if gap is not None:
        ax.text(1.02, len(rows) - 0.35, "won back", transform=ax.get_yaxis_transform(), fontsize=9)
    for colour, text in zip(COLOURS[1:], groups, strict=False):
        ax.plot([], [], lw=4, color=colour, label=text)
    ax.axvline(0, color=GREY, lw=1)
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.set(xlabel=label or "test accuracy, difference (points)", ylim=(-0.7, len(rows) - 0.2))
    if groups:
        # the best rows, on top, lie on the right
        ax.legend(frameon=False, fontsize=SMALL_TEXT, loc="upper left")
    _show(figure)


def _show(figure):
    from IPython.display import display

    display(figure)
