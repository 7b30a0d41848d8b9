"""Exercises of lesson 12: compare two programs, try sizes, and change a graph by hand."""

from typing import TYPE_CHECKING

import numpy as np
from onnx import numpy_helper

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched

if TYPE_CHECKING:
    import onnx

NUMPY = "import numpy as np"
GRAPH = "import numpy as np\nfrom onnx import numpy_helper"

# --- parity ---------------------------------------------------------------------------------------


def parity(reference, program, batches):
    worst = 0.0
    for batch in batches:
        for expected, output in zip(reference(batch), program(batch), strict=True):
            if output.shape != expected.shape or np.isnan(output).any():
                return np.inf
            largest = max(np.abs(expected).max(), 1e-30)  # dropout may make all of them 0
            difference = np.abs(output - expected).max() / largest
            worst = max(worst, difference)
    return worst


# {name: ([outputs of the reference, for each batch], [those of the program], parity)}
PARITY_CASES = {
    "equal answers": ([[[1.0, -4.0]]], [[[1.0, -4.0]]], 0.0),
    "one number off by 0.5, the largest output -4": ([[[1.0, -4.0]]], [[[1.5, -4.0]]], 0.125),
    "one number too small by 0.5": ([[[1.0, -4.0]]], [[[0.5, -4.0]]], 0.125),
    "two batches, the first one worse": ([[[2.0]], [[2.0]]], [[[3.0]], [[2.1]]], 0.5),
    "a second output with small numbers": ([[[100.0], [0.1]]], [[[100.0], [0.05]]], 0.5),
    "a NaN in an answer": ([[[1.0, 2.0]]], [[[1.0, np.nan]]], np.inf),
    "a NaN, then a batch without one": ([[[1.0]], [[1.0]]], [[[np.nan]], [[1.0]]], np.inf),
    "another shape": ([[[1.0, 1.0]]], [[[[1.0], [1.0]]]], np.inf),
}


def verify_parity(answer):
    for name, (expected, outputs, worst) in PARITY_CASES.items():
        batches = [np.array([number]) for number in range(len(expected))]

        def among(lists):
            return lambda batch: [np.array(output) for output in lists[int(batch[0])]]

        found = answer(among(expected), among(outputs), batches)
        if worst == np.inf:
            expect(found == np.inf, f"{name}: expected np.inf, found {shorten(found)}.")
        else:
            expect_close(found, worst, f"{name}: the parity")


# --- sizes ----------------------------------------------------------------------------------------


def by_shape(error_at, batches, tolerance=1e-4):
    verdicts = {}
    for batch in batches:
        try:
            right = error_at(batch) <= tolerance
        except Exception:
            verdicts[batch.shape] = "refused"
        else:
            verdicts[batch.shape] = "right" if right else "wrong"
    return verdicts


def verify_by_shape(answer):
    errors = {
        1: 0.3,
        2: 1e-4,
        3: np.nan,
        4: np.inf,
        5: 0.0,
        6: ValueError,
        7: RuntimeError,
        8: 2e-7,
    }

    def error_at(batch):
        error = errors[len(batch)]
        if isinstance(error, type):
            raise error("Got: 6 Expected: 8")
        return error

    verdicts = {
        1: "wrong",
        2: "right",
        3: "wrong",
        4: "wrong",
        5: "right",
        6: "refused",
        7: "refused",
        8: "right",
    }
    found = answer(error_at, [np.zeros((count, 3)) for count in errors])
    expect(isinstance(found, dict), f"Expected a dictionary, found {shorten(found)}.")
    for count, verdict in verdicts.items():
        expect(
            (count, 3) in found,
            f"Expected the shape {(count, 3)} as a key, found {shorten(list(found))}.",
        )
        error = (
            "an error" if isinstance(errors[count], type) else f"a difference of {errors[count]:g}"
        )
        expect(
            found[count, 3] == verdict,
            f"{error}: expected {verdict!r}, found {shorten(found[count, 3])}.",
        )
    strict = answer(error_at, [np.zeros((8, 3))], 1e-7)
    expect(
        strict == {(8, 3): "wrong"},
        f"A difference of 2e-7, tolerance 1e-7: expected 'wrong', found {strict}.",
    )


# --- constants ------------------------------------------------------------------------------------


def is_constant(node, stored):
    if node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Dropout"):
        return False
    if node.op_type == "CastLike":
        return node.input[0] in stored
    return all(name in stored for name in node.input if name)


