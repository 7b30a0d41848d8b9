"""Draw the phases of a program: how long each takes, with one row per variant."""

from collections.abc import Mapping, Sequence

import numpy as np
from IPython.display import display

from labkit.plots.canvas import COLOURS, GREY, canvas

OF_TRAINING = {
    "data": COLOURS[4],
    "forward": COLOURS[0],
    "backward": COLOURS[2],
    "optimizer": COLOURS[1],
}
FURTHER_COLOURS = (COLOURS[3], COLOURS[5], GREY)
WIDE_ENOUGH = 0.06  # share of the picture's width from which on a part carries its number


def phases(
    by_name: Mapping[str, Mapping[str, float]], *, unit: str, label: str = "time of one step"
) -> None:
    """Show a horizontal bar for each name, made of one part for each phase.

    A part that is wide enough shows its time. The sum stands beside the bar.

    by_name  {name: {phase: time}}; every name has the same phases. The phases of a training step
             (`OF_TRAINING`) have the same colours in every picture
    unit     unit of the times
    label    what was timed, for the label of the x axis
    """
    names = list(next(iter(by_name.values())))
    longest = max(sum(times.values()) for times in by_name.values())
    figure, ax = canvas(7, 1.2 + 0.36 * len(by_name))
    further_colours = iter(FURTHER_COLOURS)

    # A phase is one part of all bars; its number stands in those parts that are wide enough.
    for phase in names:
        colour = OF_TRAINING.get(phase) or next(further_colours)
        values = np.array([times[phase] for times in by_name.values()])
        begins = np.array([_begin_of(times, phase) for times in by_name.values()])
        ax.barh(range(len(values)), values, 0.7, begins, color=colour, label=phase)
        for row, (begin, value) in enumerate(zip(begins, values, strict=True)):
            if value > WIDE_ENOUGH * longest:
                middle = begin + value / 2
                ax.text(
                    middle,
                    row,
                    _number(value),
                    ha="center",
                    va="center",
                    color="white",
                    fontsize=9,
                    weight="bold",
                )

    # The sums, the names and the key.
    for row, times in enumerate(by_name.values()):
        total = sum(times.values())
        ax.annotate(
            f"{_number(total)} {unit}",
            (total, row),
            (5, 0),
            textcoords="offset points",
            va="center",
        )
    ax.set_yticks(range(len(by_name)), list(by_name))
    ax.set(xlabel=f"{label} ({unit})", ylim=(len(by_name) - 0.5, -0.5), xlim=(0, 1.15 * longest))
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside upper center", ncols=len(names), frameon=False
    )
    display(figure)


def _number(value):
    """Return a time as text: without decimals from 10 on, else with two significant digits."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _begin_of(times, phase):
    """Return the sum of the times of all phases before `phase`.

    times  {phase: time}
    """
    names = list(times)
    return sum(times[name] for name in names[: names.index(phase)])


def repeated(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    label: str,
    marked: tuple[float, str] | None = None,
) -> None:
    """Show how quantities change over repetitions: a panel for each quantity, a line for each name.

    panels  {quantity with its unit: {name: (n,) values}}
    label   label of the x axis, such as "update"
    marked  (number, text): a vertical line before the repetition of this number, counted from 1,
            with this text
    """
    figure, axes = canvas(3.4 * len(panels) + 0.3, 2.7, columns=len(panels))
    for ax, (quantity, lines) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        highest = max(max(values) for values in lines.values())
        for (name, values), colour, sign in zip(
            lines.items(), (GREY, COLOURS[1], COLOURS[0]), "so^", strict=False
        ):
            ax.plot(range(1, len(values) + 1), values, f"{sign}-", color=colour, ms=3.5, label=name)
        if marked:
            ax.axvline(marked[0] - 0.5, color=GREY, ls="--", lw=1)
            ax.annotate(marked[1], (marked[0], 1.27 * highest), color="black", va="top", fontsize=9)
        ax.set(xlabel=label, ylabel=quantity, ylim=(0, 1.3 * highest))
    handles = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, frameon=False)
    display(figure)
