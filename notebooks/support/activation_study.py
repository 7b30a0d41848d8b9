"""For the lesson on activations: pictures, generated kernels, published tables, checkpoints.

Nothing here times; the lesson does.
"""

import copy
import inspect
import math
import os
import re
import warnings
from collections import Counter
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from types import SimpleNamespace

import pandas as pd
import torch
from IPython.display import display
from torch import nn
from torch._functorch import config as autograd_config
from torch._inductor import config as inductor_config
from torch._inductor.utils import run_and_get_code
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from labkit.device import require_compiler, runs_triton
from labkit.errors import Unavailable
from labkit.format import shown
from labkit.ledger import published, recorded
from labkit.measure.stats import mean_interval, median_of_rounds
from labkit.plots import COLOURS, GREY, canvas, log_axis
from labkit.train import scripted

# --- what this machine has ---


def no_compiler(device):
    """Print and return why torch.compile cannot build kernels here; return None where it can."""
    try:
        require_compiler(device)
    except Unavailable as error:
        print(error)
        return error.what
    return None


def no_triton():
    """Print and return that Triton is not installed; return None where it is.

    Call this before the import of Triton: without a GPU its kernels are interpreted, and only a
    setting that is made before the import says so.
    """
    os.environ.setdefault("TRITON_INTERPRET", str(int(not runs_triton())))
    if find_spec("triton") is not None:
        return None
    reason = "Triton is not installed here"
    print(f"{reason}: its kernels are shown, and do not run.")
    return reason


def stand_ins_for_triton():
    """Return stand-ins for (triton, triton.language): kernels stay functions of Python."""
    return SimpleNamespace(jit=lambda kernel: kernel), SimpleNamespace(constexpr=int)


def as_kernel(function):
    """Return a function as a kernel of Triton; a kernel is returned unchanged."""
    import triton

    return triton.jit(function) if inspect.isfunction(function) else function


def with_activation(network, function):
    """Return a copy of a network with the same weights and another activation.

    network   the lesson's network: each of its layers of class `Activation` has a field `function`
    function  the other activation
    """
    twin = copy.deepcopy(network)
    for layer in twin.modules():
        if type(layer).__name__ == "Activation":
            layer.function = function
    return twin


# --- checkpoints in a network ---

LONG = 4  # layers of an nn.Sequential; a longer one is cut into parts


def cuts(network):
    """Return the ways to cut a network into pieces, from coarse to fine.

    Returns {the way in words: names of the pieces}. The first way has one piece, the network. In
    each further way a piece is replaced by the layers inside that have layers of their own; a piece
    without such layers stays. A list of layers is never a piece, for nobody calls a list: its
    layers are.
    """
    ways, names = {}, [""]
    while names not in ways.values():
        words = _in_words(network, names)
        ways[f"{words}, deeper" if words in ways else words] = names
        names = [inner for name in names for inner in _inside(network, name) or [name]]
    return ways


def _inside(network, name):
    """Return the names of those layers within a layer that have layers of their own."""
    inner = []
    for part, child in network.get_submodule(name).named_children():
        path = f"{name}.{part}".lstrip(".")
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            inner += _inside(network, path)
        elif next(child.children(), None) is not None:
            inner.append(path)
    return inner


def with_checkpoints(network, names):
    """Return a copy of a network, with the same weights, that checkpoints each named layer.

    The method `forward` of such a layer is replaced. The layer keeps its class and its fields, for
    a parent may read them. A long nn.Sequential is cut into about as many parts as a part has
    layers; its last part is no checkpoint. Layers that work in place no longer do: they would
    overwrite what a checkpoint keeps.
    """
    twin = copy.deepcopy(network)
    for layer in twin.modules():
        if getattr(layer, "inplace", False):
            layer.inplace = False
    for name in names:
        layer = twin.get_submodule(name)
        if _parts(layer) > 1:
            run = partial(checkpoint_sequential, layer, _parts(layer))
        else:
            run = partial(checkpoint, layer.forward)
        layer.forward = partial(run, use_reentrant=False)
    return twin