def verify_is_constant(answer):
    from onnx import helper

    stored = {"weight": np.ones(2, np.float32), "zero": np.float32(0), "size": np.array([2])}
    cases = {
        "Expand of two stored tensors": ("Expand", ["zero", "size"], True),
        "Constant, without any input": ("Constant", [], True),
        "Clip of stored tensors, its lower limit left out": ("Clip", ["weight", "", "zero"], True),
        "Relu of the image": ("Relu", ["image"], False),
        "Add of the image and a stored tensor": ("Add", ["image", "weight"], False),
        "Add of a stored tensor and the image": ("Add", ["weight", "image"], False),
        "Shape of the image": ("Shape", ["image"], False),
        "CastLike of a stored tensor, to the type of the image": (
            "CastLike",
            ["zero", "image"],
            True,
        ),
        "CastLike of two stored tensors": ("CastLike", ["zero", "weight"], True),
        "CastLike of the image, to the type of a stored tensor": (
            "CastLike",
            ["image", "weight"],
            False,
        ),
        "RandomNormal, without any input": ("RandomNormal", [], False),
        "RandomUniformLike of a stored tensor": ("RandomUniformLike", ["weight"], False),
        "Bernoulli of a stored tensor": ("Bernoulli", ["weight"], False),
        "Dropout of a stored tensor": ("Dropout", ["weight", "zero"], False),
    }
    answer = untouched(answer)
    for name, (kind, inputs, expected) in cases.items():
        found = answer(helper.make_node(kind, inputs, ["result"]), stored)
        expect(bool(found) == expected, f"{name}: expected {expected}, found {shorten(found)}.")


# --- batch norm -----------------------------------------------------------------------------------


def fold_batch_norm(weight, bias, gamma, beta, mean, var, eps):
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
        case, x, expected = batch_norm_case(**traits)
        found = answer(
            **{key: np.copy(value) if key != "eps" else value for key, value in case.items()}
        )
        expect(
            isinstance(found, (tuple, list)) and len(found) == 2,
            f"Expected a weight and a bias, found {shorten(found)}.",
        )
        weight, bias = (np.asarray(array, np.float64) for array in found)
        expect(
            weight.shape == case["weight"].shape,
            f"{name}: the weight has the shape {weight.shape}.",
        )
        expect(bias.shape == case["bias"].shape, f"{name}: the bias has the shape {bias.shape}.")
        error = np.abs(convolve(x, weight, bias) - expected).max()
        right = [
            np.allclose(*pair) for pair in zip((weight, bias), fold_batch_norm(**case), strict=True)
        ]
        half = {(False, True): " The bias is right.", (True, False): " The weight is right."}.get(
            tuple(right), ""
        )
        expect(error < 1e-8, f"{name}: the folded convolution is off by {error:.3g}.{half}")


def batch_norm_case(*, channels=(4, 4), bias=0.0, eps=1e-5):
    """(arguments of the answer, an input, what convolution and batch norm make of it)."""
    rng = np.random.default_rng(0)
    inner, outer = channels
    case = {
        "weight": rng.standard_normal((outer, inner, 3, 2)),
        "bias": bias * rng.standard_normal(outer),
        "gamma": rng.standard_normal(outer),
        "beta": rng.standard_normal(outer),
        "mean": rng.standard_normal(outer),
        "var": rng.uniform(0.2, 3, outer),
        "eps": eps,
    }
    x = rng.standard_normal((2, inner, 5, 6))
    gamma, beta, mean, var = (
        case[key][None, :, None, None] for key in ("gamma", "beta", "mean", "var")
    )
    y = convolve(x, case["weight"], case["bias"])
    return case, x, (y - mean) / np.sqrt(var + eps) * gamma + beta


