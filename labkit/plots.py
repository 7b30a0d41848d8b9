"""Pictures of measured rows, with units on the axes. They need no display: a notebook shows what is returned."""

import io
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from labkit.ledger.shown import shown

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe-Ito: safe for all eyes
GREY = "#888888"
FEW = 12  # so many points can all carry a number
TOO_NEAR = 14  # pixels: numbers of dots that are nearer lie on each other
WIDE = 10  # a range of this factor wants a logarithmic axis
FRAME = 2  # a frame around ratios ends at this factor beyond the outermost median


class Picture(Figure):
    """A figure that a notebook shows by itself, without pyplot and without a display."""

    def _repr_png_(self):
        page = io.BytesIO()
        self.savefig(page, format="png", dpi=110)
        return page.getvalue(), {"alt": _in_words(self)}


def _in_words(figure):
    """What a figure shows, for a reader who cannot see it: titles, axes, texts, bars, and both ends of each line."""
    return " ".join(filter(None, map(_axes_in_words, figure.axes)))


def _axes_in_words(ax):
    names = [ax.get_title(loc=side) for side in ("left", "center", "right")]
    axes = " against ".join(filter(None, (ax.get_ylabel(), ax.get_xlabel())))
    texts = [each.get_text() for each in (*ax.get_yticklabels(), *ax.get_xticklabels(), *ax.texts)]
    said = [text for text in texts if not _a_number(text)]
    lines = ax.get_lines()
    named = [line for line in lines if _name(line) and len(line.get_ydata())]
    # lines without names: not the straight ones, and not the dots of one row
    plain = [line for line in lines if len(line.get_ydata()) > 2 and np.ptp(line.get_ydata(orig=False)) > 0]
    for line in named or plain[:4]:
        x, y = (np.asarray(values) for values in line.get_data(orig=False))
        said.append(f"{_name(line)}{_short(y[0])} at {_short(x[0])}, {_short(y[-1])} at {_short(x[-1])}")
    bars = [each for each in ax.containers if 0 < len(getattr(each, "datavalues", ())) <= FEW]
    said += [_name(each) + ", ".join(map(_short, each.datavalues)) for each in bars]
    said += filter(None, (_name(each)[:-2] for each in ax.collections))
    return ". ".join(re.sub(r"\s+", " ", part) for part in (*names, axes, "; ".join(said)) if part) + "."


def _name(artist):
    """ "fused: " where the artist has a name of its own, else ""."""
    return "" if artist.get_label().startswith("_") else f"{artist.get_label()}: "


def _a_number(text):
    """Whether a label of an axis is nothing but a number: "1/4", "10 k", "1e+06"."""
    return not re.search("[A-Za-z]", re.sub(r"\$.*?\$|\d ?[kMGT]\b|\de", "", text))


def _short(value):
    return f"{value:.3g}"


def canvas(width: float = 6.5, height: float = 3.2, *, columns: int = 1) -> tuple:
    """(figure, axes): a new picture."""
    figure = Picture(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns)
    for each in np.atleast_1d(axes):
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def ratio(result):
    """The ratios of a `Comparison` with their 95 % intervals; the grey band is what the machine cannot tell apart.

    An interval so long that it would dwarf the others is cut off by the frame, with an arrow.
    """
    rows = result.rows
    medians = [1.0, *(row.median for row in rows)]
    least, most = min(medians) / FRAME, max(medians) * FRAME
    figure, ax = canvas(height=1.2 + 0.45 * len(rows))
    floor = min(result.null.floor, most)  # endless where there are too few pairs
    ax.axvspan(1 / (1 + floor), 1 + floor, color=GREY, alpha=0.2, lw=0)
    ax.axvline(1, color=GREY, lw=1)
    for place, row in enumerate(rows):
        colour = {"faster": COLOURS[2], "slower": COLOURS[1]}.get(row.verdict, GREY)
        low, high = ends = np.clip([row.low, row.high], least, most)
        ax.plot(ends, [place, place], color=colour, lw=3, solid_capstyle="butt")
        for end, drawn, arrow in ((row.low, low, "<"), (row.high, high, ">")):
            if end != drawn:
                ax.plot(drawn, place, arrow, color=colour, ms=8, clip_on=False)
        ax.plot(row.median, place, "o", color=colour, ms=7)
        # beside the axes, where no interval and no line runs through it
        text = f"{shown(row.median, 'x')}  {row.verdict}"
        ax.text(1.02, place, text, transform=ax.get_yaxis_transform(), va="center", color=colour)
    ax.set_yticks(range(len(rows)), [row.arm for row in rows])
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"times as fast as {rows[0].baseline} (grey: not distinguishable)")
    if max(medians) > WIDE * min(medians):
        log_axis(ax, "x", "{:g}".format)
    else:
        ax.locator_params("x", nbins=5)
    return figure


