"""For the lesson of the customer's order: a board of the judge's scores, a cheat, the pictures.

Each function serves one cell of the lesson; the cell shows what goes in and what comes out.
"""

import copy
import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pandas as pd
import torch
from torch import nn
from torch.nn.functional import avg_pool2d
from torch.nn.utils import parametrize
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from labkit.capstone import gates
from labkit.capstone.exam import Exam, ExamSize
from labkit.capstone.judge import Score, keep_score, score
from labkit.capstone.order import MEDALS, Submission, stored_file
from labkit.data import load
from labkit.device import using_threads
from labkit.files import artifacts
from labkit.lesson.support import load_support
from labkit.measure.stats import Interval, bootstrap_paired, mean_interval
from labkit.measure.tails import ratio_of_p95
from labkit.plots import COLOURS, GREY, canvas
from labkit.report.deployment_card import write_card

RESAMPLES = 400
hard_cases = load_support("quantization_hard_cases")  # the nodes and ranges of lesson 14
BEST_FIRST = [medal.name for medal in MEDALS]
HEAD = """<ir_version: 9, opset_import: ["" : 20]>
net (float[N, 1, 28, 28] picture) => (float[N, 10] answer)"""
WHERE_ROUNDED = (
    nn.Conv2d,
    nn.Linear,
    nn.MaxPool2d,
    nn.AdaptiveAvgPool2d,
    nn.BatchNorm2d,
    nn.BatchNorm1d,
)


# --- the order and the board ----------------------------------------------------------------------


def medals_table():
    """Return the three medals and their limits as a table."""
    rows = {
        medal.name: {
            "changed copies right, at least": f"{100 * medal.accuracy:g} %",
            "p95 without the floor of a call ÷ the reference's, at most": f"{medal.latency:g}",
            "file, at most": f"{medal.size_bytes / 1e3:,.0f} kB",
        }
        for medal in MEDALS
    }
    return pd.DataFrame(rows).T


class Board:
    """The judge's score of each file, a row each; a second file of the same name replaces its row.

    images  number of pictures that the judge asks, each also as a changed copy
    rounds  number of rounds, in each of which one picture is timed
    """

    def __init__(self, images: int, rounds: int):
        self.size = ExamSize(images, rounds)
        self.scores: dict[str, Score] = {}
        self.authors: dict[str, str] = {}

    def hand_in(self, files: Mapping[str, Path], author: str = "the course") -> None:
        """Let the judge score files, {name: path}, and print its lines."""
        for judged in judge(files, self.size).values():
            self.scores[judged.name] = judged
            self.authors[judged.name] = author
            print(judged)

    def best(self, names: Iterable[str]) -> str:
        """Return the name with the best medal; of several, the one with the highest score."""
        return max(names, key=lambda name: _worth_of(self.scores[name]))

    def show(self):
        """Return the board as a table, the best first."""
        names = sorted(self.scores, key=lambda name: _worth_of(self.scores[name]), reverse=True)
        rows = {name: {"from": self.authors[name], **_row_of(self.scores[name])} for name in names}
        return pd.DataFrame(rows).T


def judge(files: Mapping[str, Path], size: ExamSize) -> dict[str, Score]:
    """Let the judge score files. Returns {name: `Score`}.

    files  {name: path}
    """
    judged = score([Submission(path, name=str(name)) for name, path in files.items()], size=size)
    return dict(zip(files, judged, strict=True))


def _worth_of(judged):
    """Return the key that sorts a board: the medal, then the points."""
    place = BEST_FIRST.index(judged.medal) if judged.medal in BEST_FIRST else len(BEST_FIRST)
    return -place, judged.points.median if judged.points else 0.0


def _row_of(judged):
    """Return the row of a score in the table: {column: text}."""
    if judged.refused:
        return {
            "medal": "refused",
            "right (%)": "-",
            "kB": f"{judged.facts['size_bytes'] / 1e3:,.0f}",
        } | dict.fromkeys(("p95 ÷ reference's", "score"), "-")
    return {
        "medal": judged.medal or "none",
        "right (%)": str(100 * judged.accuracy),
        "kB": f"{judged.facts['size_bytes'] / 1e3:,.0f}",
        "p95 ÷ reference's": str(judged.latency),
        "score": str(judged.points),
    }


