"""Curves through a few measured points: one number against a setting that was tried in steps."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from IPython.display import display

from labkit.plots.canvas import COLOURS, GREY, canvas


def line(
    by_x: Mapping[Any, Any], *, x: str, y: str, reference: tuple[float, str] | None = None
) -> None:
    """Show a curve, or several, through points at equal distances.

    by_x       {x: y} for one curve, or {name: {x: y}} for several with the same x
    x, y       labels of the axes, with units
    reference  (height, text) of a dashed line
    """
    several = isinstance(next(iter(by_x.values())), Mapping)
    curves = by_x if several else {"": by_x}
    settings = list(next(iter(curves.values())))
    figure, ax = canvas(6.5, 3.0)

    # The curves, each with its name at its end, or with its numbers where it is the only one.
    highest = max(max(points.values()) for points in curves.values())
    ends = _apart([points[settings[-1]] for points in curves.values()], 0.07 * highest)
    for colour, (name, points), end in zip(COLOURS, curves.items(), ends, strict=False):
        heights = [points[setting] for setting in settings]
        ax.plot(range(len(settings)), heights, "o-", color=colour, label=name or "_")
        if several:
            ax.text(len(settings) - 0.9, end, name, color=colour, va="center", fontsize=9)
        else:
            _write_heights(ax, heights)

    # The reference and the axes.
    if reference:
        height, text = reference
        ax.axhline(height, color=GREY, ls="--", lw=1)
        ax.annotate(text, (0, height), (0, 4), textcoords="offset points", color=GREY, fontsize=9)
    ax.set(xlabel=x, ylabel=y, ylim=(0, 1.15 * highest))
    ax.set_xticks(range(len(settings)), settings)
    display(figure)


def _apart(heights, gap):
    """Return heights for labels, in their order, at least `gap` apart.

    A height that is less than `gap` above the one below it is moved up.
    """
    moved = list(heights)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for lower, upper in pairwise(order):
        moved[upper] = max(moved[upper], moved[lower] + gap)
    return moved


def _write_heights(ax, heights):
    """Write each number above its point, to the right of a falling line."""
    for number, height in enumerate(heights):
        ax.annotate(
            f"{height:.1f}", (number, height), (4, 6), textcoords="offset points", fontsize=9
        )