def _parts(layer):
    """Return the number of parts that a layer is cut into: 1, or more for a long nn.Sequential."""
    in_sequence = type(layer).forward is nn.Sequential.forward
    return math.isqrt(len(layer)) if in_sequence and len(layer) > LONG else 1


def _in_words(network, names):
    """Return in words how a network is cut, such as "6 x TransformerEncoderLayer"."""
    counts = Counter()
    for name in names:
        layer = network.get_submodule(name)
        parts = f" in {_parts(layer)} parts" if _parts(layer) > 1 else ""
        counts[type(layer).__name__ + parts] += 1
    return ", ".join(f"{count} x {kind}" for kind, count in counts.items())


def peak_bytes(step):
    """Return the most bytes that a function takes at any moment, beyond those taken before.

    step  function without arguments. It is called twice and watched the second time, when the
          gradients already exist
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its notes on standard error
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    with torch.profiler.profile(profile_memory=True) as profiler:
        step()
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated() > before:
        return torch.cuda.max_memory_allocated() - before
    events = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return max(accumulate(change for _, change in changes), default=0)


def first_tensor(output):
    """Return the first tensor in the output of a network."""
    while not torch.is_tensor(output):
        values = output.values() if hasattr(output, "values") else output
        output = next(iter(values))
    return output


def advice(ratio):
    """Return what the owner of a network should do: compile it, leave it, or neither is clear.

    ratio  the `RatioInTurn` of the compiled network to the plain one
    """
    words = {"faster": "compile it", "slower": "leave it"}
    if ratio.verdict in words:
        return words[ratio.verdict]
    if ratio.low <= 1 <= ratio.high:
        return "no difference that this run can tell"
    return (
        f"but the plain call, timed a second time, differs from itself by up to {ratio.floor:.0%}: "
        "this run cannot tell"
    )


# --- intervals ---


def times_as_long(times, name, reference=None):
    """Return how many times as long a call takes as another one, an `Interval`.

    times      what `labkit.measure.in_turn` returned
    reference  name of the other call; None: the first one
    """
    return median_of_rounds(times.ratios(reference or times.names[0], name))


def more_gain(times, many, few):
    """Return the gain of compiling one network divided by that of another, an `Interval`.

    many, few  names of the calls; each has a partner "NAME, TC"
    """
    gains = [times.ratios(f"{name}, TC", name) for name in (many, few)]
    return median_of_rounds(gains[0] / gains[1])


def without_guards(runs, depths):
    """Return a sentence: for which numbers of blocks does skipping guards save time in these runs?

    runs    as in `one_image_table`, "in series" and "in series, no guards" among them
    depths  the numbers of blocks
    """
    saved = []
    for depth in depths:
        guarded, skipped = (
            times_as_long(runs[name], f"{depth}, TC", f"{depth}")
            for name in ("in series", "in series, no guards")
        )
        if skipped.high < guarded.low:
            saved.append(f"{1 - skipped.median / guarded.median:.0%} with {_blocks(depth)}")
    if not saved:
        return "Skipping the guards saves nothing that this run can tell."
    return f"Skipping the guards saves {' and '.join(saved)} of a compiled call's time."


TIME_LIMIT, BYTES_LIMIT = 4, 1  # the goal of the lesson, as multiples of ReLU's


def goal(board):
    """Return a sentence: which forms of FastSwish on the board reach the goal of the lesson?

    board  {name: (interval of times as long, times the bytes)}, ReLU among them
    """
    reached = [
        f"{name} ({shown(times.median, 'x')} the time, {shown(kept, 'x')} the bytes)"
        for name, (times, kept) in board.items()
        if name != "ReLU" and times.high <= TIME_LIMIT and kept <= BYTES_LIMIT
    ]
    if not reached:
        return "Goal not reached: no row keeps ReLU's bytes and surely takes at most 4 x its time."
    return f"Goal reached, at most 4 x the time and 1 x the bytes: {'; '.join(reached)}."


# --- pictures ---


def curves(functions):
    """Draw activations and their slopes: {name: function of a tensor}."""
    figure, panels = canvas(8.5, 2.9, columns=2)
    x = torch.linspace(-6, 4, 1001, requires_grad=True)
    for (name, function), colour, style in zip(
        functions.items(), COLOURS, ("-", "--", ":", "-."), strict=False
    ):
        (slope,) = torch.autograd.grad(function(x).sum(), x)
        for ax, values in zip(panels, (function(x).detach(), slope), strict=True):
            ax.plot(x.detach(), values, style, color=colour, lw=2, label=name)
    panels[0].set(xlabel="x", ylabel="value", ylim=(-0.6, 2))
    panels[1].set(xlabel="x", ylabel="slope")
    panels[0].legend(frameon=False, fontsize=9)
    display(figure)


def graphs(outputs):
    """Draw what the backward pass of each output is made of: {name: a tensor with a gradient}.

    A box is an operator; blue ones keep tensors as large as the output, light ones only masks.
    """
    figure, ax = canvas(9, 2.4 + 0.2 * len(outputs))
    height = 1.4
    for number, (name, output) in enumerate(outputs.items()):
        left, height = (0, 1.4 - 2.1 * number) if number < 2 else (3.4, -0.7)
        _draw_graph(ax, output, left, height)
        ax.text(left - 0.3, height + 0.45, name, fontsize=11)
    for colour, text in ((COLOURS[5], "keeps tensors as large as x"), (COLOURS[4], "only masks")):
        ax.plot([], [], "s", ms=10, color=colour, label=text)
    ax.legend(frameon=False, loc="lower right")
    ax.set(xlim=(-0.6, 8.4), ylim=(-1.3, 2.6))
    ax.axis("off")
    display(figure)


def _draw_graph(ax, output, left, height):
    """Draw the graph of one output; the output stands on the left."""
    positions = {
        node: (left + depth, height + row - (len(column) - 1) / 2)
        for depth, column in enumerate(_columns_of(output))
        for row, node in enumerate(column)
    }
    boxes = {node: _box(ax, node, position, output) for node, position in positions.items()}
    for node, (x, y) in positions.items():
        for following, _ in node.next_functions:
            if following is None:
                continue
            # around the operators that stand in between
            far = positions[following][0] - x > 1
            bend = f"arc3,rad={far * (-0.16 if y > height else 0.17)}"
            arrow = {"arrowstyle": "->", "color": GREY, "connectionstyle": bend}
            arrow |= {"patchA": boxes[node], "patchB": boxes[following]}
            ax.annotate("", positions[following], (x, y), arrowprops=arrow)


def _box(ax, node, position, output):
    """Draw one operator of a graph."""
    kept = [tensor for tensor in _kept_by(node) if tensor.numel() >= output.numel()]
    largest = max((tensor.itemsize for tensor in kept), default=0)
    colour = {0: "white", 1: COLOURS[4]}.get(largest, COLOURS[5])
    name = node.name().split("::")[-1].partition("Backward")[0].strip("_")
    name = name.replace("AccumulateGrad", "x")
    style = {"fontsize": 9, "bbox": {"boxstyle": "round", "fc": colour, "ec": GREY}}
    return ax.text(*position, name, ha="center", va="center", **style).get_bbox_patch()


def _kept_by(node):
    """Return the tensors that an operator of a graph keeps for the backward pass."""
    fields = [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
    fields += getattr(node, "saved_tensors", ())
    return [field for field in fields if isinstance(field, torch.Tensor)]


def _columns_of(output):
    """Return the operators behind an output, in columns by the longest path to an operator."""
    depths, waiting = {}, [(output.grad_fn, 0)]
    while waiting:
        node, depth = waiting.pop()
        if node is not None and depths.get(node, -1) < depth:
            depths[node] = depth
            waiting += [(following, depth + 1) for following, _ in node.next_functions]
    last = max(depths.values())
    return [[node for node in depths if depths[node] == depth] for depth in range(last + 1)]


def draw_board(board):
    """Draw time and kept bytes of each form, as multiples of ReLU's; returns the picture.

    board  {name: (interval of times as long, times the bytes)}
    """
    figure, panels = canvas(8.5, 1.0 + 0.36 * len(board), columns=2)
    panels[0].set_yticks(range(len(board)), list(board))
    panels[1].set_yticks(range(len(board)), [])
    for row, (times, kept) in enumerate(board.values()):
        panels[0].plot([times.low, times.high], [row, row], color=COLOURS[0], lw=4, alpha=0.6)
        panels[0].plot(times.median, row, "o", color=COLOURS[0], ms=7)
        panels[1].plot(kept, row, "s", color=COLOURS[1], ms=7)
        for ax, value in ((panels[0], times.median), (panels[1], kept)):
            ax.annotate(
                shown(value, "x"), (1.02, row), xycoords=("axes fraction", "data"), va="center"
            )
    for ax, label in zip(panels, ("time, forward and backward", "bytes kept"), strict=True):
        ax.axvline(1, color=GREY, lw=1)
        ax.set(xlabel=f"{label} (times ReLU's)", ylim=(len(board) - 0.5, -0.5))
        ax.margins(x=0.12)
    log_axis(panels[0], "x", "{:g}".format)
    panels[1].set_xlim(0, None)
    display(figure)
    return figure


# --- what the compiler writes ---


def kernels(function, *inputs):
    """Return {name: source} of the kernels that torch.compile writes during `function(*inputs)`."""
    uncached = autograd_config.patch(enable_autograd_cache=False)  # a cache would write nothing
    with inductor_config.patch(fx_graph_cache=False), uncached:
        _, codes = run_and_get_code(function, *inputs)
    kernel = re.compile(r"^(\w+) = async_compile\.\w+\(.*?'''(.*?)'''", re.MULTILINE | re.DOTALL)
    return dict(pair for code in codes for pair in kernel.findall(code))


def loop_of(source):
    """Return the loop of a generated kernel, made readable.

    Casts and type names are left out, and constants are put in where they are used.
    """
    noise = r"static_cast<\w+>|at::vec::|decltype\(\w+\)::|inductor_vec_mask_cast<.*?>|std::"
    noise = rf"{noise}|Vectorized<\w+>::|VecMask<\w+,\d>|Vectorized<\w+>|auto "
    lines = [re.sub(noise, "", line.strip()) for line in source.splitlines()]
    lines = [line for line in dict.fromkeys(lines) if re.match(r"for|tmp", line)]
    names, loop = {}, []
    for line in lines:
        line = re.sub(r"\btmp\d+\b(?! =)", lambda name: names.get(name[0], name[0]), line)
        another = re.fullmatch(r"(tmp\d+) = \(*(-?[\w.]+)\)*;", line)
        if another:  # a constant, or a second name
            names[another[1]] = another[2]
        else:
            loop.append(line)
    return "\n".join(loop)


def wrapped(function, fused):
    """Return an activation as tools make it that are applied to it alone: {name: function}.

    fused  the compiled form, or None; TorchScript is left out where torch has none
    """
    forms = {"torch.compile on it alone": fused} if fused else {}
    try:
        forms["TorchScript on it alone"] = scripted(function)
    except Unavailable as error:
        print(error)
    return forms


def try_tools(tools, forms):
    """Return a table of what each tool does with each form of a function.

    tools  {name: function that applies the tool to a form; where it returns a list, its length is
           shown}
    forms  {name: form}
    """
    return pd.DataFrame(
        {
            name: {tool: _tried(run, form) for tool, run in tools.items()}
            for name, form in forms.items()
        }
    )


def _tried(run, form):
    """Return "yes", or why a tool fails on a form of a function."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated, and says so
            result = run(form)
    except Exception as error:
        return f"no: {type(error).__name__}"
    return f"yes, {len(result)} operators" if isinstance(result, list) else "yes"


