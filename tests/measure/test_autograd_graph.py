"""The graph of the backward pass as data and as a picture, and the kernels that torch.compile writes."""

import pytest
import torch

from labkit.measure.autograd_graph import autograd, draw_autograd, kernels


def output(size=6):
    x = torch.ones(size, requires_grad=True)
    return (x * x).exp() + x


def test_the_graph_has_each_step_once_with_its_depth():
    nodes, edges = autograd(output())
    assert sorted((node.name, node.depth) for node in nodes.values()) == [
        ("AccumulateGrad", 3),
        ("Add", 0),
        ("Exp", 1),
        ("Mul", 2),
    ]
    names = {(nodes[a].name, nodes[b].name) for a, b in edges}
    assert names == {("Add", "Exp"), ("Add", "AccumulateGrad"), ("Exp", "Mul"), ("Mul", "AccumulateGrad")}


def test_a_step_knows_what_it_keeps():
    nodes, _ = autograd(output())
    assert {node.name: len(node.kept) for node in nodes.values()} == {"Add": 0, "Exp": 1, "Mul": 2, "AccumulateGrad": 0}


def test_graphs_are_drawn_side_by_side():
    figure = draw_autograd({"one": output(), "another": output(3)})
    assert [ax.get_title() for ax in figure.axes] == ["one", "another"]
    assert {text.get_text() for text in figure.axes[0].texts} >= {"Exp", "Mul", "Add"}
    assert draw_autograd({"alone": output()})._repr_png_()[:4] == b"\x89PNG"


def test_a_step_that_keeps_a_tensor_looks_different_from_one_that_keeps_a_mask_or_nothing():
    x = torch.ones(6, requires_grad=True)
    (ax,) = draw_autograd({"": (torch.where(x > 0, x, 0.0) + 1).exp()}).axes
    colours = {text.get_text(): text.get_bbox_patch().get_facecolor() for text in ax.texts if text.get_text()}
    assert colours["Add"] == colours["AccumulateGrad"]
    assert len({colours[name] for name in ("Exp", "Where", "Add")}) == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_two_operators_become_one_kernel_that_can_be_read():
    compiled = torch.compile(lambda x: (x + 1).relu())
    (found,) = kernels(compiled, torch.ones(64)).values()
    assert "extern" in found and "#include" not in found
