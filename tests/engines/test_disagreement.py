"""No time for an engine that answers something else than the file means; its operator is named;
the others go on.
"""

from dataclasses import replace

import pytest
import torch
from made_up_onnx import FLOAT, initializer, model, save
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from labkit import cli, engines
from labkit.engines import _disagreement, _first_difference
from labkit.engines.bench import bench
from labkit.engines.opening import opened
from labkit.engines.racing import race
from labkit.errors import LabError, MeasureError, Unavailable
from labkit.measure import Plan

PLAN = Plan(seconds=0.05)
SIDES = ("batch", 3, 12, 12)
TYPES = [
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "BOOL",
    "DOUBLE",
    "FLOAT16",
    "FLOAT",
]


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(_disagreement, "_verdicts", {})


def between_convolutions(node, *initializers):
    """A network whose middle is `node`, from "before" to "after"."""
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["before"], name="first", pads=[1, 1, 1, 1]),
        node,
        helper.make_node("Relu", ["after"], ["positive"], name="relu"),
        helper.make_node("Conv", ["positive", "w"], ["logits"], name="last"),
    ]
    weights = [initializer("w", 3, 3, 3, 3), *initializers]
    return model(nodes, weights, output=("batch", 3, None, None), shape=SIDES)


def shrunk():
    scales = numpy_helper.from_array(torch.tensor([1, 1, 0.5, 0.5]).numpy(), "scales")
    inputs = ["before", "", "scales"]
    node = helper.make_node("Resize", inputs, ["after"], name="shrink", mode="linear", antialias=1)
    return between_convolutions(node, scales)


def pooled():
    sides = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    node = helper.make_node(
        "AveragePool", ["before"], ["after"], name="pool", ceil_mode=1, count_include_pad=1, **sides
    )
    return between_convolutions(node)


def row_of(path, engine):
    (row,) = bench(opened(str(path)), [2], engine=engine, plan=PLAN)
    return row


@pytest.mark.parametrize(
    ("made", "operator"), [(shrunk, "Resize (node shrink)"), (pooled, "AveragePool (node pool)")]
)
def test_an_engine_that_ignores_an_attribute_in_fp32_gets_no_time_and_the_operator_is_named(
    made, operator, tmp_path
):
    path = save(made(), tmp_path)
    right, wrong = row_of(path, "onnxruntime"), row_of(path, "openvino")
    assert right.p50_ms > 0
    assert wrong.p50_ms is None
    assert f"The first operator that differs is {operator}" in wrong.reason
    with pytest.raises(MeasureError, match=r"Resize|AveragePool"):
        list(
            race(
                [(opened(str(path)), name) for name in ("onnxruntime", "openvino")], [2], plan=PLAN
            )
        )


def changed(monkeypatch, change):
    """Let every engine answer `change(its answer)`."""
    load = engines.load

    def wrong(*args, **settings):
        served = load(*args, **settings)
        return engines.replace(served, run=lambda *batch: change(served.run(*batch)))

    monkeypatch.setattr(engines, "load", wrong)


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer[:, :1],
        lambda answer: answer * float("nan"),
        lambda answer: answer + float("inf"),
        lambda answer: 1.01 * answer,
    ],
)
def test_another_shape_numbers_that_are_not_finite_and_one_percent_are_no_rounding_in_fp32(
    change, tmp_path, monkeypatch
):
    path = save(shrunk(), tmp_path)
    changed(monkeypatch, change)
    row = row_of(path, "onnxruntime")
    assert row.p50_ms is None
    assert "something else than the file means" in row.reason


def test_rounding_in_fp32_is_no_difference(tmp_path, monkeypatch):
    changed(monkeypatch, lambda answer: answer * (1 + 1e-5))
    assert row_of(save(shrunk(), tmp_path), "onnxruntime").p50_ms > 0


def beside_a_right_answer():
    """A network whose first output is a convolution, and whose second one is shrunk."""
    made = shrunk()
    made.graph.output.insert(
        0, helper.make_tensor_value_info("before", FLOAT, ("batch", 3, None, None))
    )
    return made


def in_small_channels():
    """A network of three channels of a convolution, and three that vary by a ten-thousandth of
    them.
    """
    made = shrunk()
    numbers = {
        "small": torch.tensor([1e-4]),
        "begin": torch.tensor([0, 0]),
        "end": torch.tensor([4, 4]),
    }
    numbers["sides"] = torch.tensor([2, 3])
    made.graph.initializer.extend(
        numpy_helper.from_array(value.numpy(), name) for name, value in numbers.items()
    )
    made.graph.node.extend(
        [
            helper.make_node(
                "Slice", ["before", "begin", "end", "sides"], ["right"], name="corner"
            ),
            helper.make_node("Mul", ["logits", "small"], ["tiny"], name="tiny"),
            helper.make_node("Concat", ["right", "tiny"], ["answers"], name="together", axis=1),
        ]
    )
    made.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("answers", FLOAT, ("batch", 6, 4, 4))
    )
    return made


