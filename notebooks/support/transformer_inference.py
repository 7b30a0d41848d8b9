"""For the lesson on transformer inference: its texts, a board of ways, pictures, two tables.

Each function serves one cell of the lesson; the cell shows what goes in and what comes out.
"""

import copy
import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import numpy as np
import onnx
import pandas as pd
import torch
from IPython.display import display
from onnx import numpy_helper
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

from labkit import engines, export, ledger
from labkit.data import paragraphs
from labkit.engines.served import Served
from labkit.errors import Unavailable
from labkit.export.runtime_graph import runtime_graph
from labkit.ledger import published
from labkit.measure import Comparison, Interval, in_turn
from labkit.measure.stats import percentile_interval
from labkit.models import minilm
from labkit.plots import COLOURS, GREY, canvas
from labkit.quantize import to_fp16
from labkit.text import encoded, padded

LENGTH = 16  # tokens of a text that are read
PER_CALL = 1  # texts, for the board: its neighbours and its speeds
DRAWN = 8  # texts in a heat map
FEW = 8  # texts per call, at most, for ways that are slow
ALLOWED = 3  # of 100 texts may find another neighbour
PLAIN = "PyTorch, fp32"
MIN_LOST = 5  # answers; with fewer a share of them is not drawn

# --- texts ----------------------------------------------------------------------------------------


class TextSet(NamedTuple):
    """Texts, and the tokens (T,) int64 of each, T at most 16."""

    texts: list
    tokens: list


def load(count: int, seed: int, *, control: int) -> tuple:
    """Load MiniLM and four sets of texts.

    "course" and "calibration" are paragraphs of this course, no text in both; "calibration" has 64.
    "manual" and "control" are paragraphs of the manual of Python (PSF licence), "control" from its
    end.

    count    number of texts in "course" and in "manual"
    seed     decides the order of the texts
    control  number of texts in "control"
    returns  (network, {name: `TextSet`}, why the network is a stand-in, or None)
    """
    course = _prose([paragraph.text.strip("*") for paragraph in paragraphs()], seed)
    pages = [" ".join(part.split()) for page in topics.values() for part in page.split("\n\n")]
    of_manual = _prose(pages, seed)
    texts = {
        "course": course[64 : 64 + count],
        "manual": of_manual[:count],
        "control": of_manual[-control:],
        "calibration": course[:64],
    }
    logging.getLogger().setLevel(logging.ERROR)  # the quantizer recommends a step in each call
    together = [text for chosen in texts.values() for text in chosen]
    network, tokens, missing = minilm.network_and_tokens(together, longest=LENGTH)
    sets = {}
    for name, chosen in texts.items():
        sets[name] = TextSet(chosen, tokens[: len(chosen)])
        tokens = tokens[len(chosen) :]
    return network, sets, missing


def _prose(texts, seed):
    """Return texts of ten words or more that begin with a letter, each once, shuffled."""
    prose = [text for text in dict.fromkeys(texts) if len(text.split()) > 9 and text[0].isalpha()]
    order = np.random.default_rng(seed).permutation(len(prose))
    return [prose[index] for index in order]


def show_search(question: str, texts: TextSet, vectors: torch.Tensor, network: Callable) -> None:
    """Print the three texts that are nearest to a question, each with its cosine."""
    tokens = minilm.network_and_tokens([question], longest=LENGTH)[1]
    cosines = vectors @ encoded(tokens, network)[0]
    print(question)
    for index in cosines.topk(3).indices.tolist():
        print(f"  {cosines[index]:.2f}  {texts.texts[index][:85]}")


# --- programs -------------------------------------------------------------------------------------


def in_pytorch(network: nn.Module) -> Callable:
    """Return a network as a program: tokens -> its output, without gradients."""

    def program(tokens):
        with torch.inference_mode():
            return network(tokens)

    return program


def in_onnxruntime(path: Path) -> Callable:
    """Return an ONNX file as a program of one thread: tokens -> its output."""
    session = export.session(path, threads=1)
    return lambda tokens: torch.from_numpy(session.run(None, {"tokens": tokens.numpy()})[0])


