"""Draw accuracy against latency, one dot for each deployment.

A deployment is one way to serve a model: a network, an engine and a precision. The front is the set
of deployments that no other deployment beats on both accuracy and latency.
"""

from typing import Any

import numpy as np
from IPython.display import display

from labkit.format import shown
from labkit.plots.canvas import COLOURS, FEW, GREY, WIDE, canvas, log_axis

TOO_NEAR = 14  # pixels: the numbers of dots that are nearer would overlap


def pareto(rows):
    """Draw accuracy against latency, and a line through the front of the best deployments.

    On the front are the deployments for which no other one is better on both axes. The area of a
    dot is the size of the model. Dots have numbers; `numbered(rows)` returns their names. The
    picture is small, so that a telephone shows its text in 8 points.

    rows     list of `rows.Deployment`
    returns  the figure
    """
    x, y, best = _latencies_and_accuracies(rows)
    sizes = np.array([row.size_bytes or 0 for row in rows])
    largest = max(sizes.max(), 1)
    colours = [COLOURS[0] if is_best else GREY for is_best in best]
    figure, ax = canvas(3.7, 2.5)
    ax.scatter(x, y, s=30 + 270 * sizes / largest, c=colours, alpha=0.75, lw=0)
    # the front rises everywhere, so sorting x and y separately keeps the points
    ax.plot(np.sort(x[best]), np.sort(y[best]), color=COLOURS[0], lw=1, zorder=0)
    ax.margins(0.15)
    if x.max() > WIDE * x.min():
        log_axis(ax, "x", "{:g}".format)
    # an axis spans at least a tenth of its largest value: a small difference stays small
    for axis, values in ((ax.xaxis, x), (ax.yaxis, y)):
        room = max(0.0, 0.1 * values.max() - np.ptp(values)) / 2
        axis.set_view_interval(values.min() - room, values.max() + room)
    _write_numbers(ax, {number: (x[number - 1], y[number - 1]) for number in numbered(rows)})

    # Texts that a telephone shows in 8 points.
    ax.tick_params(labelsize=8.5)
    ax.set_xlabel("latency p50 (ms), lower is better", fontsize=9)
    right_answer = rows[0].dataset.partition(": ")[2]  # such as "texts: the same nearest one"
    ax.set_ylabel(f"{right_answer or 'accuracy'}, higher is better", fontsize=9)
    if sizes.any():
        ax.set_title(
            f"area of a dot: size, at most {shown(float(largest), 'B')}", fontsize=8.5, loc="right"
        )
    return figure


def board(rows: Any, *, order: float, guessing: float | None = None) -> None:
    """Show accuracy against time: a dot for each row of a table, with arrows from dot to dot.

    The area of a dot is the size of the model.

    rows      a DataFrame, whose first three columns are an accuracy in percent, a time in ms and a
              size in MB; its index holds the names
    order     the speed that is asked for, as a multiple of the first row's speed: times that are
              short enough are shaded
    guessing  the accuracy of guessing in percent, drawn as a line; None: no line
    """
    accuracy, milliseconds, megabytes = (
        rows.iloc[:, column].to_numpy(float) for column in range(3)
    )
    areas = 1500 * megabytes / megabytes.max()  # square points
    radii = np.sqrt(areas / np.pi)
    fast_enough = milliseconds[0] / order
    low, high = min(milliseconds.min(), fast_enough) / 1.6, milliseconds.max() * 1.6
    figure, ax = canvas(7.5, 3.4)

    # The shaded times, then the dots with their row of the board.
    ax.axvspan(low, fast_enough, color=COLOURS[2], alpha=0.1, lw=0)
    ax.text(
        fast_enough / 1.03,
        22,
        f"the order:\n{order:g} times as fast",
        color=COLOURS[2],
        fontsize=9,
        ha="right",
    )
    ax.scatter(milliseconds, accuracy, s=areas, color=COLOURS[: len(rows)], alpha=0.8, lw=0)
    for number, name in enumerate(rows.index):
        text = (
            f"{name}\n{milliseconds[number]:.3g} ms\n{megabytes[number]:.3g} "
            f"MB\n{accuracy[number]:.2f} %"
        )
        _below(ax, text, milliseconds[number], accuracy[number], radii[number])

    # An arrow from the edge of each dot to the edge of the next, with the ratio of their times.
    for number in range(1, len(rows)):
        _arrow(ax, milliseconds, accuracy, radii, number)
    if guessing is not None:
        ax.axhline(guessing, color=GREY, ls="--", lw=1)
        ax.text(high / 1.03, guessing + 2, "guessing", color=GREY, fontsize=9, ha="right")
    ax.set(xlim=(low, high), ylim=(0, 112), ylabel="accuracy (%)", yticks=range(0, 101, 20))
    log_axis(ax, "x", "{:g}".format)
    ax.set_xlabel(
        "time of one call (ms; equal steps are equal factors); area of a dot: size of the file"
    )
    display(figure)


