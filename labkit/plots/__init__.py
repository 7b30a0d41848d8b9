"""Draw measured rows, with units on the axes.

One call draws one picture: `from labkit import plots`, then `plots.dots(...)`.
"""

from labkit.plots.canvas import COLOURS, GREY, Picture, canvas, log_axis
from labkit.plots.deployments import board, front, front_in_words, numbered, pareto
from labkit.plots.flames import flame
from labkit.plots.graphs import graph
from labkit.plots.images import answers, images
from labkit.plots.lines import line
from labkit.plots.phases import phases, repeated
from labkit.plots.queues import responses, trade_offs
from labkit.plots.ratios import ratio
from labkit.plots.timings import bars, calls, cures, dots
from labkit.plots.trainings import curves, ladder, layers, rates, schedules

__all__ = [
    "COLOURS",
    "GREY",
    "Picture",
    "answers",
    "bars",
    "board",
    "calls",
    "canvas",
    "cures",
    "curves",
    "dots",
    "flame",
    "front",
    "front_in_words",
    "graph",
    "images",
    "ladder",
    "layers",
    "line",
    "log_axis",
    "numbered",
    "pareto",
    "phases",
    "rates",
    "ratio",
    "repeated",
    "responses",
    "schedules",
    "trade_offs",
]
