"""For the lesson on TensorRT: a board of files and its picture, and TensorRT's features as a table.

The board builds each file with `labkit.engines.tensorrt.build` and reads the builder's own list of
steps, as `trtexec --onnx=FILE --profilingVerbosity=detailed --dumpLayerInfo` prints it.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
from IPython import get_ipython
from IPython.display import Markdown, display
from onnx import numpy_helper

from labkit import engines, ledger
from labkit.engines import tensorrt
from labkit.engines.tensorrt.builder import Source
from labkit.engines.tensorrt.layers import flow, type_name
from labkit.errors import LabError, Unavailable
from labkit.lesson import keep
from labkit.measure import Plan, compare
from labkit.plots import COLOURS, GREY, canvas

PRODUCTS = ("Conv", "Gemm", "MatMul")
TYPE_COLOURS = {"fp32": COLOURS[5], "fp16": COLOURS[2], "int8": COLOURS[4]}
LSTM_STEPS = 16


def attempt(line, cell):
    """Run a cell, and print its error in one line: the magic %%attempt, where a GPU is wanted."""
    shell = get_ipython()
    try:
        exec(compile(shell.transform_cell(cell), "<attempt>", "exec"), shell.user_ns)
    except Exception as error:
        print(f"Not possible here. {type(error).__name__}: {error}")


if get_ipython():
    get_ipython().register_magic_function(attempt, magic_kind="cell")

# --- the board ------------------------------------------------------------------------------------


@dataclass
class Row:
    """A file of the board, and what became of it.

    nodes       number of nodes in the file
    layers      names of its convolutions and matrix products, in the file's order
    meant       the type in which each layer should compute
    got         the type in which each layer computes in the engine; () where no engine was built
    steps       number of the engine's steps that compute
    megabytes   MB that the steps read and write for one image, weights aside
    same_class  percent of the images that get the network's class
    reason      why there is no engine, or ""
    """

    name: str
    nodes: int
    meant: tuple
    same_class: float
    layers: tuple = ()
    got: tuple = ()
    steps: int | None = None
    megabytes: float | None = None
    reason: str = ""

    @property
    def wrong_types(self):
        """Return how many layers compute in another type than was meant; None without an engine."""
        if not self.got:
            return None
        return sum(got != meant for got, meant in zip(self.got, self.meant, strict=True))


@dataclass
class Board:
    """Two checks for each file: in which type does each layer compute, and are the answers right?

    layer_types  the page's function: (lines of the builder's list, names of ONNX nodes) ->
                 {name: TensorRT's word for a type}
    same_class   the page's function: path of an ONNX file -> percent with the network's class
    """

    layer_types: Callable[[Any, Any], dict]
    same_class: Callable[[Any], float]
    rows: dict = field(default_factory=dict)

    def add(self, name: str, path: Any, meant: str) -> Row:
        """Build an engine of a file, check types and answers, and print the row. Returns the row.

        meant  the type in which convolutions and matrix products should compute, such as "int8"
        """
        source = Source.read(path)
        row = Row(name, len(source.model.graph.node), (), self.same_class(path))
        try:
            built = tensorrt.build(source)
        except (LabError, Unavailable) as error:
            row.reason = _in_short(error)
        else:
            nodes = [node for node in source.model.graph.node if node.op_type in PRODUCTS]
            row.layers = tuple(f"{node.op_type} {number}" for number, node in enumerate(nodes, 1))
            words = self.layer_types(built.listing, [node.name for node in nodes])
            row.got = tuple(type_name(words.get(node.name, "?")) for node in nodes)
            row.meant = (meant,) * len(nodes)
            row.steps = sum(step.computes for step in built.kernels)
            row.megabytes = moved_megabytes(built)
        self.rows[name] = row
        print(_row_in_words(row))
        return row

    def show(self) -> Any:
        """Draw the board: a row for each file, a column for each layer. Returns the figure."""
        columns = max((len(row.layers) for row in self.rows.values()), default=0)
        layers = next((row.layers for row in self.rows.values() if row.layers), ())
        figure, ax = canvas(9, 0.9 + 0.42 * len(self.rows))
        for height, row in enumerate(self.rows.values()):
            _draw_row(ax, height, row, columns)
        ax.set_xlim(-0.5, max(columns, 8) - 0.5)
        ax.set_ylim(len(self.rows) - 0.5, -0.5)
        ax.set_xticks(range(columns), layers, fontsize=8)
        ax.set_yticks(range(len(self.rows)), list(self.rows))
        ax.set_title(
            "type in which each layer computes (!: not as meant); right: same class",
            fontsize=9,
            loc="left",
        )
        ax.tick_params(length=0)
        for side in ax.spines.values():
            side.set_visible(False)
        display(figure)
        return figure


def _draw_row(ax, height, row, columns):
    """Draw one file: the types of its layers, or why it has no engine; and its answers."""
    for place, (got, meant) in enumerate(zip(row.got, row.meant, strict=True)):
        ax.barh(height, 0.94, left=place - 0.47, height=0.8, color=TYPE_COLOURS.get(got, GREY))
        text = got if got == meant else f"{got} !"
        ax.text(place, height, text, ha="center", va="center", fontsize=8.5)
    if not row.got:
        ax.text(-0.4, height, _without_details(row.reason), va="center", fontsize=8.5, color=GREY)
    right = row.same_class >= 99
    text = f"{row.same_class:.4g} %" + ("" if right else "  !")
    style = {} if right else {"color": COLOURS[1], "weight": "bold"}
    ax.text(1.02, height, text, transform=ax.get_yaxis_transform(), va="center", **style)


def _without_details(reason):
    """Return a refusal without the node's name, and up to its first colon."""
    return re.sub(r"node '.*?' \(\w+\): ", "", reason).split(": TensorRT")[0][:90]


def _row_in_words(row):
    """Return a row of the board as a sentence."""
    if not row.got:
        shown = f"no engine, {row.reason}"
    else:
        types = f"{len(row.got) - row.wrong_types} of {len(row.got)} layers in {row.meant[0]}"
        shown = f"{row.nodes} nodes in {row.steps} steps, {types}"
    return f"{row.name}: {shown}. Same class: {row.same_class:.1f} %"


def _in_short(error):
    """Return what an error says, in one line."""
    if isinstance(error, Unavailable):
        return f"{error.what.rstrip('.')} ({error.found})"
    return f"refused: {error.found}"


def moved_megabytes(built: Any) -> float:
    """Return the MB that the steps of an engine read and write for one image, weights aside."""
    total = 0
    for _, read, _, written in flow(built):
        total += sum(read.values()) + sum(written.values())
    return total / 1e6


def steps_of(path: Any) -> dict:
    """Count the nodes of a file and the steps of its engine.

    Returns {"nodes", "steps": numbers, "kinds": kinds of the steps in words, "reason": why there is
    no engine, or None}.
    """
    source = Source.read(path)
    found = {"nodes": len(source.model.graph.node), "steps": None, "kinds": "", "reason": None}
    try:
        built = tensorrt.build(source)
    except (LabError, Unavailable) as error:
        return found | {"reason": _in_short(error)}
    kinds = pd.Series([step.kind for step in built.kernels if step.computes]).value_counts()
    kinds_in_words = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return found | {"steps": int(kinds.sum()), "kinds": kinds_in_words}


# --- changes to a file ----------------------------------------------------------------------------


def unsigned_grids(model: Any) -> list:
    """Return the unsigned grids of a quantized model.

    Returns [(name of the scale, name of the zero point, scale, zero point)].
    """
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    names = {
        tuple(node.input[1:3]) for node in model.graph.node if node.op_type == "QuantizeLinear"
    }
    unsigned = sorted(pair for pair in names if values[pair[1]].dtype == np.uint8)
    return [(scale, zero, float(values[scale]), int(values[zero])) for scale, zero in unsigned]


def set_number(model: Any, name: str, number: Any) -> None:
    """Give a stored number of a ModelProto another value and type, such as np.int8(0)."""
    (stored,) = [tensor for tensor in model.graph.initializer if tensor.name == name]
    stored.CopyFrom(numpy_helper.from_array(np.array(number), name))


# --- TensorRT's features, one by one --------------------------------------------------------------

LAYERS = {  # of the course notes, as one node of ONNX after a convolution
    "convolution": "Conv(x, filters)",
    "ReLU": "Relu(x)",
    "tanh": "Tanh(x)",
    "sigmoid": "Sigmoid(x)",
    "max pooling": "MaxPool<kernel_shape=[2, 2]>(x)",
    "average pooling": "AveragePool<kernel_shape=[2, 2]>(x)",
    "sum": "Add(x, input)",
    "product": "Mul(x, input)",
    "maximum": "Max(x, input)",
    "LRN": "LRN<size=5>(x)",
    "fully connected": "MatMul(x, square)",
    "softmax": "Softmax(x)",
    "deconvolution": "ConvTranspose(x, filters)",
}
UNKNOWN = "lab.FastSwish(x)"  # an operator that only a plugin could bring


def after_convolution(expression: str) -> Source:
    """Return a model of a convolution and one more node, as a `Source` for TensorRT's parser.

    expression  the node, such as "Relu(x)"
    """
    text = (
        '<ir_version: 10, opset_import: ["": 20, "lab": 1]> one '
        "(float[1, 8, 16, 16] input) => (float[n] logits) "
        f"{{ x = Conv<pads=[1, 1, 1, 1]>(input, filters) logits = {expression} }}"
    )
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    stored = {"filters": np.ones((8, 8, 3, 3), np.float32), "square": np.ones((16, 16), np.float32)}
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in stored.items()
    )
    return Source(expression, model, "")