def floor_of(judged: Score) -> tuple[float, float]:
    """Return (seconds of a call that computes nothing, p95 in seconds of the reference's call)."""
    return float(np.median(judged.facts["floor"])), float(
        np.quantile(judged.facts["reference"], 0.95)
    )


# --- a cheat, and its honest neighbour ------------------------------------------------------------


def thumbnails(folder: Path) -> Path:
    """Write an ONNX file that holds a thumbnail, 7 x 7 pixels, and the label of every test image.

    The file answers with the label of the nearest thumbnail. For the thumbnail x of a picture and a
    stored thumbnail w, the squared distance is x·x - 2 (x·w - w·w / 2): the nearest w has the
    largest x·w - w·w / 2, and one matrix product computes these for all w.
    """
    test = load("fashion-mnist", "test")
    pictures = torch.cat([batch for batch, _ in test.batches(1000)])
    low, step = pictures.min(), (pictures.max() - pictures.min()) / 255
    stored = ((avg_pool2d(pictures, 4).flatten(1) - low) / step).round()
    graph = """ {
        small = AveragePool <kernel_shape = [4, 4], strides = [4, 4]> (picture)
        flat = Flatten (small)
        moved = Sub (flat, low)
        level = Div (moved, step)
        x = Round (level)
        known = Cast <to = 1> (w)
        near = Gemm (x, known, half)
        which = ArgMax <axis = 1, keepdims = 0> (near)
        label = Gather <axis = 0> (labels, which)
        class = Cast <to = 7> (label)
        answer = Gather <axis = 0> (rows, class)
    }"""
    tensors = {
        "w": stored.T.to(torch.uint8),
        "half": -stored.square().sum(1) / 2,
        "low": low,
        "step": step,
    }
    tensors |= {"labels": test.labels.to(torch.int8), "rows": torch.eye(10)}
    return _written(HEAD + graph, tensors, folder / "thumbnails.onnx")


def linear(folder: Path) -> Path:
    """Write a linear classifier as an ONNX file: it comes from one equation, without training."""
    some = load("fashion-mnist", "train", limit=4000)
    x = torch.cat([batch.flatten(1) for batch, _ in some.batches(1000)])
    x = torch.cat([x, torch.ones(len(x), 1)], 1)
    solved = torch.linalg.solve(x.T @ x + 300 * torch.eye(785), x.T @ torch.eye(10)[some.labels])
    graph = " { x = Flatten (picture) answer = Gemm (x, weight, shift) }"
    return _written(
        HEAD + graph, {"weight": solved[:-1], "shift": solved[-1]}, folder / "linear.onnx"
    )


def _written(text, tensors, path):
    """Write an ONNX file from its text and its tensors. Returns the path."""
    model = onnx.parser.parse_model(text)
    for name, tensor in tensors.items():
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(tensor.contiguous().numpy(), name)
        )
    onnx.save(model, path)
    return path


def misses(judged: Score, medal: str) -> list[str]:
    """Return the limits of a medal that a file misses, by its facts alone.

    They are looked at as if no gate had refused the file.
    """
    facts = judged.facts
    latency = ratio_of_p95(facts["times"], facts["reference"], facts["floor"])
    (level,) = [level for level in MEDALS if level.name == medal]
    return level.misses(float(np.mean(facts["right"])), latency.median, facts["size_bytes"])


def medal_without_gates(judged: Score) -> str:
    """Return the best medal whose limits a file misses none of, if nobody looked for cheats."""
    return next((name for name in BEST_FIRST if not misses(judged, name)), "no medal")


