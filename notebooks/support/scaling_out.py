"""For the lesson on many workers: ring, board, parts, speeds, pipelines, and the published table.

Nothing here measures or trains; the lesson does.
"""

import numpy as np
import pandas as pd
import torch
from IPython.display import display

from labkit.errors import LabError
from labkit.ledger import published
from labkit.plots import COLOURS, GREY, canvas, log_axis

SMALL_TEXT = 8.5  # points
ROUNDING = 1e-5  # relative distance below which two gradients differ by rounding only
NEAREST = 1e-9  # where a distance of 0 is drawn
FINISHED = "#CDE8DE"  # light green
EPOCHS = 90  # of the published training
LENGTHS = {"F": 1, "B": 2}  # units of a forward and a backward pass of a micro-batch


# --- the ring ---


def ring_states(arrays):
    """Return what all workers hold before the first step of a ring, and after each step.

    arrays   (k, k): k numbers of each of k workers, a piece is one number
    returns  [(numbers (k, k), positions (k, 2) of the numbers that have just arrived), ...], 2 k -
             1 of them
    """
    numbers = np.array(arrays)
    k = len(numbers)
    states = [(numbers.copy(), np.empty((0, 2), int))]
    for step in range(2 * (k - 1)):
        before = numbers.copy()
        arrived = []
        for worker in range(k):
            piece, right = (worker - step) % k, (worker + 1) % k
            arriving = before[worker, piece]
            numbers[right, piece] = arriving + (before[right, piece] if step < k - 1 else 0)
            arrived.append((right, piece))
        states.append((numbers.copy(), np.array(arrived)))
    return states


def draw_ring(arrays):
    """Draw a ring all-reduce step by step: a row for each worker, a column for each piece.

    arrays  (k, k): k numbers of each of k workers
    """
    states = ring_states(arrays)
    k, total = len(arrays), np.sum(arrays, axis=0)
    figure, axes = canvas(2.1 * len(states), 2.3, columns=len(states))
    for step, (ax, (numbers, arrived)) in enumerate(zip(axes, states, strict=True)):
        ax.set_title("before" if step == 0 else f"step {step}: {_deed(step, k)}", fontsize=10)
        for worker, piece in np.ndindex(k, k):
            _draw_piece(ax, worker, piece, numbers[worker, piece], total[piece])
        for worker, piece in arrived:
            _draw_arrival(ax, worker, piece)
        ax.set(xlim=(-0.95, k - 0.5), ylim=(k - 0.5, -0.5))
        ax.set_xticks([])
        ax.set_yticks(range(k), [f"worker {worker}" for worker in range(k)] if step == 0 else [])
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
    display(figure)


def _deed(step, k):
    """Return in words what the workers do in a step of a ring."""
    return "add" if step < k else "pass on"


def _draw_piece(ax, worker, piece, number, total):
    """Draw one number; green where it is the finished sum."""
    colour = FINISHED if number == total else "white"
    box = {"boxstyle": "square,pad=0.3", "facecolor": colour, "edgecolor": GREY, "lw": 0.6}
    ax.text(piece, worker, f"{number:3d}", ha="center", va="center", fontsize=9, bbox=box)


def _draw_arrival(ax, worker, piece):
    """Draw an arrow to the number that came from the worker above (to worker 0: the last)."""
    start = worker - 0.75 if worker else -0.5
    ax.annotate(
        "",
        (piece + 0.36, worker - 0.12),
        (piece + 0.36, start),
        arrowprops={"arrowstyle": "->", "color": COLOURS[1], "lw": 1.4},
        annotation_clip=False,
    )


# --- the board ---