# --- published and recorded tables ---

STUDY = "activation-accuracy"


def memory_table(kept):
    """Return bytes of training beside the published bytes, as multiples of ReLU's.

    kept  Series: bytes by variant, named as in the published table
    """
    known = published.table("activation-memory").set_index("variant")["memory_bytes"]
    columns = {
        "bytes kept, here": kept / kept["ReLU"],
        "RTX 4090, all memory": known / known["ReLU"],
    }
    table = pd.DataFrame(columns).astype(float).loc[list(kept.index)]
    return table.map(lambda value: "–" if pd.isna(value) else f"{value:.2f} x")


def recorded_accuracies():
    """Return the recorded accuracies in percent: {(activation, compiled): interval of the mean}."""
    rows = recorded("trainings", experiment=STUDY)
    rows = rows[(rows["profile"] == "lab") & rows["accuracy"].notna()]
    names = rows["variant"].str.replace(r", seed \d+$", "", regex=True)
    accuracies = {}
    for name, values in rows["accuracy"].groupby(names):
        activation = name.removesuffix(", compiled")
        accuracies[activation, activation != name] = mean_interval(100 * values.astype(float))
    return accuracies


def recorded_accuracy(activation):
    """Return the mean of the recorded accuracies of an activation, with its interval, as text."""
    return _short(recorded_accuracies().get((activation, False)))


