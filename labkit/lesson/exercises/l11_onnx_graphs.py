"""Exercises of lesson 11: fold a batch norm, repair a graph."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labkit.lesson.exercises import Exercise, Wrong, expect, shorten, untouched

if TYPE_CHECKING:
    import onnx


def fold_batch_norm(weight, bias, gamma, beta, mean, var, eps):
    import numpy as np

    scale = gamma / np.sqrt(var + eps)
    return weight * scale[:, None, None, None], (bias - mean) * scale + beta


def verify_fold_batch_norm(answer):
    answer = untouched(answer)
    cases = {
        "a convolution without bias": {"bias": 0.0},
        "a convolution with a bias": {"bias": 1.0},
        "a large eps": {"eps": 0.5},
        "more output channels than input channels": {"channels": (3, 5), "bias": 1.0},
        "more input channels than output channels": {"channels": (5, 3), "bias": 1.0},
    }
    for name, traits in cases.items():
        case, x, wanted = batch_norm_case(**traits)
        found = answer(**{key: np.copy(value) if key != "eps" else value for key, value in case.items()})
        expect(
            isinstance(found, (tuple, list)) and len(found) == 2,
            f"Expected a weight and a bias, found {shorten(found)}.",
        )
        weight, bias = (np.asarray(each, np.float64) for each in found)
        expect(weight.shape == case["weight"].shape, f"{name}: the weight has the shape {weight.shape}.")
        expect(bias.shape == case["bias"].shape, f"{name}: the bias has the shape {bias.shape}.")
        error = np.abs(convolve(x, weight, bias) - wanted).max()
        right = [np.allclose(*pair) for pair in zip((weight, bias), fold_batch_norm(**case), strict=True)]
        which = {(False, True): " The bias is right.", (True, False): " The weight is right."}.get(tuple(right), "")
        expect(error < 1e-8, f"{name}: the folded convolution is off by {error:.3g}.{which}")


def batch_norm_case(*, channels=(4, 4), bias=0.0, eps=1e-5):
    """(arguments of the answer, an input, what convolution and batch norm make of it)."""
    random, (inner, outer) = np.random.default_rng(0), channels
    case = {
        "weight": random.standard_normal((outer, inner, 3, 2)),
        "bias": bias * random.standard_normal(outer),
        "gamma": random.standard_normal(outer),
        "beta": random.standard_normal(outer),
        "mean": random.standard_normal(outer),
        "var": random.uniform(0.2, 3, outer),
        "eps": eps,
    }
    x = random.standard_normal((2, inner, 5, 6))
    columns = {
        key: value[None, :, None, None] for key, value in case.items() if key in ("gamma", "beta", "mean", "var")
    }
    y = convolve(x, case["weight"], case["bias"])
    wanted = (y - columns["mean"]) / np.sqrt(columns["var"] + eps) * columns["gamma"] + columns["beta"]
    return case, x, wanted


def convolve(x, weight, bias):
    """A convolution without padding, in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight) + bias[None, :, None, None]