@pytest.mark.parametrize("made", [beside_a_right_answer, in_small_channels])
def test_a_further_output_and_small_channels_that_differ_are_seen_too(made, tmp_path):
    path = save(made(), tmp_path)
    right, wrong = row_of(path, "onnxruntime"), row_of(path, "openvino")
    assert right.reason is None
    assert right.p50_ms > 0
    assert wrong.p50_ms is None
    assert "The first operator that differs is Resize (node shrink)" in wrong.reason


def blind():
    """A network whose answers are the same whatever it is given: its input is multiplied by
    zeros.
    """
    nodes = [
        helper.make_node("Mul", ["input", "zero"], ["nothing"]),
        helper.make_node("Conv", ["nothing", "w"], ["logits"], pads=[1, 1, 1, 1]),
    ]
    weights = [
        initializer("w", 3, 3, 3, 3),
        numpy_helper.from_array(torch.zeros(1).numpy(), "zero"),
    ]
    return model(nodes, weights, output=("batch", 3, None, None), shape=SIDES)


def test_a_file_whose_answers_do_not_vary_with_its_inputs_gets_no_time_and_no_race(tmp_path):
    path = save(blind(), tmp_path)
    row = row_of(path, "onnxruntime")
    assert row.p50_ms is None
    assert "do not vary with its inputs" in row.reason
    assert "the output 'logits'" in row.reason
    assert "--data" in row.reason
    network = opened(str(path))
    with pytest.raises(MeasureError, match=r"made_up.onnx(?s:.*)do not vary with its inputs"):
        list(race([(network, "onnxruntime"), (network, "openvino")], [2], plan=PLAN))


def with_a_constant_output():
    """A network whose output "logits" is constant, while "doubled" is not."""
    made = blind()
    made.graph.output.append(helper.make_tensor_value_info("doubled", FLOAT, SIDES))
    made.graph.node.append(helper.make_node("Add", ["input", "input"], ["doubled"]))
    return made


def test_a_time_and_a_race_beside_a_constant_output_name_the_file_and_the_output(tmp_path):
    path = save(with_a_constant_output(), tmp_path)
    row = row_of(path, "onnxruntime")
    assert row.p50_ms > 0
    assert "not compared: the output 'logits', which does not vary" in row.summary()
    assert "doubled" not in row.unchecked
    assert "--data" in row.unchecked

    other = save(with_a_constant_output(), tmp_path, "other.onnx")
    contenders = [(opened(str(name)), "onnxruntime") for name in (path, other)]
    (comparison,) = race(contenders, [2], plan=PLAN)
    for row in comparison.rows:
        assert "made_up onnxruntime: the output 'logits'" in row.unchecked
    assert "other onnxruntime: the output 'logits'" in comparison.summary()


def of_tokens(size):
    """A network of one token, whose answers have this size: 0 makes them constant."""
    nodes = [
        helper.make_node("Gather", ["table", "input"], ["row"], name="row"),
        helper.make_node("Mul", ["row", "size"], ["logits"], name="times"),
    ]
    size = numpy_helper.from_array(torch.tensor([size]).numpy(), "size")
    made = model(
        nodes, [initializer("table", 16, 4), size], output=("batch", 1, 4), shape=("batch", 1)
    )
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    return made


def test_one_token_is_replaced_to_see_whether_the_answers_vary_with_it(tmp_path):
    assert "do not vary" in row_of(save(of_tokens(0.0), tmp_path), "onnxruntime").reason
    assert row_of(save(of_tokens(1.0), tmp_path), "onnxruntime").unchecked is None


def test_one_example_of_the_users_is_varied_and_an_output_that_then_varies_is_checked(tmp_path):
    example = (torch.rand(1, 3, 12, 12),)
    network = replace(opened(str(save(shrunk(), tmp_path))), inputs=lambda batch: example)
    (row,) = bench(network, [1], engine="onnxruntime", plan=PLAN)
    assert row.p50_ms > 0
    assert row.unchecked is None


def rare(threshold):
    """A network that answers with what exceeds a threshold."""
    threshold = numpy_helper.from_array(torch.tensor([threshold]).numpy(), "threshold")
    nodes = [
        helper.make_node("Sub", ["input", "threshold"], ["above"]),
        helper.make_node("Relu", ["above"], ["logits"]),
    ]
    return model(nodes, [threshold], output=SIDES, shape=SIDES)


