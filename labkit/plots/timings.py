"""Draw times and other repeated measurements.

Each function shows its picture and returns None.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from IPython.display import display

from labkit.format import shown
from labkit.plots.canvas import COLOURS, FEW, GREY, WIDE, canvas, log_axis

ROW = 0.34  # inches for a row
ROW_OF_MANY = 0.2
DOT = 0.35  # opacity of a single value; `_drawn_values` finds the single values by it


def dots(
    by_name: Mapping[str, Any],
    *,
    unit: str,
    label: str = "",
    reference: float | None = None,
    interval: Callable | None = None,
) -> None:
    """Show a row for each name: small dots are single values, a bar is an interval.

    A large dot marks the median, or the estimate of the interval. Its number stands beside the row.

    by_name    {name: (n,) values, one per series or seed}. An `Interval` in place of the values is
               drawn without small dots. For several panels: {title: {name: values}}
    unit       unit of the values
    label      what the values are; it stands before the unit
    reference  value at which a vertical line is drawn; an interval that does not contain this value
               is orange
    interval   function (values) -> (low, high), such as `median_interval`; None: no bar is drawn
               for values
    """
    panels = by_name if isinstance(next(iter(by_name.values())), Mapping) else {"": by_name}
    most = max(len(rows) for rows in panels.values())
    width = 7 if len(panels) > 1 else 6.5
    row_height = ROW if most <= FEW else ROW_OF_MANY
    figure, axes = canvas(width, 0.9 + row_height * most, columns=len(panels))
    axes = np.atleast_1d(axes)

    # The rows of each panel; then one x axis for all.
    for ax, (title, rows) in zip(axes, panels.items(), strict=True):
        for row, values in enumerate(rows.values()):
            _dots_in_a_row(ax, row, values, unit, reference, interval)
        if reference is not None:
            ax.axvline(reference, color=GREY, lw=1, zorder=0)
        _name_rows(ax, rows)
        ax.set(xlabel=_axis(label, unit), title=title)
    _frame(axes)
    display(figure)


def _dots_in_a_row(ax, row, values, unit, reference, interval):
    """Draw the values, their interval and their middle (`_summary`) in one row.

    The number of the middle stands beside the row. The arguments are those of `dots`.

    values  (n,) values, or an `Interval`
    """
    middle, ends = _summary(values, interval)
    misses = reference is not None and bool(ends) and not ends[0] <= reference <= ends[1]
    colour = COLOURS[1] if misses else COLOURS[0]
    if not hasattr(values, "low"):
        ax.plot(values, np.full(len(values), row), "o", color=GREY, ms=3, alpha=DOT, mew=0)
    if ends:
        ax.plot(ends, [row, row], color=colour, lw=4, alpha=0.6)
    ax.plot(middle, row, "o", color=colour, ms=6)
    text = f"{shown(middle)} {unit}"
    ax.text(1.02, row, text, transform=ax.get_yaxis_transform(), va="center", color=colour)


def _frame(axes):
    """Give all panels the same range of x, in which every interval is visible.

    Single values far outside this range are not drawn. The label of the axis says how many there
    are.
    """
    drawn = [_drawn_values(ax) for ax in axes]
    intervals = np.concatenate([ends for _, ends in drawn])
    values = np.concatenate([dots for dots, _ in drawn])
    low = intervals.min()
    high = intervals.max()
    if len(values):
        low = min(low, np.quantile(values, 0.1))
        high = max(high, np.quantile(values, 0.9))
    room = 0.25 * (high - low) or 0.05 * abs(high) or 1.0
    for ax, (dots, _) in zip(axes, drawn, strict=True):
        ax.set_xlim(low - room, high + room)
        outside = int(np.sum((dots < low - room) | (dots > high + room)))
        if outside:
            ax.set_xlabel(f"{ax.get_xlabel()}\n{outside} of {len(dots)} dots lie outside")


def _drawn_values(ax):
    """Return what is drawn as two arrays of x: (single values, ends and middles of intervals)."""
    dots = []
    ends = []
    for line in ax.lines:
        x = np.atleast_1d(line.get_xdata())
        if line.get_alpha() == DOT:
            dots.extend(x)
        else:
            ends.extend(x)
    return np.array(dots), np.array(ends)


def bars(
    by_name: Mapping[str, Any], *, unit: str, label: str = "", interval: Callable | None = None
) -> None:
    """Show a horizontal bar for each name, with its number and, if there is one, its interval.

    by_name   {name: a number, an `Interval`, or (n,) values}; the bar of values ends at their
              median, or at the estimate of `interval`
    unit      unit of the values
    label     what the values are
    interval  function (values) -> (low, high), such as `median_interval`; None: values are drawn
              without an interval
    """
    summaries = [_summary(values, interval) for values in by_name.values()]
    heights = [middle for middle, _ in summaries]
    figure, ax = canvas(6.5, 0.9 + ROW * len(summaries))
    ax.barh(range(len(summaries)), heights, color=COLOURS[0], height=0.6)
    # The interval, and the number to the right of both.
    for row, (middle, ends) in enumerate(summaries):
        if ends:
            ax.plot(ends, [row, row], color="black", lw=1.5)
        right = max([middle, *ends])
        ax.annotate(
            f"{shown(middle)} {unit}", (right, row), (5, 0), textcoords="offset points", va="center"
        )
    _name_rows(ax, by_name)
    ax.set_xlabel(_axis(label, unit))
    if min(heights) > 0 and max(heights) > WIDE * min(heights):
        log_axis(ax, "x", "{:g}".format)
    ax.margins(x=0.15)
    display(figure)


def calls(panels: Mapping[str, Mapping[str, Any]], *, unit: str = "ms") -> None:
    """Show the times of single calls in their order, one panel for each title.

    panels  {title: {name: (numbers of the calls, their times)}}
    unit    unit of the times
    """
    figure, axes = canvas(3.5 * len(panels) + 0.3, 2.8, columns=len(panels))
    times_of_arms = []
    for rows in panels.values():
        times_of_arms += [times for _, times in rows.values()]
    all_times = np.concatenate(times_of_arms)
    limits = 0.8 * all_times.min(), 2.5 * np.quantile(all_times, 0.95)
    for ax, (title, rows) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for (name, (numbers, times)), colour in zip(rows.items(), COLOURS, strict=False):
            ax.plot(numbers, times, ".", color=colour, alpha=0.6, label=name)
        ax.set(title=title, xlabel="number of the call", ylim=limits)
        log_axis(ax, "y", "{:g}".format)
        ax.legend(fontsize=9, frameon=False, loc="upper left")
    np.atleast_1d(axes)[0].set_ylabel(f"time ({unit})")
    display(figure)


def cures(stopwatch: Mapping[str, float], cured: Mapping[str, float | None], *, unit: str) -> None:
    """Show how wrong a mistaken measurement is, before and after its mistake is cured.

    Each row has two dots: the result with the mistake (orange) and without it (blue). A result is
    given as a multiple of the truth, above 0.

    stopwatch  {name: result with the mistake}
    cured      {name: result without the mistake}; None where the measurement is refused
    unit       unit of the multiples, for the label of the x axis
    """
    figure, ax = canvas(7, 0.9 + 0.42 * len(stopwatch))
    ax.axvline(1, color=GREY, lw=1)
    for row, (name, orange) in enumerate(stopwatch.items()):
        # two dots with a line between them, each with its number on the outer side
        multiple = cured[name]
        blue = 1.0 if multiple is None else multiple  # None: refused
        ax.plot([blue, orange], [row, row], color=GREY, lw=2, zorder=1)
        if multiple is not None:
            ax.plot(blue, row, "o", ms=9, color=COLOURS[0])
        ax.plot(orange, row, "o", ms=9, color=COLOURS[1])
        blue_text = "refused" if multiple is None else shown(blue, "x")
        _write_beside(ax, (orange, row), shown(orange, "x"), to_the_right=orange >= blue)
        _write_beside(ax, (blue, row), blue_text, to_the_right=orange < blue)
    _name_rows(ax, stopwatch)
    log_axis(ax, "x", "{:g}".format)
    ax.set_xlabel(f"{unit} (1 is the truth)\norange: what the stopwatch said; blue: cured")
    ax.margins(x=0.22, y=0.1)
    display(figure)


def _write_beside(ax, point, text, *, to_the_right):
    """Write a text to the right or to the left of a point (x, row)."""
    if to_the_right:
        ax.annotate(text, point, (9, 0), textcoords="offset points", ha="left", va="center")
    else:
        ax.annotate(text, point, (-9, 0), textcoords="offset points", ha="right", va="center")


def _summary(values, interval):
    """Return (middle, ends) of a number, an `Interval` or values.

    The middle is the number itself, the estimate of an interval, or the median of values. The ends
    are the list [low, high] of the interval, or [] if there is no interval or an end is infinite.

    interval  function (values) -> (low, high), or None
    """
    if np.ndim(values) == 0 and not hasattr(values, "low"):
        return float(values), []
    estimate = values
    if not hasattr(values, "low"):
        estimate = interval(values) if interval else []
    middle = getattr(estimate, "median", None)
    if middle is None:
        middle = float(np.median(values))
    ends = list(estimate)
    if not np.all(np.isfinite(ends)):
        ends = []
    return middle, ends


def _name_rows(ax, by_name):
    """Label the rows, the first one on top."""
    ax.set_yticks(range(len(by_name)), list(by_name))
    ax.set_ylim(len(by_name) - 0.4, -0.6)


def _axis(label, unit):
    """Return the label of an axis: "label (unit)", or the unit alone if there is no label."""
    return f"{label} ({unit})" if label else unit
