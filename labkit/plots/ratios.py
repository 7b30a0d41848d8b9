"""Draw measured ratios with their intervals, one row for each ratio."""

import numpy as np

from labkit.format import shown
from labkit.plots.canvas import COLOURS, GREY, WIDE, canvas, log_axis

COLOUR_OF_VERDICT = {"faster": COLOURS[2], "slower": COLOURS[1]}
FRAME = 2  # a frame around ratios ends at this factor beyond the outermost median


def ratio(result):
    """Draw the ratios of a comparison with their 95 % intervals. Returns the figure.

    Within the grey band this machine cannot distinguish a ratio from 1. A filled dot is the ratio
    of arms that run alone. A hollow diamond is the ratio where calls of all arms alternate; it is
    drawn only where the two ratios differ. A very long interval is cut off by the frame, with an
    arrow, so that the others can be seen.

    result  a `measure.Comparison`
    """
    rows = result.rows
    medians = [1.0, *(row.median for row in rows)]
    medians += [row.beside for row in rows if row.beside_differs]
    lowest = min(medians) / FRAME
    highest = max(medians) * FRAME
    figure, ax = canvas(height=1.2 + 0.45 * len(rows))
    floor = min(result.null.floor, highest)  # endless where there are too few pairs
    ax.axvspan(1 / (1 + floor), 1 + floor, color=GREY, alpha=0.2, lw=0)
    ax.axvline(1, color=GREY, lw=1)
    for height, row in enumerate(rows):
        colour = COLOUR_OF_VERDICT.get(row.verdict, GREY)
        low, high = np.clip([row.low, row.high], lowest, highest)
        ax.plot([low, high], [height, height], color=colour, lw=3, solid_capstyle="butt")
        for end, drawn, arrow in ((row.low, low, "<"), (row.high, high, ">")):
            if end != drawn:
                ax.plot(drawn, height, arrow, color=colour, ms=8, clip_on=False)
        ax.plot(row.median, height, "o", color=colour, ms=7)
        if row.beside_differs:
            ax.plot(row.beside, height, "D", color=colour, mfc="white", ms=6)
        # beside the axes, where no interval and no line runs through it
        text = f"{shown(row.median, 'x')}  {row.verdict}"
        ax.text(1.02, height, text, transform=ax.get_yaxis_transform(), va="center", color=colour)
    ax.set_yticks(range(len(rows)), [row.arm for row in rows])
    legend = "grey: not distinguishable"
    if any(row.beside_differs for row in rows):
        legend = f"{legend}; hollow: calls alternate"
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"times as fast as {rows[0].baseline} ({legend})")
    if max(medians) > WIDE * min(medians):
        log_axis(ax, "x", "{:g}".format)
    else:
        ax.locator_params("x", nbins=5)
    return figure