def draw_board(distances, speeds=None):
    """Draw how far each attempt is from one worker's training, and how fast. Returns the picture.

    distances  {attempt: relative distance of the gradient or the weights}; 0 is drawn at the left
               end
    speeds     {attempt: `Interval` of times as fast}; None: only distances
    """
    rows = list(distances)
    columns = 2 if speeds else 1
    figure, axes = canvas(6.5 * columns, 1.1 + 0.3 * len(rows), columns=columns)
    ax = np.atleast_1d(axes)[0]
    values = [distances[name] for name in rows]
    colours = [COLOURS[2] if value <= ROUNDING else COLOURS[1] for value in values]
    ax.axvspan(NEAREST / 3, ROUNDING, color=FINISHED, lw=0)
    ax.scatter(np.maximum(values, NEAREST), range(len(rows)), color=colours, s=45, zorder=3)
    for row, value in enumerate(values):
        text = "0" if value == 0 else f"{value:.0e}"
        x = max(value, NEAREST)
        ax.annotate(text, (x, row), (7, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set(xscale="log", xlim=(NEAREST / 3, 30))
    ax.set_xlabel("relative distance from one worker (green: rounding)")
    ax.set_xticks([1e-8, 1e-6, 1e-4, 1e-2, 1])
    _name_rows(ax, rows)
    if speeds:
        _draw_speed_rows(axes[1], speeds)
    display(figure)
    return figure


def _draw_speed_rows(ax, speeds):
    """Draw intervals of times as fast as one worker, a row for each."""
    for row, interval in enumerate(speeds.values()):
        ax.plot([interval.low, interval.high], [row, row], color=COLOURS[0], lw=3, alpha=0.5)
        ax.plot(interval.median, row, "o", color=COLOURS[0], ms=6)
        text = f"{interval.median:.2f}"
        place = (interval.median, row)
        ax.annotate(text, place, (0, 7), textcoords="offset points", ha="center", fontsize=8)
    ax.axvline(1, color=GREY, lw=1)
    ax.set(xlabel="times as fast", xlim=(0, None))
    _name_rows(ax, list(speeds))


def _name_rows(ax, names):
    ax.set_yticks(range(len(names)), names, fontsize=SMALL_TEXT)
    ax.set_ylim(len(names) - 0.5, -0.7)


# --- parts of a batch ---


def draw_parts(distances):
    """Draw how far a gradient computed in parts is from the whole batch's, a line for each norm.

    distances  {norm: {parts: relative distance}}
    """
    figure, ax = canvas(6.5, 2.8)
    ax.axhspan(NEAREST, ROUNDING, color=FINISHED, lw=0)
    for number, (norm, by_parts) in enumerate(distances.items()):
        parts, values = list(by_parts), np.maximum(list(by_parts.values()), NEAREST)
        ax.plot(parts, values, "o-", color=COLOURS[number], label=norm)
        if max(values) > ROUNDING:
            _write_per_cent(ax, parts, values)
    log_axis(ax, "x", "{:g}".format)
    ax.set_xticks(parts, parts)
    ax.minorticks_off()
    ax.set(yscale="log", ylim=(1e-8, 10), ylabel="relative distance")
    ax.set_xlabel("parts of the batch (green: rounding)")
    ax.legend(frameon=False, loc="center right")
    display(figure)


def _write_per_cent(ax, parts, values):
    for x, y in zip(parts, values, strict=True):
        text = f"{100 * y:.2g} %"
        ax.annotate(text, (x, y), (0, 6), textcoords="offset points", ha="center", fontsize=8)


# --- speed ---


def draw_speeds(by_arm, forecasts):
    """Draw times as fast as one worker against the images of a step, one line for each arm.

    by_arm     {arm: {images: `Interval`}}
    forecasts  {arm: {images: times as fast}}, drawn dashed in the arm's colour
    """
    figure, ax = canvas(6.5, 3.2)
    for number, (arm, intervals) in enumerate(by_arm.items()):
        counts = np.array(list(intervals)) * 1.04**number  # side by side
        middles = [interval.median for interval in intervals.values()]
        ax.plot(counts, middles, "o-", color=COLOURS[number], label=arm)
        for count, interval in zip(counts, intervals.values(), strict=True):
            ends = [interval.low, interval.high]
            ax.plot([count, count], ends, color=COLOURS[number], lw=3, alpha=0.5)
        expected = forecasts[arm]
        ax.plot(list(expected), list(expected.values()), "--", color=COLOURS[number], lw=1.2)
    ax.plot([], [], "--", color=GREY, label="forecast")
    ax.axhline(1, color=GREY, lw=1)
    log_axis(ax, "x", "{:g}".format)
    ticks = list(next(iter(by_arm.values())))
    ax.set_xticks(ticks, ticks)
    ax.minorticks_off()
    ax.set(xlabel="images of a step", ylabel="times as fast as one worker", ylim=(0, None))
    ax.legend(frameon=False)
    display(figure)


def published_table(epoch_seconds):
    """Return epochs with few and with many workers: published with 8 and 256 GPUs, and here.

    epoch_seconds  {workers: [seconds of an epoch, ...]}, one worker among them
    returns        a DataFrame. Ratios of this run are of medians, with the lowest and the highest
                   ratio of two epochs. Several GPUs of this machine are a row with a reason and no
                   number
    """
    rows = {}
    known = published.table("scaling-out").set_index("gpus")
    for gpus, hours in known["hours"].items():
        ratio = known["hours"][8] / hours
        name = f"ResNet-50, published, {gpus} GPUs ({hours:g} h for {EPOCHS} epochs)"
        rows[name] = _epoch(3_600 * hours / EPOCHS, ratio, gpus / 8, f"{ratio:.3g}")
    one = epoch_seconds[1]
    for workers, seconds in epoch_seconds.items():
        ratio = np.median(one) / np.median(seconds)
        text = f"{ratio:.2f}"
        if workers > 1:
            text += f" ({min(one) / max(seconds):.2f} to {max(one) / min(seconds):.2f})"
        name = f"here, {workers} worker{'s' * (workers > 1)}"
        rows[name] = _epoch(np.median(seconds), ratio, workers, text)
    if torch.cuda.device_count() < 2:
        reason = f"waits for a machine with two GPUs, this one has {torch.cuda.device_count()}"
        rows["here, several GPUs (NCCL)"] = "–", "–", reason
    columns = ["seconds per epoch", "times as fast", "share of the ideal"]
    return pd.DataFrame(rows.values(), rows, columns)


def _epoch(seconds, times_as_fast, times_as_many, text):
    """Return the texts of a row: seconds of an epoch, times as fast, share of the ideal.

    times_as_many  workers or GPUs, as a multiple of those compared with
    text           of times as fast
    """
    share = 100 * times_as_fast / times_as_many
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.2f}", text, f"{share:.0f} %"


# --- pipelines ---


def ends_of(schedule):
    """Return when each pass of a pipeline ends: {(stage, "F" or "B", micro-batch): units}.

    A pass begins when its stage is free and its input is there. A forward pass takes its input from
    the stage before, a backward pass from the stage behind; the last stage takes its own forward
    pass.

    schedule  for each stage a list of ("F" or "B", micro-batch)
    """
    ends, last = {}, len(schedule) - 1
    waiting = [list(passes) for passes in schedule]
    free = [0] * len(schedule)
    while any(waiting):
        before = len(ends)
        for stage, passes in enumerate(waiting):
            if not passes:
                continue
            kind, i = passes[0]
            source = (stage - 1, kind, i) if kind == "F" else (stage + 1, kind, i)
            if kind == "B" and stage == last:
                source = stage, "F", i
            first = kind == "F" and stage == 0
            if first or source in ends:
                free[stage] = max(free[stage], ends.get(source, 0)) + LENGTHS[kind]
                ends[stage, kind, i] = free[stage]
                passes.pop(0)
        if len(ends) == before:
            raise LabError(
                "Every stage of this schedule waits for another one.",
                expected="a pass whose input is there",
                found=f"next come {[passes[:1] for passes in waiting]}",
                fix="order the passes so that each stage has its input in time",
            )
    return ends


def draw_pipelines(plans):
    """Draw schedules of a pipeline side by side: a row for each stage, and the share of waiting.

    plans  {title: schedule}, a list of ("F" or "B", micro-batch) for each stage
    """
    figure, axes = canvas(5.5 * len(plans), 2.6, columns=len(plans))
    ends = {title: ends_of(schedule) for title, schedule in plans.items()}
    longest = max(max(table.values()) for table in ends.values())
    for ax, (title, schedule) in zip(np.atleast_1d(axes), plans.items(), strict=True):
        for (stage, kind, number), end in ends[title].items():
            _draw_pass(ax, stage, kind, number, start=end - LENGTHS[kind], end=end)
        work = sum(LENGTHS[kind] for kind, _ in schedule[0])
        units = max(ends[title].values())
        waiting = 100 * (1 - work / units)
        ax.set_title(f"{title}: {units} units, {waiting:.0f} % waiting", fontsize=10)
        ax.set_yticks(range(len(schedule)), [f"stage {stage}" for stage in range(len(schedule))])
        ax.set(xlabel="time (a forward pass of one micro-batch = 1)", xlim=(0, longest))
        ax.invert_yaxis()
    display(figure)


def _draw_pass(ax, stage, kind, number, *, start, end):
    """Draw one forward (blue) or backward (orange) pass of a micro-batch."""
    colour = COLOURS["FB".index(kind)]
    ax.barh(stage, end - start, left=start, color=colour, edgecolor="white")
    middle = (start + end) / 2
    ax.text(middle, stage, str(number), ha="center", va="center", color="white", fontsize=8)
