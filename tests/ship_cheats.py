"""Submissions: `CHEATS` look better than they are, `HOSTILE` do harm, and get no medal; `HARMLESS`
gain nothing.

Each is made from a small honest one, a linear classifier: {what it does: (what the refusal must
say, maker)}.
"""

import functools

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from labkit.data import load

SHAPE = ["batch", 1, 28, 28]


@functools.cache
def linear():
    """(784, 10) weights and (10,) shifts of a linear classifier, by least squares."""
    images, labels = pixels("train", 4000)
    rows = np.hstack([images, np.ones((len(images), 1), np.float32)])
    target = np.eye(10, dtype=np.float32)[labels]
    found = np.linalg.solve(rows.T @ rows + 300 * np.eye(785), rows.T @ target).astype(np.float32)
    return found[:-1], found[-1]


def pixels(split, count=None):
    """((n, 784) float32 as a network sees them, (n,) labels)."""
    data = load("fashion-mnist", split, limit=count)
    return np.concatenate(
        [batch.flatten(1).numpy() for batch, _ in data.batches(1000)]
    ), data.labels.numpy()


def graph(nodes, tensors, *, opset=20):
    """A model from `pictures` to `logits`."""
    given = [helper.make_tensor_value_info("pictures", TensorProto.FLOAT, SHAPE)]
    answered = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])]
    kept = [numpy_helper.from_array(np.asarray(values), name) for name, values in tensors.items()]
    made = helper.make_graph([helper.make_node(kind, *ports, **more) for kind, *ports, more in nodes], "net", given,
                             answered, kept)  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def honest(last="logits"):
    """The nodes and tensors of the linear classifier."""
    weight, shift = linear()
    nodes = [
        ("Flatten", ["pictures"], ["flat"], {}),
        ("Gemm", ["flat", "weight", "shift"], [last], {}),
    ]
    return nodes, {"weight": weight, "shift": shift}


def honest_file():
    return graph(*honest())


def thumbnails():
    """The labels of the nearest test image, by thumbnails of 7 x 7: it holds the test set."""
    images, labels = pixels("test")
    small = images.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(-1, 49)
    nodes = [
        ("AveragePool", ["pictures"], ["small"], {"kernel_shape": [4, 4], "strides": [4, 4]}),
        ("Flatten", ["small"], ["flat"], {}),
        ("Gemm", ["flat", "known", "half"], ["near"], {}),
        ("ArgMax", ["near"], ["which"], {"axis": 1, "keepdims": 0}),
        ("Gather", ["labels", "which"], ["logits"], {"axis": 0}),
    ]
    half = -(small**2).sum(1) / 2
    return graph(
        nodes,
        {"known": small.T.copy(), "half": half, "labels": np.eye(10, dtype=np.float32)[labels]},
    )


def exact_matches():
    """The linear classifier; but a picture that is a test image, bit for bit, gets the label
    that is stored.
    """
    images, labels = pixels("test")
    marks = np.random.default_rng(0).normal(size=(784, 6)).astype(np.float32) / 28
    known = images @ marks
    nodes, tensors = honest("plain")
    nodes += [
        ("MatMul", ["flat", "marks"], ["mark"], {}),
        ("Gemm", ["mark", "known", "half"], ["near"], {}),
        ("ArgMax", ["near"], ["which"], {"axis": 1, "keepdims": 0}),
        ("Gather", ["rows", "which"], ["closest"], {"axis": 0}),
        ("Sub", ["mark", "closest"], ["off"], {}),
        ("ReduceL2", ["off", "last"], ["distance"], {"keepdims": 1}),
        ("Less", ["distance", "close"], ["same"], {}),
        ("Gather", ["labels", "which"], ["stored"], {"axis": 0}),
        ("Where", ["same", "stored", "plain"], ["logits"], {}),
    ]
    tensors |= {
        "marks": marks,
        "known": known.T.copy(),
        "half": -(known**2).sum(1) / 2,
        "rows": known,
    }
    tensors |= {
        "last": np.array([1]),
        "close": np.float32(0.05),
        "labels": 5 * np.eye(10, dtype=np.float32)[labels],
    }
    return graph(nodes, tensors)