def refusal(expression: str) -> str:
    """Return why TensorRT refuses one node after a convolution, or "" when it does not.

    expression  the node, such as "Relu(x)"
    """
    try:
        tensorrt.build(after_convolution(expression))
    except LabError as error:
        return error.found
    return ""


def lstm_steps(folder: Path) -> str:
    """Return in words what TensorRT makes of an LSTM over 16 time steps."""
    import torch

    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(8, 16, batch_first=True)

        def forward(self, sequence):
            return self.lstm(sequence)[0]

    path = folder / "lstm.onnx"
    example = torch.randn(1, LSTM_STEPS, 8)
    with warnings.catch_warnings(action="ignore"):  # of the older exporter, which keeps an LSTM
        torch.onnx.export(
            Recurrent().eval(),
            (example,),
            path,
            input_names=["input"],
            output_names=["logits"],
            dynamo=False,
        )
    kernels = tensorrt.build(path).kernels
    products = sum(step.kind == "gemm" for step in kernels)
    cells = sum("SigmSigmTanhSigm" in step.name for step in kernels)
    return (
        f"an LSTM over {LSTM_STEPS} time steps: {products} matrix product for all inputs at once, "
        f"then a loop whose body is {cells} fused steps, each a whole cell"
    )


GPU_ONLY = "waits for a GPU"
FEATURES = {  # {feature: (what NVIDIA's documents promise, the call that it takes)}
    "reduced precision (FP16, INT8)": (
        "a layer computes in fewer bits",
        "casts and Q/DQ nodes in the file",
    ),
    "layer and tensor fusion": (
        "several layers become one kernel",
        "always on; `trtexec --dumpLayerInfo` lists it",
    ),
    "kernel auto-tuning": (
        "of several ways to compute a step, the tactics, the builder takes the fastest on its GPU",
        "`config.builder_optimization_level`, `config.set_timing_cache`",
    ),
    "dynamic tensor memory": (
        "memory is set aside only for what is still needed",
        "`engine.device_memory_size_v2`",
    ),
    "multi-stream execution": (
        "several inputs at once",
        "`context.execute_async_v3(stream.handle)`",
    ),
    "time fusion (recurrent networks)": (
        "steps in time are computed together where they do not wait for each other",
        "an LSTM or GRU node in the file",
    ),
    "plugins": (
        "a kernel of your own for an operator that TensorRT does not know",
        "`trt.get_plugin_registry()`, `trt.IPluginV3`",
    ),
    "dynamic shapes": (
        "one engine for many batch sizes, within its optimization profile",
        "`profile.set_shape(name, smallest, usual, largest)`",
    ),
    "build phase, run phase": (
        "an engine is built once and then run",
        "`trt.Builder`, then `trt.Runtime`",
    ),
    "serialized engine": (
        "a file that is loaded later",
        "`builder.build_serialized_network`",
    ),
    "C++ and Python": (
        "both have the whole interface",
        "`nvinfer1::createInferBuilder` in place of `trt.Builder`",
    ),
    "supported layers": (
        "computed without a plugin",
        "`trt.OnnxParser` names the node that it does not know",
    ),
}


