"""Draw curves through a few measured points, each for one value of a setting."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from IPython.display import display

from labkit.plots.canvas import COLOURS, GREY, canvas


def line(
    by_x: Mapping[Any, Any], *, x: str, y: str, reference: tuple[float, str] | None = None
) -> None:
    """Show one curve, or several, through a few points.

    The points have equal distances on the x axis, whatever their x is.

    by_x       {x: y} for one curve, or {name: {x: y}} for several with the same x
    x, y       labels of the axes, with units
    reference  (height, text): a dashed line at this height, with a text
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
    """Move heights of labels apart, so that their distances are at least `gap`. Returns them.

    A height that is less than `gap` above the next lower one is moved up. The order of the list
    stays.
    """
    moved = list(heights)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for lower, upper in pairwise(order):
        moved[upper] = max(moved[upper], moved[lower] + gap)
    return moved


def _write_heights(ax, heights):
    """Write each number above and right of its point, where a falling line does not cross it."""
    for number, height in enumerate(heights):
        ax.annotate(
            f"{height:.1f}", (number, height), (4, 6), textcoords="offset points", fontsize=9
        )
