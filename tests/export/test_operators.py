"""What a graph consists of, where its time goes, and what each optimisation leaves of it."""

import numpy as np
import onnx
import pytest
import torch
from sample_onnx import good_model, save
from torch import nn

from labkit import export
from labkit.errors import LabError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
    net = nn.Sequential(*layers).eval()
    with torch.no_grad():
        net[1].running_mean.uniform_(-1, 1)
        net[1].running_var.uniform_(0.5, 2)
    return net


@pytest.fixture(scope="module")
def traced(network, folder):
    """The graph as the exporter traces it, before any optimisation."""
    return export.to_onnx(network, torch.zeros(2, 1, 8, 8), folder / "traced.onnx", optimize=False)


def test_operators_are_counted_most_frequent_first():
    model = good_model()
    model.graph.node.append(onnx.helper.make_node("Relu", ["logits"], ["again"]))
    assert list(export.operators(model).items()) == [("Relu", 2), ("MatMul", 1), ("Add", 1)]
    assert export.nodes(model) == 4


def test_nodes_inside_branches_count_too():
    model = good_model()
    inner = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["sum"], ["x"])], "inner", [], [])
    model.graph.node.append(onnx.helper.make_node("If", ["yes"], ["z"], then_branch=inner, else_branch=inner))
    assert export.operators(model)["Neg"] == 2


@pytest.mark.slow
def test_each_pass_leaves_fewer_nodes_and_the_same_answers(network, traced, folder):
    batch, before = torch.randn(5, 1, 8, 8), export.nodes(traced)
    wanted, done = network(batch).detach(), []
    for name in export.PASSES:
        done.append(name)
        path = export.simplify(traced, folder / f"{len(done)}.onnx", done)
        assert export.nodes(path) < before, name
        before = export.nodes(path)
        torch.testing.assert_close(export.as_written(path)(batch), wanted, atol=1e-5, rtol=1e-4)
    assert "BatchNormalization" not in export.operators(path)
    assert export.operators(path)["Conv"] == 1


def test_a_fused_batch_norm_is_a_convolution_with_other_weights(network, traced, folder):
    """w' = w * gamma / sqrt(var + eps), b' = beta - mean * gamma / sqrt(var + eps)"""
    conv, norm = network[0], network[1]
    scale = (norm.weight / torch.sqrt(norm.running_var + norm.eps)).detach()
    found = onnx.load(export.simplify(traced, folder / "fused.onnx"))
    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in found.graph.initializer]
    weight = (conv.weight * scale[:, None, None, None]).detach().numpy()
    bias = (norm.bias - norm.running_mean * scale).detach().numpy()
    for wanted in (weight, bias):
        assert any(a.shape == wanted.shape and np.allclose(a, wanted, atol=1e-6) for a in arrays)


def test_identity_and_dropout_are_redundant(tmp_path):
    model = good_model()
    model.graph.node[2].input[0] = "same"
    model.graph.node.insert(2, onnx.helper.make_node("Identity", ["kept"], ["same"]))
    model.graph.node.insert(2, onnx.helper.make_node("Dropout", ["sum"], ["kept"]))
    path = export.simplify(save(model, tmp_path), tmp_path / "simple.onnx", ["redundant removed"])
    assert not {"Identity", "Dropout"} & set(export.operators(path))


def test_the_runtime_fuses_what_the_standard_has_no_operator_for(traced, folder):
    simple = export.simplify(traced, folder / "simple.onnx")
    fused = export.operators(export.runtime_graph(simple, folder / "extended.onnx", "extended"))
    assert "FusedConv" in fused and "Relu" not in fused


def test_shares_of_time_add_up_and_follow_the_level(traced):
    plain = export.operator_times(traced, 2, level="none", calls=5)
    assert plain["share"].sum() == pytest.approx(1)
    assert list(plain["ms"]) == sorted(plain["ms"], reverse=True)
    counted = {op: n for op, n in export.operators(traced).items() if op not in ("Constant", "CastLike")}
    assert {op: n for op, n in zip(plain["operator"], plain["nodes"], strict=True) if op in counted} == counted
    assert "BatchNormalization" in set(plain["operator"])


def test_node_times_name_the_nodes_of_the_file_in_the_order_they_run(traced, folder):
    simple = export.simplify(traced, folder / "in-order.onnx")
    frame = export.node_times(simple, 2, level="none", calls=5)
    assert [*zip(frame["node"], frame["operator"], strict=True)] == [
        (node.name, node.op_type) for node in export.checked(simple).graph.node
    ]
    assert (frame["ms"] > 0).all()


@pytest.mark.parametrize("call", [export.simplify, export.runtime_graph, export.operator_times, export.as_written])
def test_a_file_is_checked_before_it_is_used(call, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"bad")
    more = {export.operator_times: [2], export.as_written: []}.get(call, [tmp_path / "out.onnx"])
    with pytest.raises(LabError, match=r"bad\.onnx is refused"):
        call(tmp_path / "bad.onnx", *more)
    assert not (tmp_path / "out.onnx").exists()