def features(row: Row, onnx_file: Path) -> None:
    """Show TensorRT's features in one folded table: promise, call, and what this run shows.

    row        row of the board for the INT8 file
    onnx_file  path of the network whose engine is looked at
    """
    try:
        shown = _measured_features(row, onnx_file)
    except Unavailable as error:
        shown = dict.fromkeys(FEATURES, _in_short(error))
    lines = ["<details><summary>TensorRT's features, one by one</summary>", ""]
    lines += ["| feature | what it is | call | what this run shows |", "|---|---|---|---|"]
    for feature, (promise, call) in FEATURES.items():
        lines.append(f"| {feature} | {promise} | {call} | {shown[feature]} |")
    display(Markdown("\n".join([*lines, "", "</details>"])))


def _measured_features(row, onnx_file):
    """Return what this run shows of each feature: {feature: text}.

    Raises Unavailable where TensorRT is not installed.
    """
    trt = tensorrt.library().trt
    taken = sum(not refusal(expression) for expression in LAYERS.values())
    engine = tensorrt.build(onnx_file)
    steps = sum(step.computes for step in engine.kernels)
    nodes = len(engine.source.model.graph.node)
    smallest, _, largest = tensorrt.Settings().batch
    return {
        "reduced precision (FP16, INT8)": f"{row.got.count('int8')} of {len(row.got)} in INT8",
        "layer and tensor fusion": f"{onnx_file.stem}: {nodes} nodes in {steps} steps",
        "kernel auto-tuning": "tactics are timed on the GPU that builds (RTX: at the first "
        f"run): {GPU_ONLY}",
        "dynamic tensor memory": _memory_in_words(onnx_file, engine),
        "multi-stream execution": f"three streams in rehearsal, above; their overlap {GPU_ONLY}",
        "time fusion (recurrent networks)": lstm_steps(onnx_file.parent),
        "plugins": f"without one: {refusal(UNKNOWN)[:80]}",
        "dynamic shapes": f"one engine for batches of {smallest} to {largest}",
        "build phase, run phase": f"built in {engine.seconds:.1f} s here; running {GPU_ONLY}",
        "serialized engine": f"{len(engine.plan) / 1e6:.1f} MB of bytes, kept in a file",
        "C++ and Python": f"Python: {trt.__name__} {trt.__version__}",
        "supported layers": f"{taken} of {len(LAYERS)} taken: {', '.join(LAYERS)}",
    }


