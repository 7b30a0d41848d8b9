"""What a graph consists of, where its time goes, and what each optimisation leaves of it."""

import onnx
import pytest
import torch
from sample_onnx import good_model
from torch import nn

from labkit import export
from labkit.errors import LabError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 3),
    )
    net = nn.Sequential(*layers).eval()
    with torch.no_grad():
        net[1].running_mean.uniform_(-1, 1)
        net[1].running_var.uniform_(0.5, 2)
    return net


@pytest.fixture(scope="module")
def traced(network, folder):
    """The graph as the exporter traces it, before any optimisation."""
    return export.to_onnx(network, torch.zeros(2, 1, 8, 8), folder / "traced.onnx", optimize=False)


@pytest.fixture(scope="module")
def exported(network, folder):
    """The graph as `to_onnx` writes it: constants folded, batch norm fused."""
    return export.to_onnx(network, torch.zeros(2, 1, 8, 8), folder / "exported.onnx")


def test_operators_are_counted_most_frequent_first():
    model = good_model()
    model.graph.node.append(onnx.helper.make_node("Relu", ["logits"], ["again"]))
    assert list(export.operators(model).items()) == [("Relu", 2), ("MatMul", 1), ("Add", 1)]
    assert export.nodes(model) == 4


def test_nodes_inside_branches_count_too():
    model = good_model()
    inner = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["sum"], ["x"])], "inner", [], [])
    model.graph.node.append(
        onnx.helper.make_node("If", ["yes"], ["z"], then_branch=inner, else_branch=inner)
    )
    assert export.operators(model)["Neg"] == 2


def test_the_runtime_fuses_what_the_standard_has_no_operator_for(exported, folder):
    fused = export.operators(export.runtime_graph(exported, folder / "extended.onnx", "extended"))
    assert "FusedConv" in fused and "Relu" not in fused


def test_shares_of_time_add_up_and_follow_the_level(traced):
    plain = export.operator_times(traced, 2, level="none", calls=5)
    assert plain["share"].sum() == pytest.approx(1)
    assert list(plain["ms"]) == sorted(plain["ms"], reverse=True)
    counted = {
        op: n for op, n in export.operators(traced).items() if op not in ("Constant", "CastLike")
    }
    assert {
        op: n for op, n in zip(plain["operator"], plain["nodes"], strict=True) if op in counted
    } == counted
    assert "BatchNormalization" in set(plain["operator"])


def test_node_times_name_the_nodes_of_the_file_in_the_order_they_run(exported):
    frame = export.node_times(exported, 2, level="none", calls=5)
    assert [*zip(frame["node"], frame["operator"], strict=True)] == [
        (node.name, node.op_type) for node in export.checked(exported).graph.node
    ]
    assert (frame["ms"] > 0).all()


@pytest.mark.parametrize("call", [export.runtime_graph, export.operator_times, export.as_written])
def test_a_file_is_checked_before_it_is_used(call, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"bad")
    more = {export.operator_times: [2], export.as_written: []}.get(call, [tmp_path / "out.onnx"])
    with pytest.raises(LabError, match=r"bad\.onnx is refused"):
        call(tmp_path / "bad.onnx", *more)
    assert not (tmp_path / "out.onnx").exists()