def convolve(x, weight, bias):
    """A convolution without padding, in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight) + bias[None, :, None, None]


# --- padding --------------------------------------------------------------------------------------


def fuse_padding(model):
    graph = model.graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    writer = {node.output[0]: node for node in graph.node}
    for conv in [node for node in graph.node if node.op_type == "Conv"]:
        pad = writer.get(conv.input[0])
        if pad is None or pad.op_type != "Pad":
            continue
        readers = [node for node in graph.node if pad.output[0] in node.input]
        if len(readers) > 1 or stored[pad.input[2]] != 0:
            continue
        own = next(attribute for attribute in conv.attribute if attribute.name == "pads")
        own.ints[:] = (np.array(own.ints) + stored[pad.input[1]][[2, 3, 6, 7]]).tolist()
        conv.input[0] = pad.input[0]
        graph.node.remove(pad)
    return model


def padded_model(
    pads: list[int],
    *,
    own: tuple[int, ...] = (0, 0, 0, 0),
    value: float = 0.0,
    read_twice: bool = False,
) -> "onnx.ModelProto":
    """A graph: Relu, Pad, Conv, Relu, and a mean over the image; every tensor is stored.

    pads        of the Pad node: where (N, C, H, W) begin, then where they end
    own         of the convolution: top, left, bottom, right
    value       that is put around the image
    read_twice  the padded image is an addend of the end, too
    """
    from onnx import TensorProto, helper

    weight = np.random.default_rng(1).standard_normal((2, 2, 3, 3)).astype(np.float32)
    arrays = {
        "pads": np.array(pads),
        "value": np.float32(value),
        "weight": weight,
        "sides": np.array([2, 3]),
    }
    nodes = [
        helper.make_node("Relu", ["images"], ["rectified"]),
        helper.make_node("Pad", ["rectified", "pads", "value"], ["padded"], mode="constant"),
        helper.make_node(
            "Conv",
            ["padded", "weight"],
            ["convolved"],
            kernel_shape=[3, 3],
            pads=own,
            strides=[1, 1],
        ),
        helper.make_node(
            "ReduceMean", ["convolved", "sides"], ["first" if read_twice else "scores"], keepdims=0
        ),
    ]
    if read_twice:
        nodes.append(helper.make_node("ReduceMax", ["padded", "sides"], ["second"], keepdims=0))
        nodes.append(helper.make_node("Add", ["first", "second"], ["scores"]))
    ends = [("images", ["batch", 2, 6, 7]), ("scores", ["batch", 2])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "padded", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def verify_fuse_padding(answer):
    import onnx

    images = np.random.default_rng(0).standard_normal((2, 2, 6, 7)).astype(np.float32)
    cases = {
        "one row below and one column to the right": ({"pads": [0, 0, 0, 0, 0, 0, 1, 1]}, 0),
        "four different sides": ({"pads": [0, 0, 1, 2, 0, 0, 3, 0]}, 0),
        "a convolution that pads by itself, too": (
            {"pads": [0, 0, 1, 0, 0, 0, 0, 2], "own": (1, 2, 0, 1)},
            0,
        ),
        "padding with ones, which a convolution cannot do": (
            {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "value": 1.0},
            1,
        ),
        "a padded image that another node reads, too": (
            {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "read_twice": True},
            1,
        ),
    }
    for name, (traits, left) in cases.items():
        found = answer(padded_model(**traits))
        expect(isinstance(found, onnx.ModelProto), f"Expected the model, found {shorten(found)}.")
        output = run(name, found, images)
        error = np.abs(output - run(name, padded_model(**traits), images)).max()
        expect(error < 1e-5, f"{name}: the answers of the graph are off by {error:.3g}.")
        pads = sum(node.op_type == "Pad" for node in found.graph.node)
        expect(pads == left, f"{name}: expected Pad nodes in the graph: {left}, found {pads}.")
    found = answer(without(padded_model([0] * 8), "Pad"))
    kinds = [node.op_type for node in found.graph.node]
    expect(
        kinds == ["Relu", "Conv", "ReduceMean"],
        f"A graph without any Pad should stay as it is, found {kinds}.",
    )


def without(model, kind):
    """The model, its one node of a kind taken out: the next node reads what that one read."""
    node = next(node for node in model.graph.node if node.op_type == kind)
    reader = next(other for other in model.graph.node if node.output[0] in other.input)
    reader.input[0] = node.input[0]
    model.graph.node.remove(node)
    return model


def run(name, model, images):
    """What ONNX Runtime makes of images, the graph run as it is written."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what it logs it also raises
    try:
        onnx.checker.check_model(model)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        (output,) = session.run(None, {"images": images})
    except Exception as error:  # both libraries raise errors of many kinds
        raise Wrong(
            f"{name}: the graph cannot be run. {' '.join(str(error).split())[:200]}"
        ) from None
    return output


EXERCISES = (
    Exercise(
        id="parity",
        task="Say how far apart the answers of two programs are.",
        difficulty=1,
        importance=3,
        minutes=7,
        hint="A comparison with NaN is never true, so neither max nor > finds one: ask np.isnan. "
        "Arrays (n, 1) "
        "and (n,) can be subtracted, and the result is no difference: compare the shapes first.",
        reference=parity,
        verify=verify_parity,
        imports=NUMPY,
    ),
    Exercise(
        id="by-shape",
        task="Find the shapes for which a file answers wrongly, or not at all.",
        difficulty=1,
        minutes=6,
        hint="One try in a loop: an exception means refused. NaN <= 0.0001 is "
        "False, NaN > 0.0001 is, too.",
        reference=by_shape,
        verify=verify_by_shape,
    ),
    Exercise(
        id="is-constant",
        task="Decide which node of a graph gives the same result in every call.",
        difficulty=2,
        importance=3,
        minutes=7,
        hint="Three rules, from the special to the general: operators that draw, CastLike, all "
        "others. An input that "
        "is left out has the name ''.",
        reference=is_constant,
        verify=verify_is_constant,
    ),
    Exercise(
        id="fold-batch-norm",
        task="Write a batch norm into the convolution before it.",
        difficulty=2,
        importance=3,
        minutes=10,
        hint="Batch norm at inference multiplies each output channel by one number "
        "and adds another. "
        "Which factor does the channel's weight need, and what becomes of the old bias?",
        reference=fold_batch_norm,
        verify=verify_fold_batch_norm,
        imports=NUMPY,
    ),
    Exercise(
        id="fuse-padding",
        task="Let each convolution pad as the node before it did.",
        difficulty=3,
        importance=3,
        minutes=15,
        hint="For each Conv: which node writes its first input? If that is a Pad that may go, "
        "take places 2, 3, 6 and "
        "7 of its numbers, add them to the attribute pads, let the Conv read what the Pad read, "
        "and remove the Pad.",
        reference=fuse_padding,
        verify=verify_fuse_padding,
        imports=GRAPH,
    ),
)
