"""Make the empty picture that every drawing starts from, and describe a finished picture in words.

Notebooks show the picture without a display. The words are for a reader who cannot see it.
"""

import io
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

# Okabe-Ito: safe for all eyes
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#888888"
FEW = 12  # the most points that can all carry a number
WIDE = 10  # the factor of a range from which on an axis is logarithmic


drawn: dict[str, "Picture"] = {}  # {name of a call of labkit.plots: the last picture that it drew}


class Picture(Figure):
    """A matplotlib figure that a notebook shows as the value of a cell, without pyplot.

    The newest picture of each function of labkit.plots is kept in `drawn`.
    """

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        drawn[_drawing_call()] = self

    def _repr_png_(self):
        page = io.BytesIO()
        self.savefig(page, format="png", dpi=110)
        return page.getvalue(), {"alt": in_words(self)}


def _drawing_call():
    """Return the name of the function of labkit.plots that makes a picture, such as "ladder".

    A `Picture` that is made outside labkit.plots has the name "figure".
    """
    frame = sys._getframe(2)
    name = "figure"
    while frame and frame.f_globals.get("__name__", "").startswith("labkit.plots"):
        name = frame.f_code.co_name
        frame = frame.f_back
    return name


def in_words(figure):
    """Describe a figure for a reader who cannot see it. Returns a text.

    The text has titles, axes, texts, bars, and both ends of each line.
    """
    return " ".join(filter(None, map(_axes_in_words, figure.axes)))


def _axes_in_words(ax):
    titles = [ax.get_title(loc=side) for side in ("left", "center", "right")]
    labels = [label for label in (ax.get_ylabel(), ax.get_xlabel()) if label]

    # What is drawn: words, lines, bars, and areas with a name.
    texts = [text.get_text() for text in (*ax.get_yticklabels(), *ax.get_xticklabels(), *ax.texts)]
    phrases = [text for text in texts if not _is_number(text)]
    phrases += [_line_in_words(line) for line in _telling_lines(ax.get_lines())]
    phrases += _bars_in_words(ax.containers)
    for area in ax.collections:
        name = _name(area).removesuffix(": ")
        if name:
            phrases.append(name)

    sentences = [*titles, " against ".join(labels), "; ".join(phrases)]
    return ". ".join(re.sub(r"\s+", " ", sentence) for sentence in sentences if sentence) + "."


def _bars_in_words(containers):
    """Return a list of phrases with the lengths of bars, one phrase for each group of bars.

    A group is what one call of `bar` or `barh` drew. Groups of more than `FEW` bars are left out.
    If more than `FEW` groups all have the same lengths, the list is empty: such bars are boxes
    around words.

    containers  the axes' `containers` of matplotlib
    """
    rows = [[_short(length) for length in getattr(bars, "datavalues", ())] for bars in containers]
    if len(rows) > FEW and all(row == rows[0] for row in rows):
        return []
    return [
        _name(bars) + ", ".join(row)
        for bars, row in zip(containers, rows, strict=True)
        if 0 < len(row) <= FEW
    ]


def _telling_lines(lines):
    """Return the lines that a description should mention.

    These are the lines with a name. If none has a name, they are the first four lines that have
    more than two points and are not level.
    """
    named = [line for line in lines if _name(line) and len(line.get_ydata())]
    if named:
        return named
    curves = [
        line
        for line in lines
        if len(line.get_ydata()) > 2 and np.ptp(line.get_ydata(orig=False)) > 0
    ]
    return curves[:4]


def _line_in_words(line):
    x, y = (np.asarray(numbers) for numbers in line.get_data(orig=False))
    return f"{_name(line)}{_short(y[0])} at {_short(x[0])}, {_short(y[-1])} at {_short(x[-1])}"


def _name(artist):
    """Return the name of a drawn object with a colon, as in "fused: "; "" if it has no name."""
    label = artist.get_label()
    return "" if label.startswith("_") else f"{label}: "


def _is_number(text):
    """Return True if the label of an axis is only a number, such as "1/4", "10 k" or "1e+06"."""
    without_units = re.sub(r"\$.*?\$|\d ?[kMGT]\b|\de", "", text)
    return not re.search("[A-Za-z]", without_units)


def _short(value):
    return f"{value:.3g}"


def canvas(width: float = 6.5, height: float = 3.2, *, columns: int = 1, rows: int = 1) -> tuple:
    """Return (figure, axes) of a new picture.

    width, height  in inches
    columns, rows  number of panels; with more than one panel, axes is an array
    """
    figure = Picture(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns)
    for ax in np.atleast_1d(axes).flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def log_axis(ax: Any, direction: str, text: Callable) -> None:
    """Make an axis logarithmic and label it.

    direction  "x" or "y"
    text       function (value) -> text, which writes the number at a tick
    """
    getattr(ax, f"set_{direction}scale")("log")
    axis = getattr(ax, f"{direction}axis")
    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())
