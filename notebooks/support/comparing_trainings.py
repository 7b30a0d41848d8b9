"""For the lesson on comparing trainings: its pictures, and the published table.

Nothing here trains or judges; the lesson does.
"""

import numpy as np
import pandas as pd
from IPython.display import display

from labkit.ledger import published
from labkit.measure.stats import mean_interval, percentile_interval
from labkit.plots import COLOURS, GREY, canvas

SMALL_TEXT = 8.5  # points
ALARMS, NAMED = COLOURS[1], COLOURS[0]
ROW = 0.36  # inches


def draw_runs(accuracies):
    """Draw a dot per training, a row per name, and a black line at the mean of each row.

    accuracies  {name: (seeds,) percent}
    """
    figure, ax = canvas(6.5, 0.8 + 0.7 * len(accuracies))
    for row, (colour, values) in enumerate(zip(COLOURS, accuracies.values(), strict=False)):
        jitter = np.random.default_rng(0).uniform(-0.25, 0.25, len(values))
        ax.plot(values, row + jitter, "o", color=colour, ms=4, alpha=0.5)
        ax.vlines(np.mean(values), row - 0.4, row + 0.4, color="black", lw=2)
    ax.set_yticks(range(len(accuracies)), list(accuracies))
    ax.set_ylim(len(accuracies) - 0.5, -0.5)
    ax.set_xlabel("test accuracy (%)")
    display(figure)


def draw_coverage(curves):
    """Draw how many studies' intervals contain the truth, against the trainings in a study.

    curves  {kind of interval: {trainings: percent}}
    """
    figure, ax = canvas(6.5, 2.8)
    for colour, (name, percent_by_count) in zip(COLOURS, curves.items(), strict=False):
        ax.plot(
            list(percent_by_count), list(percent_by_count.values()), "o-", color=colour, label=name
        )
    ax.axhline(95, color=GREY, ls="--", lw=1, label="promised: 95 %")
    ax.set(xlabel="trainings in a study", ylabel="contain the truth (%)", ylim=(70, 101))
    ax.set_xticks(list(next(iter(curves.values()))))
    ax.legend(frameon=False, loc="lower right", fontsize=SMALL_TEXT)
    display(figure)


def draw_pairs(one, other, names):
    """Draw a dot per seed: the accuracies of two networks; on the dashed line both are equal.

    one, other  (seeds,) percent
    names       names of the two networks
    """
    figure, ax = canvas(4.4, 4.0)
    ax.plot(one, other, "o", color=COLOURS[0], ms=5, alpha=0.6)
    low = min(np.min(one), np.min(other)) - 0.1
    high = max(np.max(one), np.max(other)) + 0.1
    ax.plot([low, high], [low, high], color=GREY, ls="--")
    above = {"color": "#555555", "fontsize": SMALL_TEXT, "transform": ax.transAxes}
    ax.text(0.04, 0.94, f"{names[1]} ahead", **above)
    ax.text(0.96, 0.04, f"{names[0]} ahead", ha="right", **above)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    ax.set(xlabel=f"{names[0]}: test accuracy (%)", ylabel=f"{names[1]} (%)")
    display(figure)


def draw_board(board):
    """Draw a row per way to compare, and return the figure.

    board  {way: (percent of studies that name a winner where there is none, percent that name the
           true winner where there is one, or None)}
    """
    figure, ax = canvas(8, 1.2 + ROW * len(board))
    ax.axvline(5, color=ALARMS, ls=":", lw=1)
    ax.axvline(80, color=NAMED, ls=":", lw=1)
    for row, (alarms, named) in enumerate(board.values()):
        if named is not None:
            ax.plot([alarms, named], [row, row], color=GREY, lw=1.5, zorder=1)
            ax.plot(named, row, "o", ms=9, color=NAMED)
            _write_beside(ax, named, row, NAMED, to_the_right=named >= alarms)
        ax.plot(alarms, row, "o", ms=9, color=ALARMS)
        _write_beside(ax, alarms, row, ALARMS, to_the_right=named is None or named < alarms)
    ax.plot([], [], "o", ms=8, color=ALARMS, label="name a winner where there is none (goal: 5 %)")
    ax.plot([], [], "o", ms=8, color=NAMED, label="name the true winner (goal: 80 %)")
    ax.set_yticks(range(len(board)), list(board))
    ax.set_ylim(len(board) - 0.4, -0.6)
    ax.set(xlim=(-8, 112), xlabel="studies (%)")
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=SMALL_TEXT)
    display(figure)
    return figure