def repair_graph(model):
    import numpy as np
    from onnx import helper, numpy_helper

    nodes = []
    for number, node in enumerate(model.graph.node):
        if node.op_type != "Swish":
            nodes.append(node)
            continue
        beta = next((a.f for a in node.attribute if a.name == "beta"), 1.0)
        scale, scaled, gate = (f"swish_{number}_{part}" for part in ("beta", "scaled", "gate"))
        model.graph.initializer.append(numpy_helper.from_array(np.array(beta, np.float32), scale))
        nodes += [
            helper.make_node("Mul", [node.input[0], scale], [scaled]),
            helper.make_node("Sigmoid", [scaled], [gate]),
            helper.make_node("Mul", [node.input[0], gate], [node.output[0]]),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


SHIFT = np.array([1.0137, -0.3391, 0.7719, 0.1234], np.float32)


def with_swish(betas: Sequence[float]) -> "onnx.ModelProto":
    """A file as an old framework might have written it: one `Swish` a beta, each followed by an Add.

    No engine knows the operator `old.framework.Swish`. A beta of 1 is not written down.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes, name = [], "input"
    for place, beta in enumerate(betas):
        stated = {"about": "old"} | ({} if beta == 1.0 else {"beta": beta})
        nodes.append(helper.make_node("Swish", [name], [f"s{place}"], domain="old.framework", **stated))
        nodes.append(helper.make_node("Add", [f"s{place}", "shift"], [f"a{place}"], name=f"shift {place}"))
        name = f"a{place}"
    nodes.append(helper.make_node("LeakyRelu", [name], ["output"], alpha=0.3))
    values = [helper.make_tensor_value_info(port, TensorProto.FLOAT, ["batch", 4]) for port in ("input", "output")]
    graph = helper.make_graph(nodes, "old", values[:1], values[1:], [numpy_helper.from_array(SHIFT, "shift")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("old.framework", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def swish_network(x, betas):
    """What that model computes, in NumPy."""
    for beta in betas:
        x = x / (1 + np.exp(-beta * x)) + SHIFT
    return np.where(x < 0, 0.3 * x, x)


def verify_repair_graph(answer):
    import onnx

    for name, betas in {
        "one Swish": [1.0],
        "a Swish with another beta": [1.73],
        "three in a row": [1.0, 0.5, 2.0],
        "a beta of 0, which is written down": [0.0],
    }.items():
        found = answer(with_swish(betas))
        expect(isinstance(found, onnx.ModelProto), f"Expected the model, found {shorten(found)}.")
        left = sum(node.op_type == "Swish" for node in found.graph.node)
        expect(not left, f"{name}: nodes of the kind Swish still in the graph: {left}.")
        x = np.linspace(-4, 4, 24, dtype=np.float32).reshape(6, 4)
        y = run(name, found, x)
        error = np.abs(y - swish_network(x, betas)).max()
        zero = 1.0 in betas and np.allclose(y, swish_network(x, [0.0 if beta == 1 else beta for beta in betas]))
        why = " You take 0 for a beta that the file does not state; there it is 1." if zero else ""
        expect(error < 1e-5, f"{name}: the repaired graph is off by {error:.3g}.{why}")
        check_others(name, with_swish(betas), found)
    found = run("two Swish that read the same tensor", answer(_side_by_side()), x)
    wanted = x / (1 + np.exp(-1.73 * x)) + x / (1 + np.exp(-0.6 * x)) + SHIFT
    error = np.abs(found - np.where(wanted < 0, 0.3 * wanted, wanted)).max()
    expect(error < 1e-5, f"two Swish that read the same tensor: the repaired graph is off by {error:.3g}.")


def _side_by_side():
    """A graph in which two `Swish`, beta 1.73 and 0.6, read the input, and their results are added up."""
    model = with_swish([1.73, 0.6])
    _, _, second, add, _ = model.graph.node
    second.input[0], add.input[1] = "input", "a0"
    return model


def check_others(name, before, after):
    """All but the Swish nodes is as it was, to the byte, and no Identity was put between."""
    for what in ("input", "output"):
        same = list(getattr(before.graph, what)) == list(getattr(after.graph, what))
        expect(same, f"{name}: the graph's {what} is not as it was.")
    versions = [{each.domain: each.version for each in model.opset_import}[""] for model in (before, after)]
    expect(versions[0] == versions[1], f"{name}: the file said opset {versions[0]}, yours says {versions[1]}.")
    left = [node.SerializeToString() for node in after.graph.node]
    for node in before.graph.node:
        kept = node.op_type == "Swish" or node.SerializeToString() in left
        expect(kept, f"{name}: the node {node.op_type} that writes {node.output[0]!r} is not as it was.")
    expect(all(node.op_type != "Identity" for node in after.graph.node), f"{name}: an Identity node was added.")


def run(name, model, x):
    """What ONNX Runtime makes of x, after the gate has let the model through."""
    import onnx
    import torch

    from labkit import export
    from labkit.errors import LabError

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repaired.onnx"
        onnx.save(model, path)
        try:
            return export.as_written(path)(torch.from_numpy(x)).numpy()
        except LabError as error:
            raise Wrong(f"{name}: {error.what} {error.found or ''}") from None


EXERCISES = (
    Exercise(
        id="fold-batch-norm",
        task="Write a batch norm into the convolution before it.",
        difficulty=2,
        minutes=10,
        hint=(
            "Batch norm at inference multiplies each output channel by one number and adds another. "
            "Which factor does the channel's weight need, and what becomes of the old bias?"
        ),
        reference=fold_batch_norm,
        verify=verify_fold_batch_norm,
    ),
    Exercise(
        id="repair-graph",
        task="Replace an operator that no engine knows by standard ones.",
        difficulty=3,
        minutes=15,
        hint=(
            "swish(x) = x · sigmoid(beta · x): three nodes in the place of each. "
            "Every tensor needs a name of its own, and a node must stand behind those it reads from."
        ),
        reference=repair_graph,
        verify=verify_repair_graph,
    ),
)
