"""For the lesson on training fast: trainings side by side, rows of the map, and the pictures.

What is trained, and how, the lesson decides.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from IPython.display import HTML, display

from labkit.capstone.race import Race, Raced, keep_race
from labkit.device import kind, pool, usable_cores
from labkit.ledger.rows import RaceScore
from labkit.measure.stats import Interval, mean_interval, mean_ratio
from labkit.plots import COLOURS, GREY, canvas
from labkit.report.leaderboard import as_html, board

SMALL_TEXT = 8.5  # points
MIN_SAMPLES = 3  # of a mean
FACTORS = (0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16)  # marks of an axis of factors


# --- trainings ---


def side_by_side(train: Callable, jobs: Iterable[tuple], device) -> np.ndarray:
    """Return the array of train(*job) for every job, in order.

    On a CPU as many run at once as there are cores, on a GPU one. Do not time them: they slow each
    other.
    """
    workers = usable_cores() if kind(device) == "cpu" else 1
    with pool(workers) as threads:
        return np.array(list(threads.map(lambda job: train(*job), jobs)))


def in_rounds(calls: Mapping[str, Callable], rounds: int, seed: int = 0) -> dict:
    """Make every call once per round, in random order. Returns {name: (rounds,) returned values}.

    One call of each, before the rounds, does not count.
    """
    rng = random.Random(seed)
    values = {name: [] for name in calls}
    for call in calls.values():
        call()  # the first call of each does not count
    for _ in range(rounds):
        for name in rng.sample(list(calls), len(calls)):
            values[name].append(calls[name]())
    return {name: np.array(measured) for name, measured in values.items()}


# --- the map ---


class Row(NamedTuple):
    """A recipe on the map.

    recipe  {field: value}
    need    (seeds,) number of images to the target
    cost    (rounds,) seconds per image
    """

    recipe: dict
    need: np.ndarray
    cost: np.ndarray

    @property
    def images(self):
        """Return the number of images to the target, the geometric mean over the seeds."""
        return float(np.exp(np.log(self.need).mean()))

    @property
    def seconds(self):
        """Return the seconds to the target."""
        return self.images * float(np.median(self.cost))


def faster(before: Row, after: Row) -> Interval:
    """Return how many times as fast the second recipe reaches the target, an `Interval`.

    That is fewer images times cheaper images. Both factors were measured apart, so their relative
    errors add up as squares do.
    """
    fewer, cheaper = mean_ratio(before.need, after.need), mean_ratio(before.cost, after.cost)
    factors = fewer, cheaper
    reach = np.hypot(*(np.log(factor.high / factor.low) / 2 for factor in factors))
    middle = fewer.median * cheaper.median
    samples = min(fewer.samples, cheaper.samples)
    ends = float(middle * np.exp(-reach)), float(middle * np.exp(reach))
    return Interval(*ends, samples, float(middle), MIN_SAMPLES, "t")


def factors(before: Row, after: Row) -> str:
    """Return in words the two factors of a change: fewer images, and cheaper images."""
    fewer = before.images / after.images
    cheaper = mean_ratio(before.cost, after.cost).median
    return f"{fewer:.2f} x fewer images, each {cheaper:.2f} x as cheap"


# --- the shortest that passed ---


class Choice(NamedTuple):
    """The length chosen after tries on one seed.

    images  the chosen length
    passed  True where it reached the target
    words   what the length is, in words
    report  a sentence to print
    """

    images: int
    passed: bool
    words: str
    report: str


def choose(tries: Mapping, target: float) -> Choice:
    """Return the shortest length that reached the target; where none did, the longest.

    tries  {images: percent right}
    """
    reached = [images for images in tries if tries[images] >= target]
    if reached:
        shortest = min(reached)
        report = f"{shortest:,} images are the shortest that passed: {tries[shortest]:.1f} % right."
        return Choice(shortest, True, "shortest try that passed", report)
    best = max(tries.values())
    report = f"No try up to {max(tries):,} images passed; the best got {best:.1f} %: start longer."
    return Choice(max(tries), False, "longest try, which did not pass either,", report)


# --- pictures ---


def draw_needed(lengths, accuracies, target, slope):
    """Draw accuracy against images, and a line through the dots with a given slope.

    lengths, accuracies  (trainings,) images and percent
    target               percent
    slope                points per doubling of the images
    """
    middle = np.log2(lengths).mean() + (target - np.mean(accuracies)) / slope
    figure, ax = canvas(6, 3)
    ends = np.array([min(lengths) / 1.2, max(lengths) * 1.2])
    ax.plot(lengths, accuracies, "o", color=COLOURS[0], label="a training")
    ax.plot(ends, target + slope * (np.log2(ends) - middle), color=COLOURS[0], lw=1)
    ax.axhline(target, color=GREY, ls="--", lw=1)
    ax.text(ends[0], target + 0.4, "target", color=GREY)
    ax.axvline(2.0**middle, color=GREY, ls=":")
    _images_axis(ax, lengths)
    ax.set(xlabel="images shown", ylabel="right (%)")
    display(figure)


def draw_memory(batches, rights, images):
    """Draw accuracy against the batch, with running statistics and with statistics counted anew.

    rights  (batches, seeds, 2) percent
    """
    figure, ax = canvas(6, 3)
    names = "running statistics", "the same weights, statistics counted anew"
    for number, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        tested = rights[..., number]
        places = np.repeat(batches, tested.shape[1])
        ax.plot(places, tested.flatten(), "o", ms=4, alpha=0.4, color=colour)
        ax.plot(batches, tested.mean(1), "o-", color=colour, label=name)
    ax.set(xscale="log", ylabel="right (%)", ylim=(0, 100), xlabel=f"batch, on {images:,} images")
    ax.set_xticks(batches, batches)
    ax.minorticks_off()
    figure.legend(frameon=False, loc="outside upper center", ncols=2, fontsize=SMALL_TEXT)
    display(figure)


def draw_averages(decays, rights_by_name):
    """Draw accuracy against the decay of an EMA, a panel for each schedule.

    The decay 0 stands for the last weights.

    rights_by_name  {schedule: (seeds, decays, 2) percent: with statistics of the last weights, own}
    """
    figure, axes = canvas(9, 3.2, columns=len(rights_by_name))
    labels = ["last\nweights", *(f"{decay:g}" for decay in decays[1:])]
    for ax, (name, rights) in zip(np.atleast_1d(axes), rights_by_name.items(), strict=True):
        for number, words in enumerate(
            ("statistics of the last weights", "statistics of their own")
        ):
            means = [mean_interval(column) for column in rights[..., number].T]
            middles = [interval.mean for interval in means]
            reach = [interval.high - interval.mean for interval in means]
            places = np.arange(len(decays)) + 0.06 * (2 * number - 1)
            ax.errorbar(places, middles, reach, fmt="o-", color=COLOURS[number], label=words)
        ax.set(xlabel="decay of the average", ylabel="right (%)")
        ax.set_title(name, fontsize=10)
        ax.set_xticks(range(len(decays)), labels)
    lowest = min(ax.get_ylim()[0] for ax in np.atleast_1d(axes))
    highest = max(ax.get_ylim()[1] for ax in np.atleast_1d(axes))
    for ax in np.atleast_1d(axes):
        ax.set_ylim(lowest, highest)
    np.atleast_1d(axes)[0].legend(frameon=False, fontsize=SMALL_TEXT, loc="lower left")
    display(figure)


def draw_map(rows, lines=()):
    """Draw images needed against time per image; grey lines join equal seconds.

    Returns the picture.

    rows   {name: `Row`}
    lines  lists of names that a line joins
    """
    figure, ax = canvas(8, 4.4)
    needs = np.array([row.images for row in rows.values()])
    costs = np.array([1e6 * np.median(row.cost) for row in rows.values()])
    reach = [needs.min() / 1.5, needs.max() * 1.7]
    height = [costs.min() / 1.4, costs.max() * 1.5]
    _equal_seconds(ax, reach, height)
    for names in lines:
        places = [list(rows).index(name) for name in names]
        ax.plot(needs[places], costs[places], color=GREY, lw=1)
    for number, name in enumerate(rows):
        colour = COLOURS[number % len(COLOURS)]
        ends = np.clip(np.exp(tuple(mean_interval(np.log(rows[name].need)))), *reach)
        ax.plot(ends, [costs[number]] * 2, color=colour, lw=3, alpha=0.35)
        ax.plot(needs[number], costs[number], "o", color=colour)
        place = needs[number], costs[number]
        ax.annotate(name, place, (4, 5), textcoords="offset points", fontsize=SMALL_TEXT)
    ax.set(xscale="log", yscale="log", xlim=reach, ylim=height)
    ax.set(xlabel="images needed to the target", ylabel="time per image (µs)")
    for axis, (low, high) in ((ax.set_xticks, reach), (ax.set_yticks, height)):
        marks = [mark for mark in _round_numbers() if low <= mark <= high]
        axis(marks, [f"{mark:,}" for mark in marks])
    ax.minorticks_off()
    display(figure)
    return figure


def _equal_seconds(ax, reach, height):
    """Draw lines of equal seconds, which double from line to line."""
    ends = np.array(reach)
    for seconds in 2.0 ** np.arange(-8, 10):
        ax.plot(ends, 1e6 * seconds / ends, color=GREY, lw=0.6, zorder=0)
        at_top = 1e6 * seconds / height[1]
        if ends[0] < at_top < ends[1]:
            place = at_top, height[1] * 1.03
            ax.text(*place, f"{seconds:g} s", color=GREY, ha="center", fontsize=SMALL_TEXT)


def _round_numbers():
    """Return 1, 1.5, 2, 3, 5, 7 times powers of ten, as whole numbers from 10 on."""
    return [int(digit * 10**power) for power in range(1, 6) for digit in (1, 1.5, 2, 3, 5, 7)]


def draw_changes(alone, on_top, out=()):
    """Draw what each change is worth, alone and on top of those above it. Returns the picture.

    alone, on_top  {name: `Interval` of times as fast}
    out            names of the changes that did not stay
    """
    figure, ax = canvas(7.5, 1.2 + 0.5 * len(alone))
    names = [*on_top, *(name for name in alone if name not in on_top)]
    for words, factors, shift, colour in (
        ("alone", alone, -0.13, GREY),
        ("on top", on_top, 0.13, COLOURS[0]),
    ):
        for name, factor in factors.items():
            height = names.index(name) + shift
            ends = np.clip([factor.low, factor.high], 0.2, 20)
            ax.plot(ends, [height] * 2, lw=3, color=colour)
            ax.plot(factor.median, height, "o", color=colour)
        ax.plot([], [], "o-", color=colour, label=words)
    ax.axvline(1, color="black", lw=1)
    ax.set_yticks(range(len(names)), [name + (" (out)" if name in out else "") for name in names])
    ax.set(xscale="log", ylim=(len(names) - 0.5, -0.5), xlabel="times as fast to the target")
    low, high = ax.get_xlim()
    marks = [mark for mark in FACTORS if low <= mark <= high]
    ax.set_xticks(marks, [f"{mark:g}" for mark in marks])
    ax.minorticks_off()
    figure.legend(frameon=False, loc="outside upper right", ncols=2)
    display(figure)
    return figure


def draw_tries(tries, chosen, fresh, target):
    """Draw the tries on one seed, and the trainings of the chosen length on fresh seeds.

    tries   {images: percent}
    chosen  the chosen length, in images
    fresh   (seeds,) percent
    target  percent
    """
    figure, ax = canvas(6.5, 3)
    lengths = sorted(tries)
    rights = [tries[images] for images in lengths]
    ax.plot(lengths, rights, "o-", color=COLOURS[0], label="one seed, shorter and shorter")
    words = f"{chosen:,} images, fresh seeds"
    ax.plot([chosen] * len(fresh), fresh, "x", color=COLOURS[1], label=words)
    ax.axhline(target, color=GREY, ls="--", lw=1)
    _images_axis(ax, tries)
    ax.set(xlabel="images shown", ylabel="right (%)")
    figure.legend(frameon=False, loc="outside upper center", ncols=2, fontsize=SMALL_TEXT)
    display(figure)


def _images_axis(ax, lengths):
    marks = spaced(lengths)
    ax.set_xscale("log")
    ax.set_xticks(marks, [f"{mark:,}" for mark in marks], fontsize=SMALL_TEXT)
    ax.minorticks_off()


def spaced(lengths, most=6):
    """Return lengths whose numbers do not overlap on a log axis with room for `most`."""
    ordered = sorted({int(length) for length in lengths})
    gap = np.log(ordered[-1] / ordered[0]) / most
    marks = ordered[:1]
    for length in ordered[1:]:
        if np.log(length / marks[-1]) >= gap:
            marks.append(length)
    return marks


# --- the judge's results ---


def leaderboard(results: Iterable[Raced], against: Race) -> HTML:
    """Store the judge's results of recipes, and return all results on this machine as a table.

    against  the `Race` that the recipes ran in
    """
    for result in results:
        keep_race(result, against)
    return HTML(as_html(board(RaceScore)))
