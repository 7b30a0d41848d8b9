"""The lesson on compiling and half precision: published beside own numbers, the board, and Yours
on three networks.
"""

import copy
import sys
import time
from functools import partial
from types import ModuleType, SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
from torchvision.models.resnet import BasicBlock, ResNet
from yours import Encoder, TwoOutputs, cells_of_yours

from labkit.files import root
from labkit.lesson.exercises import l08_compile_and_amp as answers
from labkit.lesson.support import load_support
from labkit.measure import in_turn
from labkit.measure.stats import Interval
from labkit.measure.turns import RatioInTurn, Times

LESSON = "08_compile_and_amp"
support = load_support("compile_and_amp")


# --- tables ---


def test_own_epochs_stand_beside_the_eight_published_numbers_and_the_recorded_ones():
    table = support.published_table({"vanilla": 0.5, "AMP": 1.25}, {"vanilla": 76.0, "AMP": 75.94})
    assert list(table.index) == ["vanilla", "TC", "AMP", "TC + AMP"]
    assert list(table["here", "epoch"]) == ["0.5 s", "–", "1.25 s", "–"]
    assert list(table["here", "right"]) == ["76 %", "–", "75.94 %", "–"]
    (known,) = [
        place for place in table.columns.get_level_values(0).unique() if "RTX 4090" in place
    ]
    assert list(table[known, "epoch"]) == ["150.9 s", "145.7 s", "137 s", "111 s"]
    assert list(table[known, "right"]) == ["46.53 %", "46.16 %", "47.86 %", "47.16 %"]
    (recorded,) = [
        place for place in table.columns.get_level_values(0).unique() if "recorded" in place
    ]
    assert list(table[recorded, "epoch"]) == ["153 s", "154.8 s", "116 s", "119.5 s"]


def test_a_sentence_says_where_both_together_win_and_where_one_alone_does():
    recorded, known = support.both_together().splitlines()
    assert "AMP 1.32 x" in recorded and "TC + AMP 1.28 x" in recorded
    assert recorded.endswith("both together do not win there, AMP alone does.")
    assert "TC + AMP 1.36 x (product 1.14)" in known and known.endswith("both together win.")


def test_what_a_compiled_step_still_calls_is_told_from_what_it_may_fuse():
    stays = [
        "aten::mm",
        "aten::addmm",
        "aten::mkldnn_convolution",
        "aten::convolution_backward",
        "mkldnn::_linear",
    ]
    stays += ["aten::cudnn_convolution", "aten::_scaled_dot_product_flash_attention"]
    stays += ["Optimizer.step#SGD.step", "aten::_fused_adamw_", "aten::_foreach_add_"]
    assert [name for name in stays if not support.stays(name)] == []
    others = [
        "aten::mul",
        "aten::gelu",
        "aten::native_batch_norm",
        "aten::copy_",
        "MmBackward0",
        "aten::sum",
    ]
    assert [name for name in others if support.stays(name)] == []


def test_the_recorded_lines_of_amp_cross_1_on_machines_with_products_of_16_bits():
    board = support.recorded_amp()
    assert {name: list(line) for name, line in board.items()} == {
        "AMD EPYC, width 64": [16, 64, 256, 1024],
        "Intel, width 64": [16, 64, 256, 1024],
        "Intel, width 256": [64, 256],
    }
    for line in board.values():
        smallest, *_, largest = line.values()
        assert smallest.high < 1 < largest.low


def test_the_table_of_prices_divides_the_difference_between_products_and_converting():
    lines = {"vanilla": (1e-3, 2e-6), "AMP": (2e-3, 5e-6), "16 bits throughout": (1.25e-3, 4e-6)}
    table = support.price_table(lines)
    assert list(table.loc["AMP"]) == ["2e+03", "5"]
    assert list(table.loc["AMP's products"]) == ["+250", "+2"]
    assert list(table.loc["AMP's converting"]) == ["+750", "+1"]


def ratio(low, median, high):
    return Interval(low, high, 12, median)


@pytest.mark.parametrize(
    ("best", "verdict"),
    [
        (ratio(1.4, 1.5, 1.6), "is reached"),
        (ratio(1.27, 1.33, 1.4), "may or may not be reached"),
        (ratio(1.2, 1.3, 1.35), "is not reached"),
    ],
)
def test_the_goal_is_reached_with_a_whole_interval_open_inside_one_and_else_not(best, verdict):
    board = {"TC": {64: ratio(0.9, 1.0, 1.1), 1024: best}, "AMP": {1024: ratio(0.1, 0.2, 0.3)}}
    sentence = support.goal(board)
    assert (
        f"1.36 times as fast, {verdict}: the best is TC with 1,024 rows, {best.median:.2f}"
        in sentence
    )


# --- Yours ---

NETWORKS = {
    "a ResNet of torchvision": (
        partial(ResNet, BasicBlock, [1, 1, 1, 1], num_classes=10),
        lambda: torch.randn(64, 3, 16, 16),
    ),
    "a transformer encoder": (Encoder, lambda: torch.randint(50, (64, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(64, 12)),
}


def cell_with(words):
    """The first code cell of the lesson that holds these words."""
    cells = nbformat.read(root() / "notebooks" / f"{LESSON}.ipynb", as_version=4).cells
    return next(cell.source for cell in cells if cell.cell_type == "code" and words in cell.source)


def definition(name):
    """A function of the lesson as source: from its `def` to the next line at the margin."""
    lines = cell_with(f"def {name}(").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"def {name}("))
    end = next(
        (n for n in range(start + 1, len(lines)) if lines[n] and not lines[n].startswith(" ")),
        len(lines),
    )
    return "\n".join(lines[start:end])