def inference_table(times, accuracy, *, with_recorded=True):
    """Return the published inference table with the numbers of this run and the recorded ones.

    times          {batch: what `in_turn` returned, "ReLU" first and "TC + NAME" for compiled ones}
    accuracy       {activation: percent}
    with_recorded  whether the recorded accuracies have a column
    returns        a DataFrame, a row for each activation, plain and compiled, that has a number
    """
    known = published.table("activations").set_index(["activation", "compiled", "batch"])
    records = recorded_accuracies() if with_recorded else {}
    rows = {}
    for name in [*known.index.unique("activation"), "yours"]:
        for compiled in (False, True):
            row = {}
            label = f"TC + {name}" if compiled else name
            for batch, measured in times.items():
                own = label in measured.names
                row[f"batch {batch}", "here"] = times_as_long(measured, label) if own else "–"
                row[f"batch {batch}", "RTX 4090"] = _published_share(known, name, compiled, batch)
            row["accuracy (%)", "here"] = "–" if compiled else f"{accuracy[name]:.1f}"
            row["accuracy (%)", "recorded"] = _short(records.get((name, compiled)))
            row["accuracy (%)", "RTX 4090"] = _published_accuracy(known, name, compiled)
            rows[label] = row
    table = pd.DataFrame(rows).T.astype(str)
    return without_dashes(table[(table != "–").any(axis=1)])