def part_of_the_test_images():
    """The linear classifier; but what is near the thumbnail of one of 2,500 test images gets its
    label.
    """
    images, labels = (part[:2500] for part in pixels("test"))
    known = images.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(-1, 49)
    nodes, tensors = honest("plain")
    nodes += [
        ("AveragePool", ["pictures"], ["pooled"], {"kernel_shape": [4, 4], "strides": [4, 4]}),
        ("Flatten", ["pooled"], ["small"], {}),
        ("Gemm", ["small", "known", "half"], ["near"], {}),
        ("ArgMax", ["near"], ["which"], {"axis": 1, "keepdims": 0}),
        ("Gather", ["rows", "which"], ["closest"], {"axis": 0}),
        ("Sub", ["small", "closest"], ["off"], {}),
        ("ReduceL2", ["off", "last"], ["distance"], {"keepdims": 1}),
        ("Less", ["distance", "close"], ["same"], {}),
        ("Gather", ["labels", "which"], ["stored"], {"axis": 0}),
        ("Where", ["same", "stored", "plain"], ["logits"], {}),
    ]
    tensors |= {
        "known": known.T.copy(),
        "half": -(known**2).sum(1) / 2,
        "rows": known,
        "last": np.array([1]),
    }
    tensors |= {"close": np.float32(2), "labels": 5 * np.eye(10, dtype=np.float32)[labels]}
    return graph(nodes, tensors)


def at_random():
    nodes, tensors = honest("plain")
    nodes += [
        ("RandomUniformLike", ["plain"], ["dice"], {}),
        ("Add", ["plain", "dice"], ["logits"], {}),
    ]
    return graph(nodes, tensors)


def first_for_all():
    """Every picture of a batch gets the answer of the first one."""
    nodes, tensors = honest("plain")
    nodes += [
        ("Gather", ["plain", "zero"], ["first"], {"axis": 0}),
        ("Shape", ["plain"], ["sides"], {}),
        ("Expand", ["first", "sides"], ["logits"], {}),
    ]
    return graph(nodes, tensors | {"zero": np.array([0])})


def by_the_picture():
    """Another branch for some pictures."""
    nodes, tensors = honest("plain")
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 10])
    steps = {kind: [helper.make_node(kind, ["plain"], ["out"])] for kind in ("Relu", "Neg")}
    branch = [helper.make_graph(each, kind, [], [out]) for kind, each in steps.items()]
    nodes += [
        ("ReduceMax", ["plain"], ["most"], {"keepdims": 0}),
        ("Greater", ["most", "one"], ["go"], {}),
        ("If", ["go"], ["logits"], {"then_branch": branch[0], "else_branch": branch[1]}),
    ]
    return graph(nodes, tensors | {"one": np.float32(1)})


def constant_file():
    nodes, tensors = honest()
    return graph(
        nodes,
        {name: 0 * values if name == "weight" else values for name, values in tensors.items()},
    )


def answers_no_numbers():
    nodes, tensors = honest("plain")
    return graph([*nodes, ("Abs", ["plain"], ["size"], {}), ("Neg", ["size"], ["below"], {}),
                  ("Log", ["below"], ["logits"], {})], tensors)  # fmt: skip


COUNT = [
    ("Shape", ["pictures"], ["sides"], {}),
    ("Gather", ["sides", "batch"], ["count"], {"axis": 0}),
]


def first_rows_only():
    """The first four pictures of a batch are answered, the others not at all."""
    nodes, tensors = honest("plain")
    nodes += [("Slice", ["plain", "start", "end", "axis"], ["logits"], {})]
    return graph(
        nodes, tensors | {"start": np.array([0]), "end": np.array([4]), "axis": np.array([0])}
    )


def first_rows_then_zeros():
    """The first four pictures of a batch are answered, the others with zeros."""
    nodes, tensors = honest("plain")
    nodes += [
        *COUNT,
        ("Range", ["batch", "count", "one"], ["places"], {}),
        ("Less", ["places", "four"], ["first"], {}),
        ("Unsqueeze", ["first", "last"], ["rows"], {}),
        ("Where", ["rows", "plain", "zero"], ["logits"], {}),
    ]
    numbers = {"batch": np.array(0), "one": np.array(1), "four": np.array(4), "last": np.array([1])}
    return graph(nodes, tensors | numbers | {"zero": np.float32(0)})


def another_when_alone():
    """A picture that comes alone, and so is timed, gets the answer of another network."""
    nodes, tensors = honest("plain")
    nodes += [
        *COUNT,
        ("Equal", ["count", "one"], ["alone"], {}),
        ("Neg", ["plain"], ["other"], {}),
        ("Where", ["alone", "other", "plain"], ["logits"], {}),
    ]
    return graph(nodes, tensors | {"batch": np.array(0), "one": np.array(1)})