def yours(
    kind,
    monkeypatch,
    *,
    profile="quick",
    no_compiler=None,
    native=False,
    training=False,
    in_turn=in_turn,
):
    """Run the cells of Yours, where labkit cannot be imported; returns their names."""
    network, inputs = NETWORKS[kind]
    torch.manual_seed(0)
    mine = ModuleType("mine")
    mine.network, mine.inputs = network().train(training), inputs()  # no labels
    monkeypatch.setitem(sys.modules, "mine", mine)
    before = copy.deepcopy(mine.network.state_dict())
    space = {
        "torch": torch,
        "np": np,
        "copy": copy,
        "time": time,
        "partial": partial,
        "in_turn": in_turn,
    }
    space |= {
        "support": support,
        "break_even": answers.break_even,
        "native": native,
        "profile": profile,
    }
    space |= {"no_compiler": no_compiler, "lab": SimpleNamespace(choose=lambda quick, lab: 0.2)}
    for name in ("costs", "ceiling"):
        exec(definition(name), space)
    monkeypatch.setitem(sys.modules, "labkit", None)  # an import of it fails
    for cell in cells_of_yours(LESSON):
        exec(cell, space)
    after = mine.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before), (
        "the reader's network was changed"
    )
    assert mine.network.training == training
    return space


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_yours_ends_in_advice_on_both_switches_for_networks_of_several_kinds(
    kind, monkeypatch, capsys
):
    space = yours(kind, monkeypatch)
    amp, compiling = capsys.readouterr().out.splitlines()[-2:]
    assert amp == "AMP, 4 inputs: " + space["advise"](space["my_times"][4]["AMP"])
    assert compiling.startswith("torch.compile, at most ") and compiling.endswith(space["advice"])
    assert 1 < space["room"] < 1000


@pytest.mark.slow
def test_a_network_in_training_is_taken_too_and_where_products_are_not_imitated_more_inputs(
    monkeypatch, capsys
):
    space = yours("two outputs", monkeypatch, native=True, training=True)
    assert list(space["my_times"]) == [4, 16, 64]
    assert "AMP, 64 inputs: " in capsys.readouterr().out


SAID = {
    "a fivefold slowdown from six pairs": (
        RatioInTurn(0.167, 0.225, 6, 0.19, floor=0.05),
        "leave it off",
    ),
    "compiled, a fifth slower": (RatioInTurn(0.79, 0.83, 30, 0.81, floor=0.02), "leave it off"),
    "a third faster": (RatioInTurn(1.25, 1.41, 12, 1.33, floor=0.1), "turn it on"),
    "an interval over 1": (RatioInTurn(0.97, 1.3, 12, 1.14, floor=0.02), "not sure"),
    "faster by less than the noise": (RatioInTurn(1.03, 1.06, 30, 1.04, floor=0.08), "not sure"),
    "too few pairs": (RatioInTurn(-np.inf, np.inf, 4, 0.19, floor=np.inf), "too few samples"),
}


@pytest.mark.parametrize("case", SAID)
def test_the_advice_is_true_to_its_numbers(case):
    space = {"np": np}
    exec(definition("advise"), space)
    measured, words = SAID[case]
    assert space["advise"](measured).startswith(words)


def in_turn_as_if(plain, compiled):
    """in_turn that reports these seconds for the first call and for the second, in eight rounds,
    without timing.
    """

    def in_turn(calls, **options):
        for call in calls.values():
            call()
        return Times(tuple(calls), np.tile([plain, compiled, plain], (8, 1)))

    return in_turn


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((1.0, 1.25), "0.80 x (0.80 to 0.80): leave it off"),
        ((1.0, 0.5), "2.00 x (2.00 to 2.00): turn it on for trainings of more than"),
    ],
)
def test_compiling_ends_in_an_advice_that_follows_what_was_measured(
    seconds, words, monkeypatch, capsys
):
    compile_ = partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", lambda network, **options: compile_(network))
    yours("two outputs", monkeypatch, profile="lab", in_turn=in_turn_as_if(*seconds))
    assert words in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
def test_without_a_compiler_yours_stays_with_the_ceiling(monkeypatch, capsys):
    yours("two outputs", monkeypatch, profile="lab", no_compiler="there is none")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("torch.compile, at most ") and last.endswith(
        ("leave it off", "in a long training")
    )


def test_the_ceiling_leaves_out_what_the_compiler_may_fuse_and_keeps_products_and_optimizer(
    monkeypatch,
):
    times = {"aten::mm": 30, "aten::_fused_adamw_": 20, "aten::mul": 45, "aten::copy_": 5}
    events = [
        SimpleNamespace(key=key, self_device_time_total=0, self_cpu_time_total=time)
        for key, time in times.items()
    ]
    space = {"torch": torch, "support": support}
    exec(definition("ceiling"), space)
    monkeypatch.setattr(torch.profiler.profile, "key_averages", lambda self: events)
    assert space["ceiling"](lambda: None) == pytest.approx(2.0)