def to_onnx(network: nn.Module, path: Path) -> tuple[Path, int]:
    """Write a network as an ONNX file for any number of texts of any length.

    returns  (path, number of nodes as traced, before constants were folded)
    """
    program: Any = torch.onnx.export(
        network,
        (random_batch(2),),
        dynamo=True,
        input_names=["tokens"],
        dynamic_shapes=({0: "texts", 1: "tokens"},),
        optimize=False,
        verbose=False,
    )
    traced = len(program.model_proto.graph.node)
    program.optimize()
    program.save(path)
    return path, traced


# --- the same texts, two ways ---------------------------------------------------------------------


def brought_back(lost: torch.Tensor, remedied: torch.Tensor) -> Interval:
    """Return the percentage of lost answers that a remedy brings back, by a paired bootstrap.

    The interval is negative where the remedy loses more, and infinite where too few answers were
    lost.

    lost, remedied  (texts,) bool: does the text get another answer, without and with the remedy?
    """
    before = lost.numpy().astype(float)
    after = remedied.numpy().astype(float)
    if before.sum() < MIN_LOST:
        return Interval(-math.inf, math.inf, len(before), None)
    drawn = np.random.default_rng(0).integers(0, len(before), (2000, len(before)))
    lost_of_drawn = before[drawn].sum(1).clip(min=1)
    shares = 100 * (1 - after[drawn].sum(1) / lost_of_drawn)
    return percentile_interval(shares, len(before), 100 * (1 - after.sum() / before.sum()))


