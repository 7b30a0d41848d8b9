"""Draw a flame chart: a picture of measured calls as boxes, with callees under their callers."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.colors import to_rgba

from labkit.plots.canvas import GREY, canvas

LETTERS = 120  # number of letters that fit into the whole width
FEWEST_LETTERS = 4  # a shorter text would say nothing


def flame(boxes: Sequence[tuple], *, label: str, bands: Mapping[str, str]) -> Any:
    """Draw a flame chart: boxes in rows, callees under their callers. Returns the figure.

    boxes  list of (depth, start, width, name): depth 0 is the top row; start and width have the
           unit of the x axis
    label  label of the x axis, with its unit
    bands  {name of a box: colour}. A box with such a name has this colour. Boxes under it have the
           same colour, but paler; a box under it with a name in `bands` begins a colour of its own
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
    """Write a name into its box, cut to `letters` letters.

    Nothing is written if fewer than `FEWEST_LETTERS` letters fit.
    """
    if letters < FEWEST_LETTERS:
        return
    text = name if len(name) <= letters else name[: letters - 1] + "…"
    ax.text(middle, depth, text, ha="center", va="center", fontsize=8, clip_on=True)