def signs(scores: Mapping[str, Score]):
    """Return a table of the two signs by which the gates tell a cheat."""
    rows = {}
    for name, judged in scores.items():
        originals, copies, *reference = (
            np.array(judged.facts[part], float)
            for part in ("right_before", "right", "reference_right_before", "reference_right")
        )
        forgets = 100 * bootstrap_paired(reference[0] - reference[1], originals - copies)
        hard = np.concatenate(reference) == 0
        knows = 100 * np.concatenate([originals, copies])[hard].mean()
        rows[name] = str(forgets), f"{knows:.0f}"
    rows["the gate"] = (
        f"low end > {100 * gates.FORGETS:g}",
        f"over {100 * gates.KNOWS:g}, plus chance",
    )
    return pd.DataFrame(
        rows, ["forgets more than the reference (points)", "knows of its errors (%)"]
    ).T


# --- what a technique is worth --------------------------------------------------------------------


class Worth:
    """What techniques are worth, by the scores of files with some of the techniques.

    Intervals come from 400 resamples of the judge's rounds.

    scores  {frozenset of techniques: `Score` of the file}; the empty set is the reference
    """

    def __init__(self, scores: Mapping[frozenset, Score]):
        self.techniques = tuple(sorted(frozenset().union(*scores)))
        self.rounds = min(len(judged.facts["times"]) for judged in scores.values())
        draws = np.random.default_rng(0).integers(0, self.rounds, (RESAMPLES, self.rounds))
        draws[0] = np.arange(self.rounds)
        self.faster = {frozenset(): np.ones(RESAMPLES)}
        self.smaller = {frozenset(): 1.0}
        for chosen, judged in scores.items():
            facts = judged.facts
            p95, reference_p95 = (
                np.quantile(np.array(facts[name])[draws], 0.95, 1)
                for name in ("times", "reference")
            )
            self.faster[chosen] = reference_p95 / p95
            self.smaller[chosen] = facts["reference_bytes"] / facts["size_bytes"]

    def score(self, chosen: frozenset, draw: int = 0) -> float:
        """Return the score with these techniques in one resample; resample 0 is the measurement."""
        return math.sqrt(self.faster[chosen][draw] * self.smaller[chosen])

    def factors(self, orders, fair_factors: Callable) -> dict[str, dict[str, Interval]]:
        """Return what each technique is worth first, on average, and last.

        Returns {"first", "average over ... orders", "last, ...": {technique: factor of the score}}.

        orders        orders in which the techniques are applied
        fair_factors  function (orders, score of a set of techniques) -> {technique: average factor}
        """
        everything = frozenset(self.techniques)
        fair = [
            fair_factors(orders, lambda chosen, draw=draw: self.score(chosen, draw))
            for draw in range(RESAMPLES)
        ]
        first, average, last = {}, {}, {}
        for name in self.techniques:
            first[name] = self.interval(self._factors(name, frozenset()))
            average[name] = self.interval(np.array([factors[name] for factors in fair]))
            last[name] = self.interval(self._factors(name, everything - {name}))
        return {
            "first": first,
            f"average over {len(orders)} orders": average,
            "last, after the others": last,
        }

    def overlap(self, name: str) -> Interval:
        """Return the factor of a technique that comes first over its factor when it comes last."""
        everything = frozenset(self.techniques)
        return self.interval(
            self._factors(name, frozenset()) / self._factors(name, everything - {name})
        )

    def time_gain(self, name: str) -> Interval:
        """Return how many times as fast whole calls become by a technique after all others."""
        everything = frozenset(self.techniques)
        return self.interval(self.faster[everything] / self.faster[everything - {name}])

    def _factors(self, name, before):
        """Return (resamples,) factors of the score that a technique brings when others come before.

        before  frozenset of the techniques that come before
        """
        after = before | {name}
        speed, size = (
            self.faster[after] / self.faster[before],
            self.smaller[after] / self.smaller[before],
        )
        return np.sqrt(speed * size)

    def interval(self, values) -> Interval:
        """Return the interval of a number from its values in all resamples."""
        return Interval(*np.quantile(values, [0.025, 0.975]), self.rounds, values[0])