def _write_beside(ax, percent, row, colour, *, to_the_right):
    offset, side = ((8, 0), "left") if to_the_right else ((-8, 0), "right")
    style = {"textcoords": "offset points", "fontsize": 9, "color": colour}
    ax.annotate(f"{percent:.0f}", (percent, row), offset, ha=side, va="center", **style)


def draw_rates(accuracies_by_rate):
    """Draw two networks against the learning rate: left accuracies, right the lead of the second.

    Lines are means; the lead's small dots are seeds, its bars 95 % intervals.

    accuracies_by_rate  {name: {learning rate: (seeds,) percent}} of two names, with the same seeds
    """
    figure, (left, right) = canvas(9, 3.2, columns=2)
    (other_name, others), (name, ours) = accuracies_by_rate.items()
    rates = sorted(ours)
    for colour, (network, accuracies) in zip(COLOURS, accuracies_by_rate.items(), strict=False):
        means = [np.mean(accuracies[rate]) for rate in rates]
        left.plot(range(len(rates)), means, "o-", color=colour, label=network)
    left.legend(frameon=False, loc="lower center", fontsize=SMALL_TEXT)
    left.set(ylabel="accuracy on held-out images (%)")

    leads = {rate: np.subtract(ours[rate], others[rate]) for rate in rates}
    _draw_leads(right, leads)
    above = {"color": "#555555", "fontsize": SMALL_TEXT, "transform": right.transAxes}
    right.text(0.99, 0.94, f"{name} ahead", ha="right", **above)
    right.text(0.01, 0.04, f"{other_name} ahead", **above)
    right.set(ylabel="lead (points)")
    for ax in (left, right):
        ax.set_xticks(range(len(rates)), [f"1/{1 / rate:.0f}" for rate in rates])
        ax.set(xlabel="learning rate of both")
    display(figure)


def _draw_leads(ax, leads_by_rate):
    """Draw the leads at each learning rate: a dot per seed, a bar for the interval of the mean."""
    ax.axhline(0, color=GREY, lw=1)
    for column, leads in enumerate(leads_by_rate.values()):
        jitter = np.linspace(-0.15, 0.15, len(leads))
        ax.plot(column + jitter, leads, "o", ms=3, alpha=0.25, color=GREY)
        ends = list(mean_interval(leads))
        ax.plot([column, column], ends, lw=5, color="black", solid_capstyle="butt")
    means = [np.mean(leads) for leads in leads_by_rate.values()]
    ax.plot(range(len(means)), means, "-", color="black", lw=1)


def bootstrap(statistic, one, other, draws=1000):
    """Return `statistic(one, other)` with its 95 % `Interval`, by drawing pairs with replacement.

    one, other  (pairs,) numbers
    draws       how often pairs are drawn
    """
    rng = np.random.default_rng(0)
    pairs = len(one)
    estimates = []
    for _ in range(draws):
        drawn = rng.integers(0, pairs, pairs)
        estimates.append(statistic(one[drawn], other[drawn]))
    return percentile_interval(estimates, pairs, statistic(one, other))


def published_accuracies():
    """Return the README's percentages of one training each, uncompiled: a Series by activation."""
    table = published.table("activations")
    plain = table[(table["batch"] == 64) & ~table["compiled"].astype(bool)]
    return 100 * plain.set_index("activation")["accuracy"].loc[["ReLU", "HardSwish"]]


def beside_published(runs_by_name):
    """Return the published accuracies beside ours: a DataFrame, a row per activation.

    runs_by_name  {activation: (seeds,) percent}
    """
    rows = {}
    theirs = published_accuracies()
    for name, accuracies in runs_by_name.items():
        rows[name] = {
            "published, one run": f"{theirs[name]:.2f} %",
            f"here, mean of {len(accuracies)}": f"{np.mean(accuracies):.2f} %",
            "spread": f"{np.std(accuracies, ddof=1):.2f} points",
            "published, spread": "unknown",
        }
    return pd.DataFrame(rows).T
