"""For the lesson on compiling and half precision: the board, lines of cost, known tables.

Nothing here measures; the lesson does.
"""

import re

import numpy as np
import pandas as pd
from activation_study import no_compiler  # noqa: F401 (the lesson takes it from here)
from IPython.display import display

from labkit.ledger import published, recorded
from labkit.measure.stats import Interval, median_of_rounds
from labkit.plots import COLOURS, GREY, canvas, log_axis

NAMES = {"vanilla": "vanilla", "compile": "TC", "AMP": "AMP", "compile + AMP": "TC + AMP"}
GOAL = 150.91 / 110.99  # an epoch of the published network, vanilla over both switches
BETWEEN = r"add_?|mul_?|div_?|sub|neg|sum|mean|pow|rsqrt|sqrt|tanh|tanh_backward|gelu|gelu_backward"
BETWEEN = rf"(aten::)?({BETWEEN}|rsub|where|clamp.*)"
COUNTED = {
    "products": r"aten::(add)?mm",
    "copies, conversions": "aten::copy_",
    "between the products": BETWEEN,
}
PRODUCTS = r"(aten::)?(add|b)?mm|.*(conv|linear|attention)\w*(_backward|_overrideable|_pointwise)?"
OPTIMIZER = r"Optimizer\..*|aten::_(foreach|fused)_\w*"
RECORDED_WIDTHS = (64, 256)


# --- tables beside the reader's own numbers ---


def published_table(seconds, accuracy):
    """Return seconds of an epoch and accuracy of four ways: here, recorded elsewhere, published.

    seconds, accuracy  {way: seconds}, {way: percent}, of the ways that were trained here
    returns            a DataFrame, a row for each way; what was not measured is a dash
    """
    rows = {}
    for name, way in NAMES.items():
        row = {
            ("here", "epoch"): _text(seconds.get(way), " s"),
            ("here", "right"): _text(accuracy.get(way), " %"),
        }
        for place, table in _trainings().items():
            row[place, "epoch"] = _text(table["total_s"].get(name), " s")
            row[place, "right"] = _text(100 * table["accuracy"].get(name, np.nan), " %")
        rows[way] = row
    return pd.DataFrame(rows).T


def _text(value, unit):
    """Return a number with four digits and its unit as a text; a dash where there is none."""
    return "–" if value is None or not np.isfinite(value) else f"{value:.4g}{unit}"


def _trainings():
    """Return the trainings of the ConvNeXt: {where: a table with a row for each variant}.

    They are the recorded ones, by hardware, and the published ones.
    """
    tables = {}
    for hardware, rows in _recorded_convnext().groupby("hardware"):
        tables[f"ConvNeXt, recorded: {hardware}"] = rows.set_index("variant")
    known = published.table("compile-amp")
    tables["ConvNeXt, published: RTX 4090"] = known.set_index("variant").astype(float)
    return tables


def _recorded_convnext():
    """Return the recorded trainings of the ConvNeXt with an accuracy, the newest per machine."""
    rows = recorded("trainings", experiment="convnext-training")
    rows = rows[rows["accuracy"].notna() & rows["total_s"].notna()].sort_values("recorded_on")
    rows = rows.drop_duplicates(["hardware", "variant"], keep="last")
    return rows.astype({"total_s": float, "accuracy": float})


def both_together():
    """Return a sentence for each table of ConvNeXt trainings: what did each switch gain?"""
    sentences = []
    for place, table in _trainings().items():
        gains = {
            way: table["total_s"]["vanilla"] / table["total_s"][name] for name, way in NAMES.items()
        }
        best = max(gains, key=gains.get)
        product = gains["TC"] * gains["AMP"]
        wins = (
            "both together win"
            if best == "TC + AMP"
            else f"both together do not win there, {best} alone does"
        )
        numbers = ", ".join(f"{way} {gain:.2f} x" for way, gain in list(gains.items())[1:])
        sentences.append(f"{place}: {numbers} (product {product:.2f}): {wins}.")
    return "\n".join(sentences)


# --- operators ---


def operator_counts(profiles):
    """Return a table: how often a step calls products, conversions, and what lies between products.

    profiles  {name: what `labkit.measure.profiling.profile` returned}
    """
    table = {}
    for name, profiled in profiles.items():
        operators = profiled.operators(top=1000).set_index("operator")["calls"]
        counts = {kind: operators.index.str.fullmatch(pattern) for kind, pattern in COUNTED.items()}
        table[name] = {kind: int(operators[chosen].sum()) for kind, chosen in counts.items()}
    return pd.DataFrame(table).T


def stays(name):
    """Return whether a compiled step still calls this operator: product, convolution, optimizer."""
    return bool(re.fullmatch(f"{PRODUCTS}|{OPTIMIZER}", name))


# --- lines and the board ---


def gain(times, name, baseline):
    """Return how many times as fast one call is as another, an `Interval`; None if not measured.

    times  what `labkit.measure.in_turn` returned
    """
    if name not in times.names or baseline not in times.names:
        return None
    return median_of_rounds(times.ratios(name, baseline))