def draw_worth(kinds: Mapping[str, Mapping[str, Interval]]):
    """Draw the factor of each technique, an interval for each kind: first, on average, last.

    kinds  what `Worth.factors` returned
    """
    techniques = list(next(iter(kinds.values())))
    figure, ax = canvas(7, 1 + 0.7 * len(techniques))
    shifts = np.linspace(-0.25, 0.25, len(kinds))
    for (label, factors), shift, colour in zip(kinds.items(), shifts, COLOURS, strict=False):
        for row, technique in enumerate(techniques):
            interval, height = factors[technique], row + shift
            ax.plot([*interval], [height] * 2, color=colour, lw=5, alpha=0.4)
            ax.plot(interval.median, height, "o", color=colour, label=None if row else label)
            text = f"{interval.median:.2f}"
            ax.annotate(
                text, (interval.high, height), (6, -3), textcoords="offset points", fontsize=9
            )
    ax.axvline(1, color=GREY, lw=1)
    ax.set_yticks(range(len(techniques)), techniques)
    ax.set(ylim=(len(techniques) - 0.4, -0.6), xlabel="factor of the score (1: worth nothing)")
    ax.margins(x=0.12)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


# --- healing --------------------------------------------------------------------------------------


@torch.no_grad()
def renormed(network: nn.Module, pixels: torch.Tensor) -> nn.Module:
    """Return a copy whose batch norms have measured their means and variances anew (lesson 16).

    pixels  images that the statistics are measured on
    """
    network = copy.deepcopy(network).train()
    for layer in network.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean over all batches
    for batch in pixels.split(256):
        network(batch)
    return network.eval()


@torch.inference_mode()
def copies_right(network: nn.Module, exam: Exam) -> np.ndarray:
    """Return (n,) 0 or 1: which of the changed copies of an exam a network answers right."""
    _, pictures = exam.forms(exam.pictures)
    _, labels = exam.forms(exam.labels)
    pictures = torch.from_numpy(pictures).to(memory_format=torch.channels_last)
    answers = torch.cat([network(batch) for batch in pictures.split(200)])
    return (answers.argmax(1).numpy() == labels).astype(float)


def share_of_healing(cut: np.ndarray, renewed: np.ndarray, healed: np.ndarray) -> Interval:
    """Return what percentage of the points that healing brings, new statistics alone bring.

    cut, renewed, healed  (n,) of 0 and 1: right after the cut, with new statistics, after healing
    """
    count = len(cut)
    draws = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    draws[0] = np.arange(count)
    before, by_norms, by_healing = (right[draws].mean(1) for right in (cut, renewed, healed))
    shares = 100 * (by_norms - before) / (by_healing - before)
    return Interval(*np.quantile(shares, [0.025, 0.975]), count, shares[0])


def draw_healing(series: Mapping[str, Mapping[float, np.ndarray]]):
    """Draw copies right against epochs of healing, with the medals' limits. Returns the figure.

    series  {label: {epochs: (n,) of 0 and 1}}
    """
    figure, ax = canvas(6.5, 3)
    for (label, healed), shift, colour in zip(series.items(), (-0.06, 0.06), COLOURS, strict=False):
        for column, right in enumerate(healed.values()):
            interval, position = 100 * mean_interval(right), column + shift
            ax.plot([position] * 2, [*interval], color=colour, lw=5, alpha=0.4)
            ax.plot(position, interval.median, "o", color=colour, label=None if column else label)
    epochs = list(next(iter(series.values())))
    for level, up in zip(MEDALS, (3, -3, -9), strict=True):
        limit = 100 * level.accuracy
        ax.axhline(limit, color=GREY, lw=1, ls="--")
        corner = (len(epochs) - 0.5, limit)
        ax.annotate(
            f"{level.name} {limit:g}", corner, (4, up), textcoords="offset points", fontsize=9
        )
    ax.set_xticks(range(len(epochs)), [f"{count:g}" for count in epochs])
    ax.set(
        xlabel="epochs of healing",
        ylabel="copies right (%)",
        ylim=(0, 100),
        xlim=(-0.5, len(epochs) - 0.5),
    )
    ax.legend(frameon=False, loc="lower right")
    return figure


# --- fake quantizers, as the reader wrote them in lesson 14 ---------------------------------------


