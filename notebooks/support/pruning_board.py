"""For the lesson on pruning: the board, pictures and tables, and two more ways to choose what goes.

The file itself is written by `pruning_and_coding`.
"""

import io

import pandas as pd
import pruning_and_coding as coding
import torch
from IPython.display import display

from labkit.compress import without_channels
from labkit.errors import LabError
from labkit.ledger import published
from labkit.lesson.verdicts import weigh
from labkit.plots import COLOURS, canvas, log_axis

SMALLER, POINTS = 30, 2  # the goal: times smaller, and points lost at most

# --- what goes ------------------------------------------------------------------------------------


class Movement:
    """Chooses by movement: the weights that training moves towards zero go first.

    A weight's score is the sum of -gradient * weight over the steps: above 0 where its size grows.

    Call  (weights, sparsity) after each step, while the gradients are there; returns masks
    Source  Sanh et al. 2020, arXiv:2005.07683; there a pruned weight may come back, here it stays 0
    """

    def __init__(self):
        self.scores = None

    @torch.no_grad()
    def __call__(self, weights, sparsity):
        if self.scores is None:
            self.scores = [torch.zeros_like(weight) for weight in weights]
        for score, weight in zip(self.scores, weights, strict=True):
            score -= weight.grad * weight
        joined = []
        for score, weight in zip(self.scores, weights, strict=True):
            joined.append(score.masked_fill(weight == 0, -torch.inf).flatten())
        flat = torch.cat(joined)
        remaining = len(flat) - round(sparsity * len(flat))
        mask = torch.zeros_like(flat, dtype=torch.bool)
        mask[flat.topk(remaining, sorted=False).indices] = True
        parts = mask.split([weight.numel() for weight in weights])
        return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def half_the_channels(network, example):
    """Return a copy with half of the channels of each layer; None where none can be cut here.

    network  a network with batch norms, whose smallest scales say which channels go
    example  a batch of inputs
    """
    try:
        return without_channels(network, example, 0.5, scope="layer")
    except LabError as error:
        print("No channels are cut here:", error)
        return None


# --- tables ---------------------------------------------------------------------------------------


def board_table(board):
    """Return the board as a table: one row for each step.

    board  {row: {"bytes": number, "points lost": interval, "times as fast": interval or text}}; the
           last may be missing
    """
    full = next(iter(board.values()))["bytes"]
    rows = {}
    for name, row in board.items():
        rows[name] = {
            "kB": f"{row['bytes'] / 1e3:,.0f}",
            "times smaller": f"{full / row['bytes']:.1f}",
            "points lost": _with_ends(row["points lost"], 1),
        }
        times = row.get("times as fast")
        if times is not None:
            rows[name]["times as fast"] = times if isinstance(times, str) else _as_judged(times)
    return pd.DataFrame(rows.values(), index=list(rows)).fillna("-")


def _with_ends(interval, digits):
    """Return an interval as a text: its middle, and its ends in brackets."""
    middle, low, high = (f"{n:.{digits}f}" for n in (interval.median, interval.low, interval.high))
    return f"{middle} ({low} to {high})"


def _as_judged(ratio):
    """Return a ratio as a text, with the interval that judges its claim.

    That interval includes the noise of the clock.
    """
    evidence = weigh(ratio)
    return f"{evidence.value:.2f} ({evidence.low:.2f} to {evidence.high:.2f})"


def file_parts(model, size):
    """Return what takes the room in a file: a table of kilobytes, beside Shannon's bound.

    model  as `coding.write_network` wrote it
    size   bytes of the file
    """
    written = {"places": 0.0, "indices": 0.0}
    bound = dict(written)
    for weight in coding.coded_weights(model).values():
        _, gaps, indices = coding.layer_symbols(weight)
        for name, symbols in (("places", gaps), ("indices", indices)):
            file = io.BytesIO()
            coding.write_symbols(file, symbols)
            written[name] += file.tell() / 1e3
            bound[name] += coding.entropy_bits(symbols) / 8e3
    table = pd.DataFrame({"kB": written, "kB by Shannon's bound": bound})
    rest = size / 1e3 - table["kB"].sum()
    table.loc["all else: norms, biases, codebooks"] = rest, float("nan")
    return table.round(1).astype(object).fillna("-")


def beside_published(smaller, lost):
    """Return the published factors of pruning, sharing and coding, and those of this run.

    smaller  times smaller
    lost     points lost, an interval
    """
    rows = {}
    for _, row in published.table("deep-compression").iterrows():
        change = row["error_compressed"] - row["error"]
        rows[row["network"]] = f"{row['times_smaller']:.0f}", f"{change:+.2f}"
    rows["yours: VGG, Fashion-MNIST"] = f"{smaller:.0f}", f"{lost.median:+.2f}"
    return pd.DataFrame(rows, ["times smaller", "points lost"]).T


# --- pictures -------------------------------------------------------------------------------------


def draw_board(board):
    """Draw points lost against kilobytes, a dot for each row, and the goal. Returns the figure."""
    full = next(iter(board.values()))["bytes"]
    figure, ax = canvas(7.5, 3.4)
    ax.axvspan(full / SMALLER / 1e3 / 4, full / SMALLER / 1e3, color=COLOURS[2], alpha=0.1, lw=0)
    ax.axhline(POINTS, color=COLOURS[2], lw=1, ls="--")
    for number, (name, row) in enumerate(board.items()):
        lost, kilobytes = row["points lost"], row["bytes"] / 1e3
        colour = COLOURS[number % len(COLOURS)]
        ax.plot([kilobytes], [lost.median], "o", color=colour, label=f"{name}, {kilobytes:,.0f} kB")
        ax.plot([kilobytes, kilobytes], [lost.low, lost.high], color=colour, lw=3, alpha=0.5)
    log_axis(ax, "x", "{:g}".format)
    ax.invert_xaxis()
    ax.set(xlabel="kB (a step to the right is a factor)", ylabel="points lost")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    display(figure)
    return figure