def paired(lost: dict, reference: torch.Tensor) -> pd.DataFrame:
    """Return a table of ways: how many of 100 texts get another answer, and what a way brings back.

    lost       {way: (texts,) bool: does the text get another answer?}
    reference  the row in `lost` of the way whose lost answers are to be brought back
    """
    rows = {}
    for way, row in lost.items():
        share = "" if row is reference else str(brought_back(reference, row))
        rows[way] = {
            "changed, of 100": f"{100 * row.float().mean():.1f}",
            "of the lost ones brought back, %": share,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


# --- the board ------------------------------------------------------------------------------------


@dataclass
class Board:
    """A row for each way: how many texts find another neighbour, and how fast the way is.

    network    PyTorch's program, tokens -> vectors, to which the speeds are relative
    tokens     tokens of the texts that are judged
    reference  the vectors of these texts in float32
    changed    the page's function: (reference, vectors) -> `Interval`, of 100 texts
    seconds    seconds of timing for each way
    rows       {way: (changed of 100, times as fast as PyTorch)}
    vectors    {way: the vectors of the texts}
    """

    network: Callable
    tokens: list
    reference: torch.Tensor
    changed: Callable[[Any, Any], Interval]
    seconds: float
    rows: dict = field(default_factory=dict)
    vectors: dict = field(default_factory=dict)

    def add(self, name: str, program: Callable) -> tuple:
        """Judge and time a way, print its row and return it: (changed of 100, times as fast)."""
        self.vectors[name] = encoded(self.tokens, program, size=PER_CALL)
        loss = self.changed(self.reference, self.vectors[name])
        batch = random_batch(PER_CALL)
        calls = {PLAIN: lambda: self.network(batch), name: lambda: program(batch)}
        speed = in_turn(calls, seconds=self.seconds)[name]
        self.rows[name] = loss, speed
        print(f"{name}: changes {loss} of 100; {speed.median:.2f} times as fast as PyTorch")
        return loss, speed

    def show(self, race: dict | None = None) -> Any:
        """Draw the board, a row for each way, and return the figure.

        race  {way: times as fast as PyTorch} of a race, drawn instead of the board's own speeds
        """
        names = list(self.rows)
        speeds = {name: speed for name, (_, speed) in self.rows.items()} | (race or {})
        columns = [self.rows[name][0] for name in names], [speeds[name] for name in names]
        figure, panels = canvas(9, 1.1 + 0.4 * len(names), columns=2)
        for ax, column, colour in zip(panels, columns, (COLOURS[1], COLOURS[0]), strict=True):
            _draw_intervals(ax, column, colour)
            ax.set_ylim(len(names) - 0.5, -0.5)
        panels[0].axvspan(0, ALLOWED, color=GREY, alpha=0.2, lw=0)
        panels[0].set_yticks(range(len(names)), names)
        panels[0].set_xlabel("of 100 texts, find another neighbour (grey: allowed)")
        panels[1].set_yticks([])
        panels[1].axvline(1, color=GREY, lw=1)
        panels[1].set_xlabel("times as fast as PyTorch, one text per call")
        display(figure)
        return figure


def _draw_intervals(ax, intervals, colour):
    """Draw an interval in each row, and write its middle beside it."""
    for row, interval in enumerate(intervals):
        ax.plot([interval.low, interval.high], [row, row], color=colour, lw=4, alpha=0.5)
        ax.plot(interval.median, row, "o", color=colour, ms=6)
        ax.annotate(
            f"{interval.median:.2g}",
            (1.02, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
        )
    ax.set_xlim(0, None)


def random_batch(count: int) -> torch.Tensor:
    """Return (count, 16) random tokens: which tokens they are changes no time."""
    return torch.randint(
        1000, 30_000, (count, LENGTH), generator=torch.Generator().manual_seed(count)
    )


def two_batches(tokens: list, count: int) -> list:
    """Return the inputs of a race: two batches of `count` texts each, as (count, 16) tokens.

    Real texts, because INT8 errs most on tokens that no text has in this order.

    tokens  of at least 2 * count texts
    """
    return [padded(tokens[:count], LENGTH), padded(tokens[count : 2 * count], LENGTH)]


# --- the outlier ----------------------------------------------------------------------------------


def largest_numbers(inputs: dict) -> pd.DataFrame:
    """Return a table of the largest numbers that enter layers, the sharpest peak first.

    inputs  {layer: (N, T, channels)}
    """
    rows = {}
    for name, x in inputs.items():
        size = x.abs()
        text_peaks = size.flatten(1).argmax(1)  # (N,) positions in a text
        position = int(text_peaks.mode().values)
        token, channel = divmod(position, x.shape[2])
        channels = size.amax((0, 1))
        rows[name] = {
            "largest number": float(size.max()),
            "of a usual channel": float(channels.median()),
            "times as large": float(size.max() / channels.median()),
            "token": token,
            "channel": channel,
            "texts at this place": int((text_peaks == position).sum()),
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.sort_values("times as large", ascending=False)


def heat_map(inputs: dict, names: tuple, channel: int) -> None:
    """Draw the inputs of layers: a row for each token of eight texts, a column for each channel.

    inputs   {layer: (N, T, channels)}
    names    the layers to draw
    channel  in the first picture, circles mark this channel in the first token of each text
    """
    figure, panels = canvas(9, 3.6, columns=len(names))
    for ax, name in zip(panels, names, strict=True):
        x = inputs[name][:DRAWN].abs()
        tokens = x.flatten(0, 1)
        image = ax.imshow(tokens, aspect="auto", cmap="magma", vmax=10, interpolation="nearest")
        ax.set(title=f"what enters {name}", xlabel="channel")
        ax.set_yticks(range(0, len(tokens), x.shape[1]), ["[CLS]"] * len(x))
    rows = range(0, DRAWN * LENGTH, LENGTH)
    panels[0].scatter([channel] * DRAWN, rows, 40, "none", edgecolors="white")
    figure.colorbar(image, ax=panels, label="absolute value, 10 or more: white")
    display(figure)


# --- a layer of a file ----------------------------------------------------------------------------


def one_product(path: Path, target: Path) -> tuple:
    """Cut the first product of 384 to 1,536 channels out of a file with weights in blocks.

    path     an ONNX file
    target   where the file of this one product is written
    returns  (weights (1536, 384) int8, scales (1536, blocks), the engine's program: (n, 384)
             float32 -> (n, 1536))
    """
    model = onnx.load(path)
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    products = [node for node in model.graph.node if node.op_type == "MatMulNBits"]
    node = next(product for product in products if stored[product.input[1]].dims[0] == 1536)
    ports = []
    for name, size in ((node.input[0], 384), (node.output[0], 1536)):
        ports.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, size]))
    weights = [stored[name] for name in node.input[1:3]]
    graph = onnx.helper.make_graph([node], "layer", ports[:1], ports[1:], weights)
    model.graph.CopyFrom(graph)
    onnx.save(model, target)

    # The file holds integers from 0 to 255; 128 stands for 0.
    packed, scales = (numpy_helper.to_array(tensor) for tensor in weights)
    integers = (packed.reshape(1536, 384).astype(np.int16) - 128).astype(np.int8)
    session = export.session(target, threads=1)
    program = lambda x: session.run(None, {node.input[0]: x})[0]  # noqa: E731
    return integers, scales.reshape(1536, -1), program