def _memory_in_words(onnx_file, engine):
    """Return in words what an engine's steps write for one image, and how much is set aside."""
    *_, largest = tensorrt.Settings().batch
    wider = tensorrt.build(onnx_file, tensorrt.Settings(batch=(1, 8, 4 * largest)))
    more = wider.memory["activations"] - engine.memory["activations"]
    set_aside = more / (3 * largest) / 1e6
    written = sum(sum(tensors.values()) for *_, tensors in flow(engine)) / 1e6
    return (
        f"for each image the steps write {written:.1f} MB, and {set_aside:.1f} MB are set aside: "
        "places are used again"
    )


# --- on a GPU -------------------------------------------------------------------------------------


BATCHES = (1, 64, 1024)


def race(board: Board, files: dict, images: Any, seconds: float) -> None:
    """Time engines on a GPU, FP16 against the others, and keep the rows.

    Without a GPU it prints why nothing is timed. The recorded rows are shown in both cases.

    files    {name of a row of the board: path of its ONNX file}; among them "fp16"
    images   (N, channels, height, width)
    seconds  time budget of a batch size
    """
    try:
        tensorrt.require_gpu(tensorrt.library())
    except Unavailable as error:
        print(f"Not measured here: {_in_short(error)}.")
    else:
        for batch in BATCHES:
            print(race_of(board, files, images, batch, seconds).summary())
    recorded = recorded_races()
    display(recorded if len(recorded) else Markdown("No results of a GPU have been recorded yet."))


def race_of(board: Board, files: dict, images: Any, batch: int, seconds: float) -> Any:
    """Compare the engines at one batch size, and keep the rows. Returns the `Comparison`."""
    repeats = -(-batch // len(images))
    x = images.repeat(repeats, 1, 1, 1)[:batch].to("cuda")

    def session(name):
        served = engines.load("tensorrt", files[name], x, precision=name)
        return lambda: served(x)

    others = [name for name in files if name != "fp16"]
    arms = {name: session(name) for name in ["fp16", *others]}
    plan = Plan(seconds=seconds)
    compared = compare(
        arms,
        second_session=session("fp16"),
        tolerance=0.1,
        batch=batch,
        plan=plan,
        device=x.device,
    )
    keep(*compared.rows, name=f"vgg-medium tensorrt, {batch} images")
    for name in files:
        share = board.rows[name].same_class / 100
        rows = compared.deployments(
            {name: share},
            precision=name,
            dataset="fashion-mnist: the same class",
            engine="tensorrt",
            batch=batch,
        )
        keep(*rows)
    return compared


def recorded_races(folder: Path | None = None) -> pd.DataFrame:
    """Return the recorded rows of this race on named GPUs."""
    rows = ledger.recorded("ratios", folder=folder)
    is_race = rows["name"].astype(str).str.startswith("vgg-medium tensorrt")
    columns = ["hardware", "recorded_on", "batch", "arm", "baseline", "median", "low", "high"]
    return rows.loc[is_race, columns]
