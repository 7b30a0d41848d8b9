"""For the lesson on serving a language model: layers in 8 bits, and the pictures.

The layers use operators of torch that have no public name.
"""

import copy

import numpy as np
import pandas as pd
import torch
from IPython.display import display
from torch import nn
from torch.nn import functional as F

from labkit.methods.surgery import replaced
from labkit.models.decoder import packed
from labkit.plots import COLOURS, GREY, canvas, log_axis

PAGE = 16  # tokens of a page
LONGEST = 256  # tokens that a server reserves where it does not know how long a text will get


class Narrow(nn.Module):
    """A linear layer without bias: weights in 8 bits, a scale per row; inputs, outputs in bf16."""

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach()
        self.scale = (weight.abs().amax(1) / 127).bfloat16()
        self.weight = (weight / self.scale[:, None]).round().clamp(-127, 127).to(torch.int8)

    def forward(self, x):
        y = torch._weight_int8pack_mm(x.flatten(0, -2).bfloat16(), self.weight, self.scale)
        return y.view(*x.shape[:-1], -1).to(x.dtype)


class Both(nn.Module):
    """A linear layer whose products are in INT8, with one scale for the inputs of a call.

    Weights have 7 bits: sums of two products then fit into the 16 bits of AVX2.
    """

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1) / 63
        zeros = torch.zeros(len(scale), dtype=torch.int64)
        stored = torch.quantize_per_channel(weight, scale.double(), zeros, 0, torch.qint8)
        self.sums = stored.dequantize().sum(1)
        self.stored = torch.ops.quantized.linear_prepack(stored, None)

    def forward(self, x):  # torch finds one scale for all of x
        return torch.ops.quantized.linear_dynamic(x, self.stored)


class PerToken(Both):
    """A linear layer whose products are in INT8, with a scale for each token.

    Each token is moved to the range 0 to 1, and its output is moved back.
    """

    def forward(self, x):
        low, high = x.aminmax(dim=-1, keepdim=True)
        reach = (high - low).clamp(min=1e-9)
        return super().forward((x - low) / reach) * reach + low * self.sums


def narrow_copies(decoder: nn.Module) -> dict:
    """Return copies of a decoder with fewer bytes per weight: {name: decoder}.

    A copy in bf16 is among them where this CPU has instructions for bf16.
    """
    kinds = {"INT8 weights": Narrow, "INT8, one scale": Both, "INT8": PerToken}
    copies = {}
    for name, kind in kinds.items():
        copies[name] = copy.deepcopy(decoder)
        replaced(copies[name].layers, nn.Linear, kind)
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        copies["bf16"] = packed(copy.deepcopy(decoder).bfloat16())
    return copies


def show_next_token(reads: dict, cached: list) -> None:
    """Draw the ms for the next token against the tokens of a text: all read again, or with a cache.

    reads   {tokens: (rounds,) ms of a prefill of so many tokens}
    cached  ms of a step after as many tokens, in the same order
    """
    figure, ax = canvas(5, 2.4)
    ax.plot(list(reads), [np.median(ms) for ms in reads.values()], "o-", color=COLOURS[1])
    ax.plot(list(reads), cached, "o-", color=COLOURS[0])
    ax.set(xlabel="tokens of the text", ylabel="ms for the next token", ylim=(0, None))
    ax.legend(["read all again", "with the cache"], frameon=False)
    display(figure)


def show_steps(lines: dict) -> None:
    """Draw ms against users: of a step, of its products, and of as many products with one matrix.

    lines  {users: (3, rounds) ms}, in this order
    """
    figure, ax = canvas(6, 2.8)
    names = ("a step", "its products", "as many with one matrix")
    for place, (name, colour) in enumerate(zip(names, (*COLOURS[:2], GREY), strict=True)):
        ms = [np.median(series[place]) for series in lines.values()]
        ax.plot(list(lines), ms, "o-", color=colour, label=name)
    log_axis(ax, "x", "{:g}".format)
    log_axis(ax, "y", "{:g}".format)
    ax.set(xlabel="users in a step", ylabel="ms")
    ax.set_xticks(list(lines))
    ax.legend(frameon=False)
    display(figure)