# --- other ways -----------------------------------------------------------------------------------

FEW_TEXTS = (
    "PyTorch, fp16",
    "torch.compile, fp32",
)  # ways that are slow, or slow to compile: they are raced with few texts only


def other_ways(plain: Path, network: nn.Module, folder: Path, *, all_of_them: bool) -> dict:
    """Return the ways that the lesson has not opened: {way: (engine, network or file, precision)}.

    plain        the exported file in fp32
    all_of_them  also 16 bits and torch.compile, which take a minute
    """
    ways = {way: ("openvino", plain, way[-4:]) for way in ("OpenVINO, fp32", "OpenVINO, bf16")}
    if all_of_them:
        half = to_fp16(plain, folder / "fp16.onnx")
        ways["ONNX Runtime, fp16"] = ("onnxruntime", half, "fp16")
        ways["PyTorch, fp16"] = ("eager", network, "fp16")
        ways["torch.compile, fp32"] = ("inductor", network, "fp32")
    return ways


def opened(ways: dict, batch: torch.Tensor) -> tuple[dict[str, Served], dict[str, str]]:
    """Open ways for batches such as this one, with one thread each.

    ways     {way: (engine, network or file, precision)}
    returns  ({way: its program}, {way: why it does not run})
    """
    programs = {}
    reasons = {}
    for way, (engine, model, precision) in ways.items():
        if way in FEW_TEXTS and len(batch) > FEW:
            continue
        try:
            programs[way] = engines.load(engine, model, batch, precision=precision, threads=1)
        except Unavailable as error:
            reasons[way] = error.what
    return programs, reasons


def all_together(board: Board, races: dict, allowed: list) -> pd.DataFrame:
    """Return a table of the board: changed of 100, times as fast in each race, and allowed or not.

    races    {texts per call: `Comparison`}
    allowed  the ways that may be used
    """
    rows = {}
    for name, (loss, _) in board.rows.items():
        rows[name] = {"changed, of 100": str(loss)}
        for count, race in races.items():
            speed = f"{race.ratios[name].median:.2f}" if name in race.ratios else "–"
            rows[name][f"times as fast, texts: {count}"] = speed
        rows[name]["allowed"] = "yes" if name in allowed else "no"
    return pd.DataFrame.from_dict(rows, orient="index")


def without_rival(best: str, names: list, ratios: dict) -> str:
    """Return the name of the fastest way, with the ways that are not distinguishable from it.

    best    name of the fastest way
    names   the ways that may be used
    ratios  {way: times as fast as PyTorch}
    """
    reach = [name for name in names if name != best and ratios[name].high >= ratios[best].low]
    return f"{best} (not distinguishable: {'; '.join(reach)})" if reach else best


def gain_by_texts(races: dict, way: str) -> str:
    """Return a phrase: does the gain of a way shrink with the texts of a call?

    If it does, the way saves work on the call; if it grows, it saves work on each text.

    races  {texts per call: `Comparison`}; the fewest and the most texts are compared
    """
    counts = sorted(count for count in races if way in races[count].ratios)
    few, many = (races[count].ratios[way] for count in (counts[0], counts[-1]))
    if few.low > many.high:
        verdict = "shrinks: it saves work on the call, which does not grow with the texts"
    elif few.high < many.low:
        verdict = "grows: it saves work on each text"
    else:
        verdict = "changes by less than can be told: what it saves is not shown"
    return (
        f"its gain, {few.median:.2f} times with {counts[0]} text in a call and "
        f"{many.median:.2f} with {counts[-1]}, {verdict}"
    )


def remedies(board: Board) -> str:
    """Return a sentence: which ways in INT8 miss the bound on changes, and what helps then?"""
    rows = {name: loss for name, (loss, _) in board.rows.items() if name.startswith("INT8")}
    missed = [
        f"{name} (up to {loss.high:.2g})" for name, loss in rows.items() if loss.high > ALLOWED
    ]
    if not missed:
        return f"Every way in INT8 stays below {ALLOWED} of 100."
    passed = [name for name in rows if rows[name].high <= ALLOWED]
    instead = passed or ["float weights in another engine, or the worst layers left in float"]
    return f"Not below {ALLOWED} of 100: {'; '.join(missed)}. Use then: {'; '.join(instead)}."


