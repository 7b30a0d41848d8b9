"""Pictures of graphs: what they consist of, where their time goes, what each optimisation changes."""

import numpy as np

from labkit.plots import COLOURS, GREY, canvas

SMALL = 0.03  # operators below this share of nodes and of time stand together as "others"


def operator_chart(frames):
    """Two bars a network, its nodes and its time, each divided by operator.

    frames  {network: what `operator_times` returned}
    """
    figure, ax = canvas(8, 1.1 + 0.75 * len(frames))
    table = shares(frames)
    table.plot.barh(stacked=True, width=0.85, ax=ax, color=[*COLOURS[: table.shape[1] - 1], GREY], legend=False)
    for bars in ax.containers:
        texts = [f"{width:.0%}" if width > 0.09 else "" for width in bars.datavalues]
        ax.bar_label(bars, texts, label_type="center", fontsize=8, color="white")
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.set_xlabel("share of the graph's nodes, and of the time of a call")
    figure.legend(*ax.get_legend_handles_labels(), frameon=False, loc="outside right upper", fontsize=8)
    return figure


def shares(frames):
    """A DataFrame of shares, 0 to 1: lines "network, nodes" and "network, time".

    columns  each operator that matters somewhere, by the most it takes anywhere; and one for all others
    """
    import pandas as pd

    columns = {"nodes": "nodes", "time": "ms"}
    lines = {
        f"{name}, {what}": frame.set_index("operator")[column] / frame[column].sum()
        for name, frame in frames.items()
        for what, column in columns.items()
    }
    table = pd.DataFrame(lines).fillna(0.0).T
    most = table.max().sort_values(ascending=False)
    main = table[most[most >= SMALL].index[: len(COLOURS)]]
    return main.assign(others=(1 - main.sum(axis=1)).clip(lower=0))


def step_chart(counts, comparison):
    """Nodes left after each optimisation, and beside them how much faster the graph has become.

    counts      {step: {operator: nodes}}, the first as traced
    comparison  a `measure.Comparison` with the first step as baseline and the others as arms
    """
    names = list(counts)
    figure, (left, right) = canvas(9, 0.9 + 0.42 * len(names), columns=2)
    totals, places = [sum(found.values()) for found in counts.values()], np.arange(len(names))
    left.bar_label(left.barh(places, totals, color=COLOURS[0]), padding=3, fontsize=9)
    left.set_yticks(places, names)
    left.set_xlabel("nodes (count)")
    left.margins(x=0.15)
    right.axvline(1, color=GREY, lw=1)
    for place, name in list(enumerate(names))[1:]:
        row = comparison[name]
        right.plot([row.low, row.high], [place, place], color=COLOURS[1], lw=3, solid_capstyle="butt")
        right.plot(row.median, place, "o", color=COLOURS[1])
        right.annotate(
            f"{row.median:.2f}x", (row.median, place), (0, 6), textcoords="offset points", ha="center", fontsize=8
        )
    right.set_yticks(places, [])
    right.set_xlabel(f"speed (x that of: {names[0]})")
    right.margins(x=0.15)
    for each in (left, right):
        each.set_ylim(len(names) - 0.5, -0.6)
    return figure
