"""What torch makes of a function: the graph it keeps for the backward pass, and the kernels torch.compile writes."""

import re
from dataclasses import dataclass

from labkit.plots import COLOURS, GREY, canvas


@dataclass(frozen=True)
class Node:
    """A step of the backward pass: its name, how deep it lies under the output, the tensors it keeps."""

    name: str
    depth: int
    kept: tuple


def autograd(output):
    """({number: Node}, [(number, number)]): the steps behind `output`, and which hands its gradient to which.

    Depth is the longest way from the output; a step that appears several times is one node.
    """
    depths, edges, stack = {}, set(), [(output.grad_fn, 0)]
    while stack:
        step, depth = stack.pop()
        if depths.get(step, -1) >= depth:
            continue
        depths[step] = depth
        below = [next_step for next_step, _ in step.next_functions if next_step is not None]
        edges |= {(step, each) for each in below}
        stack += [(each, depth + 1) for each in below]
    numbers = {step: number for number, step in enumerate(depths)}
    nodes = {numbers[step]: Node(_title(step), depth, _kept_by(step)) for step, depth in depths.items()}
    return nodes, [(numbers[a], numbers[b]) for a, b in edges]


def _title(step):
    """MulBackward0 is "Mul"."""
    return re.sub(r"Backward\d*$", "", step.name()).removeprefix("torch::autograd::")


def _kept_by(step):
    """The tensors a step of the backward pass keeps."""
    import torch

    fields = [name for name in dir(step) if name.startswith("_saved_")]
    values = [getattr(step, name) for name in fields] + list(getattr(step, "saved_tensors", ()))
    return tuple(value for value in values if isinstance(value, torch.Tensor))


def draw_autograd(outputs):
    """The graphs of {title: output} side by side; orange steps keep a tensor of its size, blue ones a mask."""
    figure, axes = canvas(2.6 * len(outputs), 5.4, columns=len(outputs))
    for ax, (name, output) in zip([axes] if len(outputs) == 1 else axes, outputs.items(), strict=True):
        _draw_one(ax, *autograd(output), output)
        ax.set_title(name, fontsize=11)
    figure.supxlabel("orange: keeps a tensor as large as the input; blue: keeps a mask", fontsize=10)
    return figure


def _draw_one(ax, nodes, edges, output):
    rows = {}
    for number, node in sorted(nodes.items(), key=lambda item: item[1].depth):
        rows.setdefault(node.depth, []).append(number)
    places = {
        number: (index - (len(row) - 1) / 2, -depth) for depth, row in rows.items() for index, number in enumerate(row)
    }
    for start, end in edges:
        far = abs(places[end][1] - places[start][1]) > 1  # around the steps between them
        arrow = {"arrowstyle": "->", "color": GREY, "shrinkB": 8, "connectionstyle": f"arc3,rad={0.2 * far}"}
        ax.annotate("", places[end], places[start], arrowprops=arrow)
    for number, node in nodes.items():
        box = {"boxstyle": "round", "fc": _colour(node, output), "ec": GREY}
        ax.text(*places[number], node.name, ha="center", va="center", fontsize=9, bbox=box)
    widest = max(2, *map(len, rows.values()))
    ax.set(xlim=(-widest / 2 - 0.1, widest / 2 + 0.1), ylim=(-max(rows) - 0.6, 0.6))
    ax.axis("off")


def _colour(node, output):
    if any(tensor.nbytes >= output.nbytes for tensor in node.kept):
        return COLOURS[4]
    return COLOURS[5] if any(tensor.numel() >= output.numel() for tensor in node.kept) else "white"


def kernels(fn, *args):
    """{name: source} of the kernels that are written while `fn(*args)` runs and compiles, without common lines.

    fn  calls `torch.compile(...)` functions
    What this process has compiled before is not written anew: call `torch._dynamo.reset()` first.
    """
    from torch._functorch import config as autograd_config
    from torch._inductor import config
    from torch._inductor.utils import run_and_get_code

    # What a cache has of a whole graph is not written anew either; compiled C++ may come from the disk.
    with config.patch(fx_graph_cache=False), autograd_config.patch(enable_autograd_cache=False):
        _, codes = run_and_get_code(fn, *args)
    pattern = r"^(\w+) = async_compile\.\w+\((?:.|\n)*?r?'''((?:.|\n)*?)'''"
    found = {name: text for code in codes for name, text in re.findall(pattern, code, flags=re.MULTILINE)}
    shared = re.compile(r"^(\s*|#include.*|import.*)\n", flags=re.MULTILINE)
    return {name: shared.sub("", text.strip()) for name, text in found.items()}
