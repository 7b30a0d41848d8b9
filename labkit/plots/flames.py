"""A flame chart of measured calls."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.colors import to_rgba

from labkit.plots.canvas import GREY, canvas

LETTERS = 120  # number of letters that fit into the whole width
FEWEST_LETTERS = 4  # a shorter text would say nothing


def flame(boxes: Sequence[tuple], *, label: str, bands: Mapping[str, str]) -> Any:
    """Draw a flame chart: boxes in rows, callees under their callers. Returns the figure.

    boxes  list of (depth, start, width, name)
    label  of the axis on which the boxes begin and end, with its unit
    bands  {name of a box: colour}. The box, a band, has this colour strongly, and all boxes under
           it have it faintly, down to a band of another name
    """
    deepest = max(depth for depth, *_ in boxes)
    figure, ax = canvas(9, 1.3 + 0.3 * deepest)
    end = max(start + width for _, start, width, _ in boxes)
    callers: list = []  # the boxes around the present one, as (end, colour)
    for depth, start, width, name in sorted(boxes, key=lambda box: (box[1], -box[2], box[0])):
        while callers and callers[-1][0] <= start:
            callers.pop()
        if name in bands:
            colour, opacity = bands[name], 0.9
        else:
            colour, opacity = callers[-1][1] if callers else GREY, 0.45
        callers.append((start + width, colour))
        filled = to_rgba(colour, opacity)
        ax.broken_barh(
            [(start, width)], (depth - 0.46, 0.92), facecolor=filled, edgecolor="white", lw=0.4
        )
        _write(ax, name, start + width / 2, depth, letters=int(LETTERS * width / end))
    ax.set(xlabel=label, xlim=(0, end), ylim=(deepest + 0.5, -0.5), yticks=[])
    ax.spines["left"].set_visible(False)
    return figure


def _write(ax, name, middle, depth, *, letters):
    """Write a name into its box, cut to `letters` letters; write nothing if too few fit."""
    if letters < FEWEST_LETTERS:
        return
    text = name if len(name) <= letters else name[: letters - 1] + "…"
    ax.text(middle, depth, text, ha="center", va="center", fontsize=8, clip_on=True)