def without_dashes(table):
    """Return a table without the columns that hold nothing but dashes."""
    return table.loc[:, (table != "–").any()]


def _published_share(known, name, compiled, batch):
    """Return the published time, as a multiple of the time of ReLU that is not compiled."""
    latencies = known["latency_ms"]
    if (name, compiled, batch) not in known.index:
        return "–"
    return f"{latencies[name, compiled, batch] / latencies['ReLU', False, batch]:.2f}"


def _published_accuracy(known, name, compiled):
    """Return the published accuracy in percent as a text; a dash where there is none."""
    accuracy = known["accuracy"].get((name, compiled, 64))
    return "–" if pd.isna(accuracy) else f"{100 * accuracy:.2f}"


def _short(interval):
    """Return the mean of an interval and its 95 % ends as a text; a dash for None."""
    return f"{interval.mean:.1f} [{interval.low:.1f}, {interval.high:.1f}]" if interval else "–"


def one_image_table(runs, depths):
    """Return a table for one image: compiled time over plain time, and the cost of a compiled call.

    runs    {how it was measured: times of "N" and "N, TC" for each number of blocks}
    depths  the numbers of blocks
    """
    rows = {}
    for name, times in runs.items():
        shares = {
            f"{_blocks(n)}: compiled (x plain)": times_as_long(times, f"{n}, TC", f"{n}")
            for n in depths
        }
        overhead = f"{1e3 * times.milliseconds('x + 1, TC').median:.0f}"
        rows[name] = shares | {"compiled x + 1 (µs)": overhead}
    return pd.DataFrame(rows).T.astype(str)


def _blocks(count):
    return "1 block" if count == 1 else f"{count} blocks"


def deviation(function, reference):
    """Return the largest difference of two functions between -8 and 8, in double precision."""
    x = torch.linspace(-8, 8, 16_001, dtype=torch.float64)
    return (function(x) - reference(x)).abs().max().item()