def _below(ax, text, x, y, radius):
    ax.annotate(
        text,
        (x, y),
        (0, -radius - 4),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=9,
    )


def _arrow(ax, milliseconds, accuracy, radii, number):
    """Draw an arrow to dot `number` from the dot before it, with the ratio of their times above.

    radii  radius of each dot in points
    """
    start = milliseconds[number - 1], accuracy[number - 1]
    end = milliseconds[number], accuracy[number]
    style = {
        "arrowstyle": "->",
        "color": GREY,
        "shrinkA": radii[number - 1] + 2,
        "shrinkB": radii[number] + 2,
    }
    ax.annotate("", end, start, arrowprops=style)
    middle = np.sqrt(start[0] * end[0]), max(start[1], end[1])
    text = f"{start[0] / end[0]:.1f} times"
    ax.annotate(
        text, middle, (0, 5), textcoords="offset points", ha="center", color=GREY, fontsize=9
    )


def _write_numbers(ax, points):
    """Write a number above each of {number: (x, y)}.

    Numbers whose texts would overlap share one text, "1, 2".
    """
    # Asking for the limits settles them; distances are then known in pixels.
    ax.get_xlim()
    ax.get_ylim()
    texts = []  # (pixels, point, numbers)
    for number, point in points.items():
        pixels = ax.transData.transform(point)
        for pixels_of_text, _, numbers in texts:
            if np.hypot(*(pixels - pixels_of_text)) < TOO_NEAR:
                numbers.append(number)
                break
        else:
            texts.append((pixels, point, [number]))
    for _, point, numbers in texts:
        text = ", ".join(map(str, numbers))
        ax.annotate(text, point, (0, 10), textcoords="offset points", ha="center", fontsize=8.5)


def _latencies_and_accuracies(rows):
    """Return three arrays (n,) of the deployments: (latencies in ms, accuracies, on_front).

    `on_front` is True for a deployment if no other one beats it (`front`).

    rows  list of `rows.Deployment`
    """
    latencies, accuracies = np.array([(row.latency_p50_ms, row.accuracy) for row in rows]).T
    return latencies, accuracies, front(latencies, accuracies)


def numbered(rows):
    """Return {number in the picture of `pareto`: name of the deployment}.

    If there are at most `FEW` deployments, all have numbers; if there are more, only those of the
    front have one.

    rows  list of `rows.Deployment`
    """
    _, _, best = _latencies_and_accuracies(rows)
    names_alike = len({row.model for row in rows}) < len(rows)
    names = {}
    for number, row in enumerate(rows, start=1):
        if best[number - 1] or len(rows) <= FEW:
            names[number] = row.model
            if names_alike:
                names[number] = f"{row.model}, {row.engine} {row.precision}"
    return names


def front_in_words(rows):
    """Describe the picture of `pareto` for a reader who cannot see it."""
    names = numbered(rows)
    latencies, accuracies, best = _latencies_and_accuracies(rows)
    phrases = []
    for index in np.flatnonzero(best):
        accuracy = shown(100 * accuracies[index], "%")
        latency = shown(latencies[index] / 1e3, "s")
        phrases.append(f"{names[int(index) + 1]}: {accuracy} right in {latency}")
    deployments = "; ".join(phrases)
    return (
        f"Accuracy against latency. By the numbers, of {len(rows)} no other is better on both "
        f"than {deployments}."
    )


def front(x, y):
    """Return (n,) bool: True for each point that no other point beats.

    A point beats another if it is at most as high in x and at least as high in y, and not equal to
    it.
    """
    unbeaten = []
    for a, b in zip(x, y, strict=True):
        beaten = (x <= a) & (y >= b) & ((x < a) | (y > b))
        unbeaten.append(not np.any(beaten))
    return np.array(unbeaten, bool)