AGAIN = "another answer when it is asked again"
KNOWN = "labels of test images|answers of the test images"
CHEATS = {
    "labels of the nearest test image": (KNOWN, thumbnails),
    "labels of exact test images": (KNOWN, exact_matches),
    "at random": ("different network per call", at_random),
    "the first answer for a whole batch": (AGAIN, first_for_all),
    "a batch in part, fewer rows": ("answered in part", first_rows_only),
    "a batch in part, the rest zeros": (AGAIN, first_rows_then_zeros),
    "another network where it is timed": (AGAIN, another_when_alone),
    "a branch for some pictures": ("chooses its way", by_the_picture),
    "a constant in the file": ("same whatever", constant_file),
    "answers that are no numbers": ("not numbers", answers_no_numbers),
}
# Not refused, because it gains nothing: what it remembers costs more bytes and time than it is
# worth.
HARMLESS = {"labels of a part of the test images": ("", part_of_the_test_images)}


def no_file_at_all():
    return b"not a model"


def more_memory_per_picture():
    """Each picture takes another 256 MB: one can be answered, a batch not."""
    nodes, tensors = honest("plain")
    nodes += [
        ("Unsqueeze", ["plain", "last"], ["columns"], {}),
        ("Expand", ["columns", "wide"], ["copies"], {}),
        ("ReduceMean", ["copies", "last"], ["logits"], {"keepdims": 0}),
    ]
    return graph(nodes, tensors | {"last": np.array([2]), "wide": np.array([1, 1, 6_400_000])})


def constants_of_10_gb():
    nodes, tensors = honest("plain")
    names = [f"huge{number}" for number in range(8)]
    nodes += [("ConstantOfShape", ["shape"], [name], {}) for name in names]
    nodes += [
        ("Sum", names, ["total"], {}),
        ("ReduceMax", ["total"], ["most"], {"keepdims": 0}),
        ("Add", ["plain", "most"], ["logits"], {}),
    ]
    return graph(nodes, tensors | {"shape": np.array([5 * 2**26])})


def loop_of_2_to_the_31():
    nodes, tensors = honest("plain")
    ports = {
        "round": (TensorProto.INT64, []),
        "go": (TensorProto.BOOL, []),
        "x": (TensorProto.FLOAT, ["batch", 10]),
    }
    given = [helper.make_tensor_value_info(name, *port) for name, port in ports.items()]
    ends = [helper.make_tensor_value_info(f"{name}_", *ports[name]) for name in ("go", "x")]
    steps = [helper.make_node("Identity", ["go"], ["go_"]), helper.make_node("Relu", ["x"], ["x_"])]
    body = helper.make_graph(steps, "body", given, ends)
    nodes += [("Loop", ["rounds", "yes", "plain"], ["logits"], {"body": body})]
    return graph(nodes, tensors | {"rounds": np.array(2**31), "yes": np.array(True)})


def external_data(location="../weights.bin", offset=None):
    """Weights in a file beside it, which is not handed in."""
    model = honest_file()
    weight = model.graph.initializer[0]
    length = len(weight.raw_data)
    onnx.external_data_helper.set_external_data(
        weight, location, offset=offset, length=offset and length
    )
    weight.ClearField("raw_data")
    return model


def another_form():
    model = honest_file()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return model


HOSTILE = {
    "no ONNX file": ("damaged or no ONNX file", no_file_at_all),
    "more memory for each picture": ("allocat", more_memory_per_picture),
    "10 GB of constants": ("more memory than", constants_of_10_gb),
    "a loop of 2^31 steps": ("chooses its way", loop_of_2_to_the_31),
    "external data": ("takes weights from another file", external_data),
    **{
        f"weights of {name}": (
            "takes weights from another file",
            functools.partial(external_data, name, 1000),
        )
        for name in ("reference.onnx", "0.onnx", "submission.onnx")
    },
    "one picture at a time only": ("another form", another_form),
}


def make_all(files, folder):
    """Write `CHEATS` or `HOSTILE` into a folder: {what it does: its path}."""
    found = {}
    for number, (name, (_, make)) in enumerate(files.items()):
        made = make()
        found[name] = folder / f"{number}.onnx"
        found[name].write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return found