def price_table(lines, unit=1e6):
    """Return a table of the line of each way: µs per call and per row, and what AMP adds.

    A step with n rows takes price + each * n seconds.

    lines  {way: (price, each)}, of "vanilla", "16 bits throughout" and "AMP"
    unit   of the table, per second
    """
    rows = {way: [unit * price, unit * each] for way, (price, each) in lines.items()}
    table = pd.DataFrame(rows, ["a call (µs)", "each row (µs)"]).T
    differences = {
        "AMP's products": table.loc["16 bits throughout"] - table.loc["vanilla"],
        "AMP's converting": table.loc["AMP"] - table.loc["16 bits throughout"],
    }
    differences = pd.DataFrame(differences).T.map("{:+.3g}".format)
    return pd.concat([table.map("{:.3g}".format), differences])


def draw_lines(times, lines):
    """Draw the time of a step against its rows, and the line of each way.

    times  {rows: what `labkit.measure.in_turn` returned}
    lines  {way: (price, each)}: a step with n rows takes price + each * n seconds
    """
    figure, ax = canvas(6.5, 3.4)
    tried = list(times)
    along = np.geomspace(tried[0], tried[-1], 50)
    for (way, (price, each)), colour in zip(lines.items(), COLOURS, strict=False):
        medians = [timed.milliseconds(way).median for timed in times.values()]
        ax.plot(tried, medians, "o", color=colour, label=way)
        ax.plot(along, 1e3 * (price + each * along), color=colour, lw=1)
    log_axis(ax, "y", "{:g}".format)
    _rows_axis(ax, tried)
    ax.set_ylabel("a training step (ms)")
    ax.legend(frameon=False)
    display(figure)


def recorded_amp():
    """Return lines of a board: AMP on processors with 16-bit products, from the third edition.

    returns  {machine and width: {rows: `Interval` of times as fast}}, lines of two points or more
    """
    ratios = recorded("ratios", experiment="compile-and-amp")
    ratios = ratios[ratios["profile"] == "lab"]
    ratios = ratios[(ratios["arm"] == "AMP") & (ratios["baseline"] == "vanilla")]
    sizes = ratios["name"].str.extract(r"training step, width (?P<width>\d+), (?P<rows>\d+) rows$")
    ratios = ratios.join(sizes.astype(float)).dropna(subset=["rows"]).sort_values("rows")
    board = {}
    for (hardware, width), line in ratios.groupby(["hardware", "width"]):
        if width in RECORDED_WIDTHS and len(line) > 1:
            name = f"{hardware.partition('(')[0].partition(',')[0].strip()}, width {width:.0f}"
            board[name] = {
                int(row.rows): Interval(row.low, row.high, row.pairs, row.median)
                for row in line.itertuples()
            }
    return board


def draw_board(board):
    """Draw how many times as fast each change is, against rows; returns the picture.

    board  {name: {rows: interval of times as fast}}
    """
    figure, ax = canvas(8, 4)
    styles = ["o-", "s--", "^:"]
    for number, (name, points) in enumerate(board.items()):
        colour, style = COLOURS[number % len(COLOURS)], styles[number // len(COLOURS) % len(styles)]
        rows, middles = list(points), [ratio.median for ratio in points.values()]
        ax.plot(rows, middles, style, color=colour, ms=5, label=name)
        for count, ratio in points.items():
            ax.plot([count, count], [ratio.low, ratio.high], color=colour, lw=3, alpha=0.5)
    ax.axhline(1, color=GREY, lw=1)
    ax.axhline(GOAL, color=GREY, lw=1, ls="--")
    log_axis(ax, "y", "{:g}".format)
    _rows_axis(ax, sorted({count for points in board.values() for count in points}))
    ax.annotate(" goal", (0.01, GOAL), xycoords=("axes fraction", "data"), va="bottom", color=GREY)
    ax.set_ylabel("times as fast as without it")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    display(figure)
    return figure


def _rows_axis(ax, rows):
    ax.set_xscale("log")
    ax.set_xticks(rows, [f"{count:,}" for count in rows])
    ax.minorticks_off()
    ax.set_xlabel("rows (images of a batch)")


def goal(board):
    """Return a sentence: is the published gain of both switches reached, surely, perhaps, or not?

    board  {name: {rows: interval of times as fast}}
    """
    points = [(name, rows, ratio) for name, line in board.items() for rows, ratio in line.items()]
    name, rows, best = max(points, key=lambda point: point[2].median)
    verdict = "is not reached"
    if best.high >= GOAL:
        verdict = "may or may not be reached"
    if best.low >= GOAL:
        verdict = "is reached"
    return (
        f"The goal, {GOAL:.2f} times as fast, {verdict}: the best is {name} with {rows:,} rows, "
        f"{best.median:.2f} ({best.low:.2f} to {best.high:.2f})"
    )


def draw_scales(scales, errors, bf16):
    """Draw the error of the fp16 gradient against the loss scale.

    scales  (n,) powers of 2
    errors  (n,) percent; not a finite number where a gradient overflowed
    bf16    percent, of the bf16 gradient without a scale
    """
    finite = np.isfinite(errors)
    figure, ax = canvas(6.5, 3)
    ax.plot(scales[finite], errors[finite], "o-", color=COLOURS[0], label="fp16")
    if not finite.all():
        span = {"color": COLOURS[1], "alpha": 0.2, "lw": 0, "label": "overflow: infinite or NaN"}
        ax.axvspan(scales[~finite][0], scales[-1], **span)
    ax.axhline(bf16, color=COLOURS[2], ls="--", label="bf16, not scaled")
    ax.set_xscale("log", base=2)
    log_axis(ax, "y", "{:g}".format)
    ax.set(xlabel="loss scale", ylabel="distance from fp32 (%)")
    figure.legend(frameon=False, loc="outside upper center", ncols=3)
    display(figure)
