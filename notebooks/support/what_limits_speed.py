"""For the lesson on what limits speed: the picture with the roof, and times against lengths.

Nothing here measures.
"""

import numpy as np
from IPython.display import display

from labkit.format import shown
from labkit.plots import COLOURS, GREY, canvas, log_axis

MARKERS = "o^sDvP*"
# Where a label stands: (points to the right, points up, which end is at the dot). Under the roof
# there is room to the right, above it to the left; labels of two groups stand below each other.
UNDER_ROOF = [(6, -20, "left"), (8, -10, "left")]
ABOVE_ROOF = (-7, -3, "right")


def draw_lengths(seconds, machine, cache_bytes):
    """Draw the time of changing signs against how many numbers there are, under two limits.

    seconds      {numbers: seconds of a call that reads and writes each of them, 4 bytes each way}
    machine      {"memory": bytes per second, "overhead": seconds per call}
    cache_bytes  size of the last cache
    """
    lengths = np.array(list(seconds))
    along = np.geomspace(lengths[0], lengths[-1], 200)
    least = np.maximum(machine["overhead"], 8 * along / machine["memory"])
    figure, ax = canvas(6.5, 3.2)
    ax.axvspan(
        lengths[0] / 2,
        cache_bytes / 4,
        color=GREY,
        alpha=0.15,
        lw=0,
        label="fits in the last cache",
    )
    ax.plot(along, 1e6 * least, color=COLOURS[1], label="the larger of both limits")
    ax.plot(
        lengths,
        [1e6 * value for value in seconds.values()],
        "o",
        color=COLOURS[0],
        label="measured",
    )
    log_axis(ax, "x", shown)
    log_axis(ax, "y", "{:,g}".format)
    ax.set(xlabel="pixels", ylabel="time of x.neg_() (µs)")
    ax.legend(frameon=False)
    display(figure)


def draw_roof(board, machine, least_seconds):
    """Draw tasks under a roof: operations per second against operations per byte.

    Returns the figure.

    board          {group: {label: ((operations, bytes, calls), seconds)}}; a group has one marker
    machine        {"arithmetic": operations per second, "memory": bytes per second, "overhead":
                   seconds per call}
    least_seconds  function (operations, bytes, calls, machine) -> (seconds, limit); a thin line
                   goes from what it allows to what was measured
    """
    figure, ax = canvas(7.5, 4.2)
    tasks = [task for points in board.values() for task, _ in points.values()]
    intensities = [operations / moved for operations, moved, _ in tasks]
    low = min([0.3, *(value / 4 for value in intensities)])  # labels stand to the left
    high = max([4 * ridge(machine), *(2 * value for value in intensities)])
    along = np.geomspace(low, high, 200)
    ax.plot(along, _roof(machine, along), color=GREY, lw=2.5, label="roof")
    for number, (group, points) in enumerate(board.items()):
        style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
        ax.plot([], [], ls="", ms=7, label=group, **style)
        for label, (task, seconds) in points.items():
            allowed = least_seconds(*task, machine)[0]
            under = UNDER_ROOF[number % len(UNDER_ROOF)]
            position = ABOVE_ROOF if seconds < allowed else under
            _draw_task(ax, label, task, (allowed, seconds), style, position)
    log_axis(ax, "x", "{:g}".format)
    log_axis(ax, "y", shown)
    top = machine["arithmetic"]
    ax.annotate(
        "ridge", (ridge(machine), top), (0, 5), textcoords="offset points", ha="center", color=GREY
    )
    ax.set(xlabel="operations per byte", ylabel="operations per second")
    ax.margins(y=0.12)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    display(figure)
    return figure


def ridge(machine):
    """Return the operations that a machine does while one byte moves."""
    return machine["arithmetic"] / machine["memory"]


def _roof(machine, intensity):
    """Return the most operations per second at an intensity, in operations per byte."""
    return np.minimum(machine["arithmetic"], intensity * machine["memory"])


def _draw_task(ax, label, task, allowed_and_measured, style, label_position):
    """Draw a task, its label, and a thin line from what is allowed to what was measured."""
    operations, moved, _ = task
    allowed, measured = (operations / seconds for seconds in allowed_and_measured)
    intensity = operations / moved
    right, up, end = label_position
    ax.plot([intensity, intensity], [allowed, measured], color=style["color"], lw=1, alpha=0.6)
    ax.plot(intensity, measured, ms=7, ls="", **style)
    text = {"textcoords": "offset points", "ha": end, "fontsize": 8, "color": style["color"]}
    ax.annotate(label, (intensity, measured), (right, up), **text)
