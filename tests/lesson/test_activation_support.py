"""What the lesson on activations prints and draws: the compiler's loop, the board, published
beside own numbers.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from labkit.lesson.support import load_support
from labkit.measure.stats import Interval
from labkit.measure.turns import RatioInTurn, Times

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
    assert table.loc["TC + GELU", ("batch 64", "here")] == "–"
    assert "TC + yours" not in table.index, "a row without any number"
    plainer = study.inference_table(times, accuracy, with_recorded=False)
    assert set(table.columns) - set(plainer.columns) == {("accuracy (%)", "recorded")}


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
    slow = times_of(**{"1": 1.0, "1, TC": 0.9, "6": 1.0, "6, TC": 0.6})
    quick = times_of(**{"1": 1.0, "1, TC": 0.9, "6": 1.0, "6, TC": 0.54})
    runs = {"in series": slow, "in series, no guards": quick}
    assert study.without_guards(runs, [1, 6]) == (
        "Skipping the guards saves 10% with 6 blocks of a compiled call's time."
    )
    assert "nothing" in study.without_guards(runs, [1])


def test_one_image_is_told_as_a_multiple_of_the_plain_call_as_in_the_published_table():
    times = times_of(**{"1": 1e-3, "1, TC": 5e-4, "x + 1, TC": 2e-5})
    table = study.one_image_table({"in series": times}, [1])
    assert table.loc["in series", "1 block: compiled (x plain)"].startswith("0.50")
    assert table.loc["in series", "compiled x + 1 (µs)"] == "20"


def test_columns_of_dashes_are_left_out():
    table = pd.DataFrame({"here": ["1", "–"], "recorded": ["–", "–"]})
    assert list(study.without_dashes(table)) == ["here"]


def test_columns_of_a_graph_go_by_the_longest_path():
    x = torch.ones(3, requires_grad=True)
    columns = study._columns_of(x.exp() * x)
    assert [len(column) for column in columns] == [1, 1, 1]


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


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def chain():
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True)]
    layers += [nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten()]
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (resnet, (2, 3, 32, 32)),
        (Transformer, (2, 5, 8)),
        (encoder, (2, 5, 8)),
        (chain, (2, 3, 9, 9)),
        (TwoOutputs, (3, 8)),
    ],
)
def test_a_network_has_the_same_answers_and_gradients_with_each_cut_of_it(build, shape):
    torch.manual_seed(0)
    network, x = build().eval(), torch.randn(shape)
    expected = study.first_tensor(network(x))
    expected.square().sum().backward()
    for names in study.cuts(network).values():
        lean = study.with_checkpoints(network, names)
        lean.zero_grad()
        output = study.first_tensor(lean(x))
        assert torch.allclose(output, expected, atol=1e-5)
        output.square().sum().backward()
        for plain, rebuilt in zip(network.parameters(), lean.parameters(), strict=True):
            assert (plain.grad is None) == (rebuilt.grad is None)
            if plain.grad is not None:
                assert torch.allclose(plain.grad, rebuilt.grad, atol=1e-3, rtol=1e-3)


def test_cuts_go_from_the_whole_network_to_its_blocks_and_into_them():
    assert list(study.cuts(encoder())) == [
        "1 x TransformerEncoder",
        "3 x TransformerEncoderLayer",
        "3 x MultiheadAttention",
    ]
    blocks = study.cuts(Transformer())["3 x TransformerEncoderLayer"]
    assert blocks == ["blocks.0", "blocks.1", "blocks.2"]


def test_a_long_sequential_network_is_cut_into_parts():
    assert list(study.cuts(nn.Sequential(*[nn.Linear(3, 3) for _ in range(9)]))) == [
        "1 x Sequential in 3 parts"
    ]


def test_two_cuts_of_the_same_words_both_stay():
    nested = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(3, 3))))
    assert list(study.cuts(nested)) == ["1 x Sequential", "1 x Sequential, deeper"]


def test_a_parent_that_reads_the_fields_of_a_checkpointed_layer_finds_them():
    lean = study.with_checkpoints(encoder(), ["layers.0"])
    assert isinstance(lean.layers[0], nn.TransformerEncoderLayer)
    assert lean.layers[0].self_attn.batch_first


def test_one_checkpoint_over_all_has_the_peak_of_none_and_one_per_block_a_lower_one():
    torch.manual_seed(0)
    network, x = encoder().eval(), torch.randn(64, 50, 8)

    def peak(net):
        return study.peak_bytes(lambda: net(x).sum().backward())

    plain, whole, blocks = (
        peak(net) for net in (network, *(study.with_checkpoints(network, names) for names in CUTS))
    )
    assert whole == pytest.approx(plain, rel=0.1)
    assert blocks < 0.7 * plain


CUTS = [[""], ["layers.0", "layers.1", "layers.2"]]


def test_the_peak_counts_what_lives_at_one_time():
    def one_after_the_other():
        for _ in range(3):
            torch.ones(1000, 256)

    peak = study.peak_bytes(one_after_the_other)
    assert 1_024_000 <= peak < 1.2 * 1_024_000


def test_layers_that_work_in_place_do_so_only_in_the_network_that_was_given():
    network = TwoOutputs()
    lean = study.with_checkpoints(network, ["body"])
    assert not any(getattr(layer, "inplace", False) for layer in lean.modules())
    assert network.body[0][1].inplace


@pytest.mark.parametrize(
    ("low", "high", "start"),
    [
        (1.1, 1.3, "compile"),
        (0.8, 0.9, "leave"),
        (0.9, 1.1, "no difference"),
        (1.02, 1.06, "but the plain call, timed a second time, differs from itself by up to 5%"),
    ],
)
def test_a_network_is_compiled_only_where_it_is_shown_to_be_faster(low, high, start):
    ratio = RatioInTurn(low, high, 20, (low + high) / 2, floor=0.05)
    assert study.advice(ratio).startswith(start)