ENGINES = {"PyTorch": "eager", "torch.compile": "inductor", "OpenVINO": "openvino"}


def deployments(race: Comparison, board: Board) -> list:
    """Return the rows that the report draws: time, and the share of texts with the same neighbour.

    race  the `Comparison` with one text per call, as on the board
    """
    rows = []
    for name in (PLAIN, *board.rows):
        if name != PLAIN and name not in race.ratios:
            continue
        loss = board.rows[name][0].median if name in board.rows else 0.0
        rows += race.deployments(
            {name: 1 - loss / 100},
            engine=ENGINES.get(name.partition(",")[0], "onnxruntime"),
            precision=name[-4:] if name.endswith(("fp32", "fp16", "bf16")) else "int8",
            dataset="texts: the same nearest one",
            threads=1,
            batch=PER_CALL,
        )
    return rows


# --- two tables beside a published study ----------------------------------------------------------

STUDY = {  # {row of the published table: our arm}
    "PyTorch": "PyTorch, fp16",
    "ONNX Runtime": "ONNX Runtime, fp16",
    "TensorRT": "TensorRT, fp16",
    "TorchDynamo with nvFuser": "torch.compile, fp32",
}
OURS = ("ONNX Runtime, fp32", "INT8, grid per call", "OpenVINO, bf16")
BATCHES = (1, 8, 32, 256)


def beside_published(races: dict, reasons: dict) -> pd.DataFrame:
    """Return a table of times as fast as PyTorch, by texts per call.

    A row is published, on record, or of this run.

    races    {texts per call: `Comparison`} of this run
    reasons  {way: why it does not run here}
    """
    table = published.table("transformer-inference").set_index("way")
    records = recorded_races()
    rows = []
    for way, arm in [*STUDY.items(), *((None, arm) for arm in OURS)]:
        if way is not None:
            least, most, best = table.loc[way, ["least", "most", "best_batch"]]
            span = f"{least:g}" if least == most else f"{least:g} to {most:g}"
            batches = [count for count in BATCHES if best in (str(count), "all alike")]
            speeds = {count: span if len(batches) > 1 else f"{most:g}" for count in batches}
            rows.append(
                {"way": arm, "whose": "published (a GPU)", **speeds, "note": f"{way}: {span}"}
            )
        for hardware, speeds in records.items():
            if arm in speeds:
                rows.append({"way": arm, "whose": hardware, **speeds[arm]})
        own = {
            count: race.ratios[arm].median for count, race in races.items() if arm in race.ratios
        }
        note = "" if own else reasons.get(arm, _why_not(arm))
        rows.append({"way": arm, "whose": "this run", **own, "note": note})
    frame = pd.DataFrame(rows, columns=["way", "whose", *BATCHES, "note"]).set_index(
        ["way", "whose"]
    )
    return frame.map(_as_text)


def _as_text(value):
    """Return a text as it is, a number with two decimals, nothing for what is missing."""
    if isinstance(value, str):
        return value
    return "" if pd.isna(value) else f"{value:.2f}"


def _why_not(arm):
    """Return why this run has no row of a way, although nothing refused the way."""
    if arm.startswith("TensorRT"):
        return "no NVIDIA GPU here"
    return "only in the profile lab"


def recorded_races() -> dict:
    """Return {machine: {way: {texts per call: times as fast as PyTorch}}} of earlier runs."""
    speeds: dict = {}
    rows = ledger.recorded("ratios", experiment="transformer-inference")
    for row in rows[rows["baseline"] == PLAIN].itertuples():
        count = "".join(filter(str.isdigit, row.name))
        if row.name.startswith("race") and count and row.profile != "quick":
            of_machine = speeds.setdefault(f"{row.hardware}, {row.instructions}", {})
            of_machine.setdefault(row.arm, {})[int(count)] = row.median
    return speeds


