"""Draw a service: response times over a day, and several networks compared by metrics."""

from collections.abc import Collection, Mapping
from typing import Any

from IPython.display import display

from labkit.format import shown
from labkit.plots.canvas import COLOURS, GREY, canvas, log_axis

ROW = 0.36  # inches for a metric


def responses(days: Mapping[str, Any], *, unit: str = "ms") -> None:
    """Show the response time of every request of a day, in the order in which requests arrive.

    days  {name: (arrivals in seconds, response times)}; each name gets a line
    unit  unit of the response times
    """
    figure, ax = canvas(6.5, 2.8)
    for (name, (arrivals, times)), colour in zip(days.items(), COLOURS, strict=False):
        ax.plot(arrivals, times, color=colour, lw=1, label=name)
    ax.set(xlabel="when a request arrives (s)", ylabel=f"response time ({unit})", ylim=(0, None))
    ax.legend(frameon=False, loc="upper left")
    display(figure)


def trade_offs(board: Any, *, reference: str, higher_is_better: Collection[str]) -> None:
    """Show how many times as good each network is as a reference network, with one row per metric.

    Dots further to the right are better. The measured numbers stand beside the picture, one column
    for each network.

    board             DataFrame: a row for each network, a column for each metric, named with its
                      unit; NaN: not measured
    reference         name of the network that stands at 1
    higher_is_better  names of the metrics for which a large number is good; for all others a small
                      number is good
    """
    board = board.astype(float)
    figure, ax = canvas(7.5, 1.2 + ROW * len(board.columns))
    ax.axvline(1, color=GREY, lw=1, zorder=0)
    for row, metric in enumerate(board.columns):
        if board[metric].isna().any():
            ax.text(
                1,
                row,
                "not measured on this machine",
                ha="center",
                va="center",
                color=GREY,
                fontsize=9,
            )
            continue
        times_as_good = board[metric] / board[metric][reference]
        if metric not in higher_is_better:
            times_as_good = 1 / times_as_good
        _draw_row(ax, row, times_as_good)
    log_axis(ax, "x", "{:g}".format)
    ax.margins(x=0.12)
    ax.set_xlabel(f"times as good as {reference}; to the right is better")

    # The metrics on the left, what was measured on the right, below the names of the networks.
    ax.set_yticks(range(len(board.columns)), list(board.columns))
    right = ax.twinx()
    right.spines[:].set_visible(False)
    right.set_yticks(
        range(-1, len(board.columns)), _columns(board), family="monospace", fontsize=8.5
    )
    right.tick_params(length=0)
    for side in (ax, right):
        side.set_ylim(len(board.columns) - 0.5, -1.4)
    figure.legend(
        *_named_dots(ax, board.index), loc="outside upper center", ncols=len(board), frameon=False
    )
    display(figure)


def _draw_row(ax, row, times_as_good):
    """Draw the row of one metric: a dot for each network, and a line through the dots.

    times_as_good  Series: {name of a network: times as good as the reference}
    """
    ax.plot([times_as_good.min(), times_as_good.max()], [row, row], color=GREY, lw=1.5, zorder=1)
    for colour, name in zip(COLOURS, times_as_good.index, strict=False):
        ax.plot(times_as_good[name], row, "o", color=colour, ms=8)


def _columns(board):
    """Return the numbers of a board as lines of text, with a column for each network.

    The first line holds the names of the networks, each further line the numbers of one metric.
    """
    lines = [list(board.index)]
    for metric in board.columns:
        lines.append(["-" if value != value else shown(value) for value in board[metric]])
    width = 1 + max(len(text) for line in lines for text in line)
    return ["".join(text.rjust(width) for text in line) for line in lines]


def _named_dots(ax, names):
    """Return (handles, labels) for a legend with a dot for each name."""
    handles = []
    for colour, _ in zip(COLOURS, names, strict=False):
        handles += ax.plot([], [], "o", color=colour, ms=8)
    return handles, list(names)