def paged(ends: list, generator: np.random.Generator) -> list:
    """Store keys of several users in pages, and read them back. Returns each user's page numbers.

    ends  number of tokens of each user
    """
    needed = [-(-end // PAGE) for end in ends]  # pages, rounded up
    free = generator.permutation(sum(needed))
    tables = np.split(free, np.cumsum(needed)[:-1])
    pages = torch.zeros(len(free), PAGE, 64)
    for end, table in zip(ends, tables, strict=True):
        keys = torch.randn(end, 64)  # of one head
        pages[table] = F.pad(keys, (0, 0, 0, -end % PAGE)).view(-1, PAGE, 64)
        assert torch.equal(pages[table].flatten(0, 1)[:end], keys)
    return tables


def show_pages(ends: list, tables: list) -> None:
    """Draw the memory of each user: with room reserved for the longest text, and in pages.

    ends    number of tokens of each user
    tables  page numbers of each user, as `paged` returns them
    """
    figure, (left, right) = canvas(8.5, 2, columns=2)
    for user, (end, table, colour) in enumerate(zip(ends, tables, COLOURS[:6], strict=True)):
        left.barh(user, LONGEST / PAGE, color="#dddddd")
        left.barh(user, end / PAGE, color=colour)
        full = np.minimum(end - PAGE * np.arange(len(table)), PAGE) / PAGE
        right.barh(table // 16, 0.94, left=table % 16, color="#dddddd")
        right.barh(table // 16, 0.94 * full, left=table % 16, color=colour)
    rooms = {
        "longest reserved": len(ends) * LONGEST,
        "pages": sum(map(len, tables)) * PAGE,
    }
    for ax, (name, room) in zip((left, right), rooms.items(), strict=True):
        ax.set(xlabel="256 tokens of memory per row", xticks=[], yticks=[], ylim=left.get_ylim())
        ax.set_title(f"{name}: {100 * (1 - sum(ends) / room):.0f} % empty", fontsize=10)
    display(figure)


def show_waits(crowd, waits: dict, limits, every: float) -> None:
    """Draw two waits in ms against the number of users: to the first token, and per token.

    crowd   numbers of users
    waits   {way to take turns: (points, 2) ms to the first token and per token, 95th percentiles}
    limits  of both waits, in ms
    every   seconds between two requests of a user
    """
    figure, panels = canvas(8.5, 2.8, columns=2)
    looks = [("s--", GREY), ("o-", COLOURS[1]), ("o-", COLOURS[0])]
    for (name, ms), (style, colour) in zip(waits.items(), looks, strict=True):
        for ax, column in zip(panels, np.transpose(ms), strict=True):
            ax.plot(crowd, column, style, ms=4, color=colour, label=name)
    words = ("to the first token", "per token")
    for ax, limit, word in zip(panels, limits, words, strict=True):
        ax.axhline(limit, color="black", ls=":", lw=1)
        log_axis(ax, "x", "{:g}".format)
        ax.set(xlabel=f"users, one request per {every} s", ylabel=f"ms {word} (p95)")
        ax.set_ylim(0, 3 * limit)
    panels[1].legend(frameon=False)
    display(figure)


def show_served(served: dict, exact_enough: set, every: float):
    """Draw the number of users that each way serves. Returns the figure.

    served        {way: (seeds,) users}
    exact_enough  ways whose answers stay the same; the others are grey
    every         seconds between two requests of a user
    """
    figure, ax = canvas(6.5, 2.6)
    colours = [COLOURS[0] if name in exact_enough else GREY for name in served]
    bars = ax.barh(list(served), [np.median(users) for users in served.values()], color=colours)
    ax.bar_label(bars, fmt="%.0f", padding=4)
    ax.set(xlabel=f"users served (one request per {every} s)")
    ax.margins(x=0.12)
    ax.invert_yaxis()
    display(figure)
    return figure


def table(rows: dict, columns: list, digits: str = "{:.3g}"):
    """Return rows of numbers as a table to show."""
    return pd.DataFrame(rows, columns).T.astype(float).style.format(digits, na_rep="–")
