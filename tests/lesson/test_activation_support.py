"""What the lesson on activations prints and draws: the compiler's loop, the board, published
beside own numbers.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from labkit.lesson.support import load_support
from labkit.measure.stats import Interval
from labkit.measure.turns import Times

study = load_support("activation_study")


def times_of(**seconds):
    """`Times` of calls that take so many seconds in each of 12 rounds, and the null arm."""
    columns = [*seconds.values(), next(iter(seconds.values()))]
    return Times(tuple(seconds), np.tile(columns, (12, 1)))


def test_times_as_long_are_those_of_the_first_call_or_of_the_named_one():
    times = times_of(relu=1.0, swish=6.0, additions=3.0)
    assert study.times_as_long(times, "swish").median == pytest.approx(6)
    assert study.times_as_long(times, "swish", "additions").median == pytest.approx(2)


def test_the_gain_of_many_blocks_is_divided_by_that_of_few():
    times = times_of(**{"1": 2.0, "1, TC": 2.0, "8": 9.0, "8, TC": 6.0})
    assert study.more_gain(times, "8", "1").median == pytest.approx(1.5)


def test_a_loop_has_its_constants_in_place_and_no_type_names():
    source = """
    for(int64_t x0=static_cast<int64_t>(0L); x0<4L; x0+=8L)
    {
        auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + x0);
        auto tmp1 = static_cast<float>(3.0);
        auto tmp2 = at::vec::Vectorized<float>(tmp1);
        auto tmp3 = tmp0 + tmp2;
        tmp3.store(out_ptr0 + x0);
    }
    """
    assert study.loop_of(source).splitlines() == [
        "for(int64_t x0=(0L); x0<4L; x0+=8L)",
        "tmp0 = loadu(in_ptr0 + x0);",
        "tmp3 = tmp0 + 3.0;",
        "tmp3.store(out_ptr0 + x0);",
    ]


class Activation(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_another_activation_goes_into_a_copy_with_the_same_weights():
    network = nn.Sequential(nn.Linear(3, 3), Activation(torch.relu))
    twin = study.with_activation(network, torch.tanh)
    x = torch.randn(2, 3)
    assert torch.equal(twin(x), torch.tanh(network[0](x)))
    assert torch.equal(network(x), torch.relu(network[0](x)))


def test_own_times_and_accuracies_stand_beside_the_published_ones():
    times = {batch: times_of(ReLU=1.0, GELU=2.0, **{"TC + ReLU": 0.5}) for batch in (64, 1)}
    accuracy = dict.fromkeys(("GELU", "HardSwish", "ReLU", "FastSwish", "yours"), 75.0)
    table = study.inference_table(times, accuracy)
    assert table.loc["GELU", ("batch 64", "here")].startswith("2.00")
    assert table.loc["TC + ReLU", ("batch 1", "here")].startswith("0.50")
    assert table.loc["TC + ReLU", ("batch 1", "RTX 4090")] == "0.39"  # 5.17 / 13.39
    assert table.loc["FastSwish", ("batch 64", "RTX 4090")] == "1.58"  # 98.86 / 62.42
    assert table.loc["GELU", ("accuracy (%)", "RTX 4090")] == "46.53"
    assert table.loc["TC + yours", ("batch 64", "here")] == "–"


def test_a_tool_that_refuses_a_form_is_named_with_its_error():
    def refuses(form):
        raise TypeError(form)

    table = study.try_tools({"refuses": refuses, "counts": lambda form: [form]}, {"a": 1})
    assert table["a"].to_dict() == {"refuses": "no: TypeError", "counts": "yes, 1 operators"}


def test_the_board_shows_every_form_in_both_panels():
    board = {
        "ReLU": (Interval(0.9, 1.1, 12, 1.0), 1.0),
        "as written": (Interval(10, 14, 12, 12.0), 4.75),
    }
    figure = study.draw_board(board)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == list(board)
    assert [text.get_text() for text in figure.axes[1].texts] == ["1 x", "4.75 x"]


def test_the_goal_is_reached_where_the_whole_interval_and_the_bytes_are_within_it():
    relu = {"ReLU": (Interval(0.9, 1.1, 12, 1.0), 1.0)}
    in_time = Interval(2.0, 3.0, 12, 2.6)
    assert "compiled (2.6 x" in study.goal(relu | {"compiled": (in_time, 1.0)})
    assert study.goal(relu | {"compiled": (in_time, 2.0)}).startswith("Goal not reached")
    assert study.goal(relu | {"compiled": (Interval(2.0, 5.0, 12, 2.6), 1.0)}).startswith(
        "Goal not reached"
    )


def test_guards_are_said_to_cost_something_only_where_intervals_do_not_overlap():
    call = "x + 1, TC"
    slow, quick = (times_of(**{call: seconds}) for seconds in (2e-5, 1e-5))
    cheaper = study.without_guards({"in series": slow, "in series, no guards": quick})
    assert "saves 10 µs" in cheaper
    assert "nothing" in study.without_guards({"in series": slow, "in series, no guards": slow})


def test_columns_of_dashes_are_left_out():
    table = pd.DataFrame({"here": ["1", "–"], "recorded": ["–", "–"]})
    assert list(study.without_dashes(table)) == ["here"]


def test_columns_of_a_graph_go_by_the_longest_path():
    x = torch.ones(3, requires_grad=True)
    columns = study._columns_of(x.exp() * x)
    assert [len(column) for column in columns] == [1, 1, 1]


class Checkpointed(nn.Module):
    """As in the lesson."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs, **named):
        return checkpoint(self.layer, *inputs, use_reentrant=False, **named)


