"""Pictures of graphs: what they consist of, where their time goes, what each optimisation changes."""

import numpy as np

from labkit.plots import COLOURS, GREY, canvas

SMALL = 0.03  # operators below this share of nodes and of time stand together as "others"


def operator_chart(frames):
    """Two bars a network, its nodes and its time, each divided by operator.

    frames  {network: what `operator_times` returned}
    """
    order = main_operators(frames)
    figure, ax = canvas(8, 1.1 + 0.75 * len(frames))
    bars = [
        (f"{name}, {what}", shares_of(frame, what, order))
        for name, frame in frames.items()
        for what in ("nodes", "time")
    ]
    for place, (_, shares) in enumerate(bars):
        place, left = place + 0.35 * (place // 2), 0.0
        for operator, share, colour in zip([*order, "others"], shares, colours(order), strict=True):
            ax.barh(place, share, 0.85, left, color=colour, label=operator if place == 0 else None)
            if share > 0.09:
                ax.text(left + share / 2, place, f"{share:.0%}", ha="center", va="center", fontsize=8, color="white")
            left += share
    ax.set_yticks([place + 0.35 * (place // 2) for place in range(len(bars))], [name for name, _ in bars])
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.set_xlabel("share of the graph's nodes, and of the time of a call")
    figure.legend(*ax.get_legend_handles_labels(), frameon=False, loc="outside right upper", fontsize=8)
    return figure


def main_operators(frames):
    """Operators that matter somewhere, by the most they take anywhere."""
    most = {}
    for frame in frames.values():
        counts = frame["nodes"] / frame["nodes"].sum()
        for operator, *shares in zip(frame["operator"], counts, frame["share"], strict=True):
            most[operator] = max(most.get(operator, 0), *shares)
    return [name for name, share in sorted(most.items(), key=lambda item: -item[1]) if share >= SMALL][: len(COLOURS)]


def shares_of(frame, what, order):
    """Shares of the operators in `order`, and of all others."""
    column = frame.set_index("operator")["nodes" if what == "nodes" else "ms"]
    shares = [float(column.get(operator, 0) / column.sum()) for operator in order]
    return [*shares, max(0.0, 1 - sum(shares))]


def colours(order):
    return [*COLOURS[: len(order)], GREY]


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