def test_an_output_that_varies_with_the_users_inputs_only_is_compared_on_those(
    tmp_path, monkeypatch
):
    """It is zero for noise of every size that is made up here, and for the first example."""
    path = save(rare(1e4), tmp_path)
    assert "do not vary" in row_of(path, "onnxruntime").reason
    network = replace(
        opened(str(path)),
        inputs=lambda batch: (torch.zeros(batch, 3, 12, 12),),
        user_batches=lambda batch: [(2e4 * torch.rand(batch, 3, 12, 12),)],
    )
    assert next(bench(network, [2], engine="onnxruntime", plan=PLAN)).p50_ms > 0
    monkeypatch.setattr(_disagreement, "_verdicts", {})
    changed(monkeypatch, lambda answer: 1.01 * answer)
    row = next(bench(network, [2], engine="onnxruntime", plan=PLAN))
    assert "something else than the file means" in row.reason


def test_a_verdict_without_the_users_data_is_not_remembered_for_a_call_with_them(tmp_path):
    network = opened(str(save(rare(1e4), tmp_path)))
    (row,) = bench(network, [2], engine="onnxruntime", plan=PLAN)
    assert "do not vary" in row.reason
    with_data = replace(network, user_batches=lambda batch: [(2e4 * torch.rand(batch, 3, 12, 12),)])
    (row,) = bench(with_data, [2], engine="onnxruntime", plan=PLAN)
    assert row.reason is None and row.p50_ms > 0


def around_300(seed):
    """A regression around 300, by less than a thousandth."""
    offset = numpy_helper.from_array(torch.tensor([300.0]).numpy(), "offset")
    small = numpy_helper.from_array(torch.tensor([0.08]).numpy(), "small")
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["wide"]),
        helper.make_node("GlobalAveragePool", ["wide"], ["mean"]),
        helper.make_node("Mul", ["mean", "small"], ["little"]),
        helper.make_node("Add", ["little", "offset"], ["logits"]),
    ]
    weights = [initializer("w", 3, 3, 3, 3, seed=seed), small, offset]
    return model(nodes, weights, output=("batch", 3, 1, 1), shape=SIDES)


def test_files_that_are_alike_in_what_does_not_vary_do_not_race_without_a_word(tmp_path):
    """The tolerance of a race, of the largest value, is far above what varies."""
    first, other = (save(around_300(seed), tmp_path, f"net{seed}.onnx") for seed in (0, 5))
    same = save(around_300(0), tmp_path, "same.onnx")

    def compared(second, user_batches=lambda batch: []):
        networks = [
            replace(opened(str(path)), user_batches=user_batches) for path in (first, second)
        ]
        return next(race([(network, "onnxruntime") for network in networks], [2], plan=PLAN))

    assert [row.unchecked for row in compared(same).rows] == [None, None]
    assert "'logits'" in compared(other)["net5 onnxruntime"].unchecked
    assert "always the same would be as near to that of net0.onnx" in compared(other).summary()

    # Of the user's own inputs it is no chance.
    def own(batch):
        return [(torch.randn(batch, 3, 12, 12),) for _ in range(7)]

    compared(same, own)
    with pytest.raises(MeasureError, match=r"net5\.onnx in onnxruntime is not timed"):
        compared(other, own)


def test_a_label_that_is_the_same_for_some_inputs_is_given_more_of_them(tmp_path):
    nodes = [
        helper.make_node("ReduceMean", ["input", "sides"], ["mean"]),
        helper.make_node("ArgMax", ["mean"], ["logits"], axis=1, keepdims=0),
    ]
    sides = numpy_helper.from_array(torch.tensor([2, 3]).numpy(), "sides")
    made = model(nodes, [sides], output=("batch", 1, 1), kind=TensorProto.INT64, shape=SIDES)
    network = opened(str(save(made, tmp_path)))
    for seed in range(4):
        example = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(seed))
        one = replace(network, inputs=lambda batch, example=example: (example,))
        assert next(bench(one, [1], engine="onnxruntime", plan=PLAN)).reason is None


def test_an_engine_that_takes_others_of_equal_numbers_is_seen_where_many_are_equal(tmp_path):
    """Of bright pictures the 20 largest differ; of dark ones most are zeros, of which the
    standard takes the first.
    """
    count = numpy_helper.from_array(torch.tensor([20]).numpy(), "count")
    nodes = [
        helper.make_node("Flatten", ["input"], ["flat"], name="flat"),
        helper.make_node("TopK", ["flat", "count"], ["values", "places"], name="largest"),
        helper.make_node("Gather", ["w", "places"], ["logits"], name="weights"),
    ]
    made = model(nodes, [initializer("w", 432), count], output=("batch", 20), shape=SIDES)
    assert "TopK (node largest)" in row_of(save(made, tmp_path), "openvino").reason