class Transformer(nn.Module):
    """Blocks in a list, called with a mask."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(3)
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x, src_mask=torch.zeros(5, 5))
        return self.head(x)


class TwoOutputs(nn.Module):
    """A body of layers in place, and two heads."""

    def __init__(self):
        super().__init__()
        layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True)) for _ in range(6)]
        self.body = nn.Sequential(*layers)
        self.heads = nn.ModuleDict({"class": nn.Linear(8, 4), "box": nn.Linear(8, 2)})

    def forward(self, x):
        body = self.body(x)
        return {name: head(body) for name, head in self.heads.items()}


def resnet():
    return pytest.importorskip("torchvision").models.resnet18(weights=None, num_classes=4)


@pytest.mark.parametrize(
    ("build", "shape"),
    [(resnet, (2, 3, 32, 32)), (Transformer, (2, 5, 8)), (TwoOutputs, (3, 8))],
)
def test_a_network_with_checkpoints_has_the_same_answers_and_gradients(build, shape):
    torch.manual_seed(0)
    network = build().eval()
    lean = study.with_checkpoints(network, Checkpointed)
    x = torch.randn(shape)
    outputs = [study.first_tensor(net(x)) for net in (network, lean)]
    assert torch.allclose(*outputs, atol=1e-5)
    for output in outputs:
        output.square().sum().backward()
    gradients = [[weight.grad for weight in net.parameters()] for net in (network, lean)]
    for plain, rebuilt in zip(*gradients, strict=True):
        assert (plain is None) == (rebuilt is None)
        assert plain is None or torch.allclose(plain, rebuilt, atol=1e-3, rtol=1e-3)


def test_each_block_of_a_list_is_a_checkpoint_of_its_own():
    lean = study.with_checkpoints(Transformer(), Checkpointed)
    assert [type(block) for block in lean.blocks] == [Checkpointed] * 3


def test_a_sequential_network_is_cut_into_pieces_of_four_layers():
    layers = [nn.Linear(3, 3) for _ in range(6)]
    lean = study.with_checkpoints(nn.Sequential(*layers), Checkpointed)
    assert [len(piece.layer) for piece in lean] == [4, 2]


def test_layers_that_work_in_place_do_so_only_in_the_network_that_was_given():
    network = TwoOutputs()
    lean = study.with_checkpoints(network, Checkpointed)
    assert not any(getattr(layer, "inplace", False) for layer in lean.modules())
    assert network.body[0][1].inplace


@pytest.mark.parametrize(
    ("verdict", "start"),
    [("faster", "compile"), ("slower", "leave"), ("not distinguishable", "no difference")],
)
def test_a_network_is_compiled_only_where_it_is_shown_to_be_faster(verdict, start):
    assert study.advice(verdict).startswith(start)