class Grid(nn.Module):
    """A fake quantizer, as in lesson 14: the gradient passes straight through."""

    def __init__(self, scale, low, high):
        super().__init__()
        self.register_buffer("scale", torch.as_tensor(scale))
        self.low, self.high = low, high

    def forward(self, x):
        if torch.compiler.is_exporting():
            return hard_cases.as_nodes(x, self.scale, self.low, self.high)
        steps = x / self.scale
        rounded = steps.round().clamp(self.low, self.high)
        inside = steps.clamp(self.low, self.high)
        return (inside + (rounded - inside).detach()) * self.scale


@torch.no_grad()
def with_grids(network: nn.Sequential, calibration: torch.Tensor) -> nn.Sequential:
    """Return a copy of a network that rounds weights and inputs of its layers to 8 bits.

    calibration  pictures, whose numbers decide the ranges of the inputs
    """
    twin = _without_norms(network)
    for layer in [layer for layer in twin if isinstance(layer, WHERE_ROUNDED)]:
        _round_inputs(layer, twin, calibration)
        if isinstance(layer, nn.Conv2d | nn.Linear):
            _round_weights(layer)
    return twin


def _without_norms(network):
    """Return one `Sequential` in which each norm right after a layer is folded into that layer."""
    fuse = {nn.Conv2d: fuse_conv_bn_eval, nn.Linear: fuse_linear_bn_eval}
    layers = []
    for layer in copy.deepcopy(network).eval():
        for part in layer if isinstance(layer, nn.Sequential) else [layer]:
            if (
                isinstance(part, nn.modules.batchnorm._BatchNorm)
                and layers
                and type(layers[-1]) in fuse
            ):
                layers[-1] = fuse[type(layers[-1])](layers[-1], part)
            else:
                layers.append(part)
    return nn.Sequential(*layers)


def _round_inputs(layer, network, calibration):
    """Let a layer round its inputs to 8 bits, on a grid from the range in the calibration."""
    smallest, largest = hard_cases.observed(layer, network, calibration)
    scale = max(largest - smallest, 1e-9) / 255
    low = round(smallest / scale)
    layer.input_grid = Grid(scale, low, low + 255)
    layer.register_forward_pre_hook(lambda layer, arguments: layer.input_grid(arguments[0]))


def _round_weights(layer):
    """Round weights on a grid for each output channel, and the bias on the grid of the products."""
    largest = layer.weight.flatten(1).abs().amax(1).clamp_min(1e-9)
    grid = Grid(largest.view(-1, *[1] * (layer.weight.ndim - 1)) / 127, -127, 127)
    parametrize.register_parametrization(layer, "weight", grid)
    if layer.bias is not None:
        products = Grid(layer.input_grid.scale * grid.scale.flatten(), -(2**30), 2**30)
        parametrize.register_parametrization(layer, "bias", products)


# --- delivery -------------------------------------------------------------------------------------


def deliver(judged: Score, run_key: str) -> Path:
    """Enter a score in the leaderboard, and write the folder to hand over. Returns the folder.

    The network in the folder is the one that the judge stored. For a coded file it is the ONNX file
    inside, which predict.py opens without labkit.
    """
    row = keep_score(judged, run_key=run_key)
    network = stored_file(judged.facts["sha256"])
    return write_card(row, network, artifacts() / "ship" / "delivery")


def run_alone(folder: Path) -> str:
    """Run a folder's predict.py where labkit and torch are blocked. Returns what it printed."""
    blocked = "import runpy, sys; sys.modules.update(labkit=None, torch=None); "
    program = blocked + "runpy.run_path('predict.py', run_name='__main__')"
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.stdout or done.stderr


def subsets(techniques: Iterable[str]) -> list[frozenset]:
    """Return every set of techniques but the empty one."""
    techniques = list(techniques)
    sizes = range(1, len(techniques) + 1)
    return [
        frozenset(chosen) for size in sizes for chosen in itertools.combinations(techniques, size)
    ]


def one_thread():
    """Return a context in which torch has one thread: sharing so small a network gains nothing."""
    return using_threads(1)