def test_a_branch_that_agrees_is_not_named_and_the_search_ends_in_a_network_of_hundreds_of_nodes(
    tmp_path,
):
    nodes = [helper.make_node("Relu", ["input"], ["x0"], name="start")]
    for place in range(200):
        nodes.append(helper.make_node("Sin", [f"x{place}"], [f"y{place}"], name=f"sin{place}"))
        nodes.append(
            helper.make_node(
                "Add", [f"x{place}", f"y{place}"], [f"x{place + 1}"], name=f"add{place}"
            )
        )
    scales = numpy_helper.from_array(torch.tensor([1, 1, 0.5, 0.5]).numpy(), "scales")
    shrink = {"mode": "linear", "antialias": 1}
    nodes[201:201] = [
        helper.make_node("Resize", ["x100", "", "scales"], ["small"], name="shrink", **shrink)
    ]
    nodes += [
        helper.make_node("ReduceMean", ["x200"], ["mean"], name="mean"),
        helper.make_node("Add", ["small", "mean"], ["logits"], name="join"),
    ]
    made = model(nodes, [scales], output=("batch", 3, None, None), shape=SIDES)
    row = row_of(save(made, tmp_path), "openvino")
    assert "The first operator that differs is Resize (node shrink)" in row.reason


def test_where_the_time_is_over_it_is_said_that_the_operator_was_not_found(tmp_path, monkeypatch):
    monkeypatch.setattr(_first_difference, "SEARCH_S", 0.0)
    assert "The operator was not found" in row_of(save(pooled(), tmp_path), "openvino").reason


def test_a_file_is_compared_once_for_each_engine_and_shape(tmp_path, monkeypatch):
    compared = []
    compare = _disagreement._compare
    monkeypatch.setattr(
        _disagreement,
        "_compare",
        lambda served, *rest: compared.append(served.engine) or compare(served, *rest),
    )
    path = save(shrunk(), tmp_path)
    for _ in range(2):
        row_of(path, "onnxruntime")
        row_of(path, "openvino")
    assert compared == ["onnxruntime", "openvino"]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_whatever_an_engine_raises_when_it_loads_a_file_is_a_row_with_the_reason(
    engine, tmp_path, monkeypatch
):
    def fail(*args, **settings):
        raise RuntimeError("Convert_28449 contains empty child edge")

    monkeypatch.setattr(engines.get(engine), "load", fail)
    row = row_of(save(pooled(), tmp_path), engine)
    assert row.p50_ms is None
    assert "empty child edge" in row.reason
    with pytest.raises(Unavailable, match=engine):
        engines.load(engine, save(pooled(), tmp_path), torch.zeros(1, 3, 12, 12))


@pytest.mark.parametrize("kind", TYPES)
def test_onnx_runtime_takes_inputs_of_every_type_of_number(kind, tmp_path):
    nodes = [
        helper.make_node("Cast", ["input"], ["float"], to=FLOAT),
        helper.make_node("Relu", ["float"], ["logits"]),
    ]
    made = model(nodes, output=("batch", 4), shape=("batch", 4))
    made.graph.input[0].type.tensor_type.elem_type = getattr(TensorProto, kind)
    row = row_of(save(made, tmp_path), "onnxruntime")
    assert row.p50_ms > 0, row.reason


def test_an_answer_that_is_no_tensor_of_numbers_is_a_row_with_a_reason(tmp_path):
    made = model([helper.make_node("SequenceConstruct", ["input"], ["logits"])], shape=("batch", 4))
    made.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("logits", FLOAT, None))
    row = row_of(save(made, tmp_path), "onnxruntime")
    assert row.p50_ms is None
    assert "no tensor of numbers" in row.reason


def test_a_further_output_that_is_no_tensor_is_named_beside_the_time(tmp_path):
    nodes = [
        helper.make_node("Relu", ["input"], ["logits"]),
        helper.make_node("SequenceConstruct", ["logits"], ["maps"]),
    ]
    made = model(nodes, output=("batch", 4), shape=("batch", 4))
    made.graph.output.append(helper.make_tensor_sequence_value_info("maps", FLOAT, None))
    row = row_of(save(made, tmp_path), "onnxruntime")
    assert row.p50_ms > 0, row.reason
    assert "'maps', which is no tensor" in row.unchecked


def test_all_engines_are_tried_on_a_file_and_those_of_modules_are_rows_with_a_reason(tmp_path):
    path = save(pooled(), tmp_path)
    result = CliRunner().invoke(
        cli.app, ["bench", str(path), "--engine", "all", "--batch", "2", "--seconds", "0.05"]
    )
    assert result.exit_code == 0, result.output
    for name in engines.names():
        assert f"{name}, batch 2 ..." in result.output
    assert result.output.count("runs torch modules, not ONNX files") == len(
        engines.names(runs="torch")
    )
    assert "\n    median " in result.output
    alone = CliRunner().invoke(cli.app, ["bench", str(path)])
    assert isinstance(alone.exception, LabError)
