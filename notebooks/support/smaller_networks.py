"""For the lesson on smaller networks: trainings side by side, convolutions of any width, pictures.

What is cut, taught and trained, and how, the lesson decides.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import onnx
import torch
from IPython.display import display
from onnx import numpy_helper, parser

from labkit import export
from labkit.device import usable_cores
from labkit.measure.stats import Interval, mean_interval, median_of_rounds
from labkit.plots import COLOURS, GREY, canvas, log_axis

SMALL_TEXT = 8.5  # points
MIN_SEEDS = 3  # the fewest for an interval
NEAR = 1.5  # points whose work differs by less than this factor have their names on either side


# --- trainings ------------------------------------------------------------------------------------


def side_by_side(train: Callable, jobs: Iterable[tuple]) -> list:
    """Return [train(*job) for every job]; as many run at once as there are cores.

    Each runs on one thread. Do not time them: they slow each other.
    """
    threads = ThreadPoolExecutor(usable_cores(), initializer=torch.set_num_threads, initargs=(1,))
    with threads:
        return list(threads.map(lambda job: train(*job), jobs))


# --- convolutions of any number of channels -------------------------------------------------------

SIDE, ENDS = 14, 16  # pixels of a side; channels of the first input and of the last output


class Convolutions(NamedTuple):
    """Four convolutions in a row, ready to be called.

    call    () -> the outputs of one image, on one thread
    stored  how ONNX Runtime stores the filters in the middle, such as "64 x 64"
    """

    call: Callable
    stored: str


def convolutions(channels: int, folder) -> Convolutions:
    """Write four 3x3 convolutions of `channels` channels, on images of 14 x 14 pixels.

    Returns `Convolutions`.

    folder  where ONNX Runtime's own graph is written
    """
    widths = [ENDS, channels, channels, channels, ENDS]
    steps = " ".join(f"t{k + 1} = Conv<pads=[1, 1, 1, 1]>(t{k}, w{k})" for k in range(4))
    side = f"float[1, {ENDS}, {SIDE}, {SIDE}]"
    header = '<ir_version: 8, opset_import: ["": 17]> g '
    model = parser.parse_model(f"{header} ({side} t0) => ({side} t4) {{ {steps} }}")
    rng = np.random.default_rng(0)
    for number, (before, after) in enumerate(pairwise(widths)):
        weight = 0.05 * rng.standard_normal((after, before, 3, 3), dtype=np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{number}"))
    image = {"t0": rng.standard_normal((1, ENDS, SIDE, SIDE), dtype=np.float32)}
    call = partial(export.session(model, threads=1).run, None, image)

    # The engine's own graph shows how many channels it really computes.
    engine_graph = onnx.load(export.runtime_graph(model, folder / "engine.onnx", "all")).graph
    weights = engine_graph.initializer
    filters = [tuple(weight.dims[:2]) for weight in weights if len(weight.dims) == 4]
    largest = max(filters, key=np.prod)
    return Convolutions(call, f"{largest[0]} x {largest[1]}")


def times_as_long(times, name: str, reference: str) -> Interval:
    """Return how many times as long a call takes as another, an `Interval`.

    times  what `labkit.measure.in_turn` returned
    """
    return median_of_rounds(1 / times.ratios(name, reference))


def times_as_fast(times, name: str, reference: str) -> Interval:
    """Return how many times as fast a call is as another, an `Interval`."""
    return median_of_rounds(times.ratios(name, reference))


# --- pictures -------------------------------------------------------------------------------------


def draw_channel() -> None:
    """Draw what is removed with a channel, in three layers one after the other.

    It is a filter of the writer, four numbers of the batch norm, and slices of the reader.
    """
    figure, axes = canvas(8.5, 2.5, columns=3)
    panels = {
        "writer: a filter (row) a channel": (4, 3, "rows"),
        "batch norm: four numbers a channel": (4, 4, "rows"),
        "reader: a slice (column) a channel": (3, 4, "columns"),
    }
    for ax, (title, (rows, columns, direction)) in zip(axes, panels.items(), strict=True):
        for row in range(rows):
            for column in range(columns):
                gone = (row if direction == "rows" else column) == 1
                style = {"fc": COLOURS[1] if gone else "white", "ec": GREY, "hatch": "//" * gone}
                ax.add_patch(_square(column, rows - 1 - row, style))
        ax.set_title(title, fontsize=10)
        ax.set(xlim=(-0.9, 4.2), ylim=(-0.8, 4.2), aspect="equal")
        ax.axis("off")
    for row, name in enumerate(("channel 0", "1", "2", "3")):
        axes[0].text(-0.1, 3.45 - row, name, ha="right", va="center", fontsize=SMALL_TEXT)
        axes[2].text(row + 0.45, -0.35, str(row), ha="center", va="center", fontsize=SMALL_TEXT)
    for column, name in enumerate(("weight", "bias", "mean", "var")):
        axes[1].text(column + 0.45, -0.35, name, ha="center", va="center", fontsize=7.5)
    display(figure)


def _square(x, y, style):
    """Return a square for one weight, or for one 3x3 filter."""
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), 0.9, 0.9, **style)


def draw_teacher(images, labels, answers: Mapping, names, temperature: float) -> None:
    """Draw images, and below each the probabilities of several teachers at a temperature.

    images   (n, 1, side, side)
    labels   (n,) classes
    answers  {teacher: (n, classes) logits}
    names    names of the classes
    """
    count = len(images)
    figure, axes = canvas(2.5 * count, 4.3, columns=count, rows=2)
    height = 0.8 / len(answers)
    for column, (top, bottom) in enumerate(axes.T):
        top.imshow(np.asarray(images)[column, 0], cmap="gray_r")
        top.set_title(f"label: {names[labels[column]]}", fontsize=SMALL_TEXT)
        top.axis("off")
        for row, (teacher, logits) in enumerate(answers.items()):
            share = 100 * torch.softmax(logits[column] / temperature, 0).numpy()
            heights = np.arange(len(names)) + (row - 0.5) * height
            bottom.barh(heights, share, height, color=COLOURS[row], label=teacher)
        bottom.set(yticks=[], ylim=(len(names) - 0.4, -0.6), xlabel="% of probability")
    axes[1, 0].set_yticks(range(len(names)), names, fontsize=SMALL_TEXT)
    axes[1, 0].legend(frameon=False, fontsize=SMALL_TEXT, loc="lower right")
    display(figure)


def draw_arms(arms: Mapping, whole: float) -> None:
    """Draw accuracies in rows; a dotted line is the whole network.

    arms   {(what it begins with, what it learns from): (seeds,) percent}
    whole  accuracy of the whole network, in percent
    """
    rows = list(arms)
    figure, ax = canvas(8, 0.9 + 0.36 * len(rows))
    begins = list(dict.fromkeys(begin for begin, _ in rows))
    for height, (begin, _) in enumerate(rows):
        _draw_row(ax, height, arms[rows[height]], COLOURS[begins.index(begin)])
    ax.axvline(whole, color="black", ls=":", lw=1)
    ax.set_yticks(range(len(rows)), [f"{begin}, {teacher}" for begin, teacher in rows])
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel="test accuracy (%); dotted: the whole network")
    display(figure)


def _draw_row(ax, height, accuracies, colour):
    """Draw a dot per seed, and the 95 % interval of their mean."""
    accuracies = np.atleast_1d(accuracies)
    if len(accuracies) >= MIN_SEEDS:
        interval = mean_interval(accuracies)
        ax.plot([interval.low, interval.high], [height] * 2, color=colour, lw=5, alpha=0.3)
    ax.plot(accuracies, [height] * len(accuracies), "o", color=colour, mfc="none")


def draw_shares(lines: Mapping, whole: float) -> None:
    """Draw accuracy against the percentage of channels cut.

    lines  {name: {percent cut: (seeds,) accuracies}}; dots are seeds, the line is their mean
    whole  accuracy of the whole network, in percent
    """
    figure, ax = canvas(7, 3.2)
    for colour, (name, by_share) in zip((GREY, *COLOURS), lines.items(), strict=False):
        shares = sorted(by_share)
        ax.plot(shares, [np.mean(by_share[share]) for share in shares], color=colour, label=name)
        for share in shares:
            accuracies = np.atleast_1d(by_share[share])
            ax.plot([share] * len(accuracies), accuracies, "o", color=colour, mfc="none", ms=5)
    ax.axhline(whole, color="black", ls=":", lw=1)
    ax.set(xlabel="channels cut from each layer (%)", ylabel="test accuracy (%)", ylim=(0, 100))
    ax.legend(frameon=False, loc="lower left")
    display(figure)


class Row(NamedTuple):
    """A row of the board.

    accuracies  (seeds,) percent of the test images
    weights     number of parameters
    shape       networks of one shape take the same time
    """

    accuracies: np.ndarray
    weights: int
    shape: str


def draw_board(board: Mapping, milliseconds: Mapping | None = None):
    """Draw accuracy, weights and, once measured, ms per image of each row; returns the picture.

    board         {name: `Row`}
    milliseconds  {shape: ms}
    """
    names = list(board)
    figure, panels = canvas(9.5, 1.0 + 0.36 * len(names), columns=3 if milliseconds else 2)
    for height, row in enumerate(board.values()):
        _draw_row(panels[0], height, row.accuracies, COLOURS[0])
        mean = f"  {np.mean(row.accuracies):.1f}"
        panels[0].text(np.max(row.accuracies), height, mean, va="center", fontsize=SMALL_TEXT)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set(xlabel="test accuracy (%), mean", xlim=(0, 120), xticks=range(0, 101, 20))
    columns = {"thousand weights": [row.weights / 1e3 for row in board.values()]}
    if milliseconds:
        columns["ms per image"] = [milliseconds.get(row.shape, np.nan) for row in board.values()]
    for ax, (label, values) in zip(panels[1:], columns.items(), strict=True):
        ax.barh(range(len(names)), values, color=COLOURS[5], height=0.6)
        for height, value in enumerate(values):
            text = f" {_short(value)}"
            ax.text(np.nan_to_num(value), height, text, va="center", fontsize=SMALL_TEXT)
        ax.set(xlabel=label, yticks=[])
        ax.margins(x=0.22)
    for ax in panels:
        ax.set_ylim(len(names) - 0.5, -0.5)
    display(figure)
    return figure


def _short(value):
    """Return a number of at least three digits as a text; words for NaN."""
    if np.isnan(value):
        return "– not timed"
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def draw_work(work: Mapping, speeds: Mapping) -> None:
    """Draw times as fast against times fewer multiply-adds, a dot for each network.

    work    {shape: multiply-adds}; the others are compared with the first
    speeds  {shape: `Interval`, times as fast as the first}
    """
    figure, ax = canvas(7, 3.6)
    first = next(iter(work.values()))
    fewer = {shape: first / work[shape] for shape in speeds}
    for colour, (shape, speed) in zip(COLOURS, speeds.items(), strict=False):
        ax.plot([fewer[shape]] * 2, [speed.low, speed.high], color=colour, lw=4, alpha=0.4)
        ax.plot(fewer[shape], speed.median, "o", color=colour)
        # of two neighbours, the left one has its name on the left, the lower one below
        is_left = any(1 < fewer[other] / fewer[shape] < NEAR for other in speeds)
        near = [other for other in speeds if 1 / NEAR < fewer[other] / fewer[shape] < NEAR]
        is_higher = len(near) > 1 and speed.median == max(speeds[name].median for name in near)
        position = {"xytext": (-8 if is_left else 8, 2 if is_higher else -12)}
        position |= {"ha": "right" if is_left else "left", "textcoords": "offset points"}
        ax.annotate(shape, (fewer[shape], speed.median), color=colour, **position)
    limit = 1.3 * max(first / min(work.values()), *(speed.high for speed in speeds.values()))
    ax.plot([1, limit], [1, limit], "--", color=GREY, label="in proportion")
    ax.set(xlabel="times fewer multiply-adds than the whole", ylabel="times as fast")
    for direction in ("x", "y"):
        log_axis(ax, direction, "{:g}".format)
    ax.legend(frameon=False, loc="upper left")
    display(figure)


def draw_stairs(longer: Mapping, reference: int = 64) -> None:
    """Draw time against the number of channels, with a line in proportion to the work.

    longer     {channels: `Interval`, times as long as `reference` channels}
    reference  the number of channels whose time is 1
    """
    figure, ax = canvas(7, 3)
    fours = [channels for channels in longer if channels % 4 == 0]
    others = [channels for channels in longer if channels % 4]
    groups = {"multiples of 4": (fours, "o"), "other numbers": (others, "s")}
    for colour, (label, (counts, marker)) in zip(COLOURS, groups.items(), strict=False):
        for channels in counts:
            ends = longer[channels].low, longer[channels].high
            ax.plot([channels] * 2, ends, color=colour, lw=4, alpha=0.4)
        medians = [longer[channels].median for channels in counts]
        ax.plot(counts, medians, marker, color=colour, label=label)
    channels = np.array(sorted(longer))
    work = channels**2 + ENDS * channels
    share = work / (reference**2 + ENDS * reference)
    ax.plot(channels, share, "--", color=GREY, label="in proportion to the work")
    ax.set(xlabel="channels", ylabel=f"time ({reference} channels: 1)")
    ax.legend(frameon=False)
    display(figure)