def pareto(rows):
    """Accuracy against latency of `rows.Deployment`, and the line through those that no other beats on both.

    The area of a dot is the size of the model. `numbered(rows)` says what the numbers stand for. The picture is so
    small that a telephone shows its text in 8 points.
    """
    x, y, best = _places(rows)
    sizes = np.array([row.size_bytes or 0 for row in rows])
    largest = max(sizes.max(), 1)
    colours = [COLOURS[0] if on else GREY for on in best]
    figure, ax = canvas(3.7, 2.5)
    ax.scatter(x, y, s=30 + 270 * sizes / largest, c=colours, alpha=0.75, lw=0)
    ax.plot(np.sort(x[best]), np.sort(y[best]), color=COLOURS[0], lw=1, zorder=0)  # a front rises everywhere
    ax.margins(0.15)
    if x.max() > WIDE * x.min():
        log_axis(ax, "x", "{:g}".format)
    for axis, values in ((ax.xaxis, x), (ax.yaxis, y)):  # a difference of a thousandth is not drawn as a large one
        room = max(0.0, 0.1 * values.max() - np.ptp(values)) / 2
        axis.set_view_interval(values.min() - room, values.max() + room)
    _write_numbers(ax, {number: (x[number - 1], y[number - 1]) for number in numbered(rows)})
    ax.tick_params(labelsize=8.5)
    ax.set_xlabel("latency p50 (ms), lower is better", fontsize=9)
    right = rows[0].dataset.partition(": ")[2]  # such as "texts: the same nearest one"
    ax.set_ylabel(f"{right or 'accuracy'}, higher is better", fontsize=9)
    if sizes.any():
        ax.set_title(f"area of a dot: size, at most {shown(float(largest), 'B')}", fontsize=8.5, loc="right")
    return figure


def _write_numbers(ax, points):
    """A number above each of {number: (x, y)}; those that would lie on each other share one text."""
    ax.get_xlim(), ax.get_ylim()  # settles the limits: pixels count
    texts = []
    for number, point in points.items():
        place = ax.transData.transform(point)
        for other, _, numbers in texts:
            if np.hypot(*(place - other)) < TOO_NEAR:
                numbers.append(number)
                break
        else:
            texts.append((place, point, [number]))
    for _, point, numbers in texts:
        text = ", ".join(map(str, numbers))
        ax.annotate(text, point, (0, 10), textcoords="offset points", ha="center", fontsize=8.5)


def _places(rows):
    """(latencies, accuracies, whether no other is better on both) of `rows.Deployment`."""
    x, y = np.array([(row.latency_p50_ms, row.accuracy) for row in rows]).T
    return x, y, front(x, y)


def numbered(rows):
    """{number in the picture `pareto`: deployment}: all of a few, of many those that no other beats."""
    *_, best = _places(rows)
    alike = len({row.model for row in rows}) < len(rows)  # where each has a name of its own, the name says enough
    names = [f"{row.model}, {row.engine} {row.precision}" if alike else row.model for row in rows]
    return {number: name for number, name in enumerate(names, 1) if best[number - 1] or len(rows) <= FEW}


def front_in_words(rows):
    """What the picture `pareto` says, for a reader who cannot see it."""
    names, places = numbered(rows), enumerate(zip(*_places(rows), strict=True), 1)
    best = [f"{names[n]}: {shown(100 * y, '%')} right in {shown(x / 1e3, 's')}" for n, (x, y, first) in places if first]
    return (
        f"Accuracy against latency. By the numbers, of {len(rows)} no other is better on both than {'; '.join(best)}."
    )


def front(x, y):
    """(n,) bool: the points that none beats: as low in x and as high in y, and better in one of them."""
    return np.array([not np.any((x <= a) & (y >= b) & ((x < a) | (y > b))) for a, b in zip(x, y, strict=True)], bool)


def log_axis(ax: Any, which: str, text: Callable) -> None:
    """Make the "x" or "y" axis logarithmic, with numbers as `text` writes them: value -> string."""
    getattr(ax, f"set_{which}scale")("log")
    axis = getattr(ax, f"{which}axis")
    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def flame(boxes: Iterable, *, label: Any, bands: Any) -> Any:
    """A flame chart: boxes (depth, start, width, name), callees under callers.

    label  of the axis on which they begin and end, with its unit
    bands  {name of an outermost box: colour}: all that lies under it takes its colour; the band itself is strong
    """
    deepest = max(depth for depth, *_ in boxes)
    figure, ax = canvas(9, 1.3 + 0.3 * deepest)
    end = max(start + width for _, start, width, _ in boxes)
    outermost = [(start, start + width, bands.get(name, GREY)) for depth, start, width, name in boxes if not depth]
    for depth, start, width, name in boxes:
        colour = next(colour for first, last, colour in outermost if first <= start < last)
        filled = to_rgba(colour, 0.9 if name in bands else 0.45)
        ax.broken_barh([(start, width)], (depth - 0.46, 0.92), facecolor=filled, edgecolor="white", lw=0.4)
        letters = int(140 * width / end)
        if letters >= 4:
            text = name if len(name) <= letters else name[: letters - 1] + "…"
            ax.text(start + width / 2, depth, text, ha="center", va="center", fontsize=7.5, clip_on=True)
    ax.set(xlabel=label, xlim=(0, end), ylim=(deepest + 0.5, -0.5), yticks=[])
    ax.spines["left"].set_visible(False)
    return figure