def six_optimizations(
    plain: Path, traced: int, network: nn.Module, board: Board, *, texts: int
) -> pd.DataFrame:
    """Return a table of the published six optimizations: call, what this run saw, and lesson.

    plain   the exported file
    traced  number of its nodes before constants were folded
    texts   number of texts that judge what is pruned
    """
    counts = nodes_by_rules(plain)
    written, rest = counts["none"].total(), counts["all"].total()
    fused = [kind for kind in counts["all"] if kind.startswith(("Fused", "Bias", "Skip"))]
    attention = attention_in_turn(board.seconds)
    loss, speed = board.rows["INT8, grid per call"]
    rows = {
        "redundant operations go: dropout": (
            "network.eval()",
            f"{counts['none']['Dropout']} Dropout nodes in the file",
            "12",
        ),
        "constant folding": (
            "the exporter's program.optimize()",
            f"{traced} nodes become {written}",
            "12",
        ),
        "kernel fusion: what lies between stays in the cache": (
            "F.scaled_dot_product_attention; torch.compile",
            f"attention over 256 tokens: {attention.median:.2f} times as fast as in three steps",
            "09",
        ),
        "layer fusion: several layers become one": (
            "ONNX Runtime, ORT_ENABLE_ALL",
            f"{written} nodes become {rest}, with {', '.join(fused) or 'none fused'}",
            "17",
        ),
        "mixed precision, quantization": (
            "torch.autocast (in training with loss scaling); quantize_dynamic",
            f"INT8: {speed.median:.2f} times as fast, changes {loss.median:.2g} of 100",
            "08, 13",
        ),
    }
    for name, vectors in pruned_vectors(network, board, texts).items():
        loss = board.changed(board.reference[:texts], vectors)
        rows[f"pruning: {name}"] = PRUNED[name], f"changes {loss.median:.2g} of 100", "15"
    rows["pruning: movement pruning"] = (
        "weights go that training moves towards 0 (score: minus weight x gradient, summed)",
        "not run: it needs a training",
        "15",
    )
    table = pd.DataFrame(rows, index=["call", "this run", "lesson"]).T
    return table.rename_axis("optimization")


def nodes_by_rules(path: Path) -> dict[str, Counter]:
    """Return {rules of ONNX Runtime, "none" or "all": nodes of each kind in its graph}."""
    engine_file = runtime_graph(path, path.with_name(f"{path.stem}-all.onnx"), "all")
    graphs = {"none": onnx.load(path).graph, "all": onnx.load(engine_file).graph}
    return {rules: Counter(node.op_type for node in graph.node) for rules, graph in graphs.items()}


def attention_in_turn(seconds: float, tokens: int = 256) -> Any:
    """Time the attention of a layer in one call and in its three steps.

    Returns how many times as fast the one call is.
    """
    query, key, value = torch.randn(
        3, 1, 12, tokens, 32, generator=torch.Generator().manual_seed(0)
    )

    def in_steps():
        scores = query @ key.transpose(2, 3) / key.shape[3] ** 0.5
        return scores.softmax(3) @ value

    calls = {
        "steps": in_steps,
        "one call": lambda: F.scaled_dot_product_attention(query, key, value),
    }
    with torch.inference_mode():
        return in_turn(calls, seconds=seconds)["one call"]


PRUNED = {
    "unstructured, 30 % by magnitude": 'prune.l1_unstructured(layer, "weight", 0.3)',
    "structured, 2 of 12 heads": "the heads with the smallest weights set to 0",
}


def pruned_vectors(network: nn.Module, board: Board, texts: int) -> dict:
    """Return {kind of pruning: vectors after it} of the board's first texts.

    texts  number of texts
    """
    tokens = board.tokens[:texts]
    without_weights, without_heads = copy.deepcopy(network), copy.deepcopy(network)
    for layer in without_weights.modules():
        if isinstance(layer, nn.Linear):
            prune.l1_unstructured(layer, "weight", 0.3)
    with torch.no_grad():
        for layer in without_heads.layers:
            heads = layer.mix.weight.unflatten(1, (layer.heads, -1))
            heads[:, heads.norm(dim=(0, 2)).topk(2, largest=False).indices] = 0
    thinner = zip(PRUNED, (without_weights, without_heads), strict=True)
    return {name: encoded(tokens, model) for name, model in thinner}
