"""The lesson on what limits speed: counts of layers, its last section on several networks, and
its pictures.
"""

import ast
import itertools
import sys
import time
from functools import partial
from types import ModuleType

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
import torchvision
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from yours import Encoder, TwoOutputs, cells_of_yours

from labkit.files import root
from labkit.lesson.exercises import l03_what_limits_speed as reference
from labkit.lesson.support import load_support

study = load_support("what_limits_speed")
LESSON = "03_what_limits_speed"
CODE = [
    cell.source
    for cell in nbformat.read(root() / "notebooks" / f"{LESSON}.ipynb", as_version=4).cells
]
MACHINE = {"arithmetic": 1e11, "memory": 2e10, "overhead": 1e-6}
NETWORKS = {
    "a ResNet of torchvision": (
        partial(torchvision.models.resnet18, num_classes=10),
        lambda: torch.randn(8, 3, 32, 32),
    ),
    "a transformer encoder": (Encoder, lambda: torch.randint(50, (8, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(8, 12)),
    "no layer of these kinds": (
        lambda: nn.Sequential(nn.Flatten(), nn.ReLU()),
        lambda: torch.randn(8, 12),
    ),
    "one layer called twice": (
        lambda: nn.Sequential(*[nn.Linear(12, 12)] * 2),
        lambda: torch.randn(8, 12),
    ),
}


def function_of_the_page(name, space):
    """Bind a function that the page defines, and return it."""
    source = next(
        source for source in CODE if f"def {name}(" in source and "your code" not in source
    )
    node = next(node for node in ast.parse(source).body if getattr(node, "name", None) == name)
    exec(ast.unparse(node), space)
    return space[name]


def flops(network, x):
    with FlopCounterMode(display=False) as counter:
        network(x)
    return counter.get_total_flops()


# --- counts ---


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(30, 7), (5, 30)),
        (nn.Conv1d(4, 6, 5, stride=2), (3, 4, 40)),
        (nn.Conv2d(8, 12, 3, padding=1, groups=4), (2, 8, 9, 9)),
        (nn.Conv2d(3, 5, (1, 7), dilation=2), (2, 3, 20, 20)),
    ],
    ids=str,
)
def test_the_operations_of_a_layer_are_those_that_torch_counts(layer, shape):
    x = torch.randn(shape)
    operations, moved, calls = reference.layer_task(layer, x, layer(x))
    assert (operations, calls) == (flops(layer, x), 1)
    assert moved == 4 * (
        x.numel() + layer(x).numel() + sum(weight.numel() for weight in layer.parameters())
    )


def test_the_task_of_a_network_is_the_sum_of_its_layers():
    space = {"np": np, "layer_task": reference.layer_task}
    network_task = function_of_the_page("network_task", space)
    network = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    x = torch.randn(3, 6)
    with torch.no_grad():
        operations, moved, calls = network_task(network, x)
    assert operations == flops(network, x)
    assert calls == 3
    # the first layer, then an activation that reads and writes, then the last layer
    assert moved == 4 * ((18 + 30 + 5 + 15) + (15 + 15) + (15 + 10 + 2 + 6))


def test_the_table_is_empty_where_nothing_is_measured_and_filled_where_it_is():
    space = {
        "pd": pd,
        "least_seconds": reference.least_seconds,
        "machine": MACHINE,
        "measured": {"filled": 6e-6},
    }
    board = function_of_the_page("board", space)
    table = board({"filled": (4e5, 1e4, 1), "open": (1e4, 6e4, 1)})
    columns = ["waits for", "least (µs)", "measured (µs)", "times the least"]
    assert list(table.loc["filled", columns]) == ["arithmetic", 4.0, 6.0, 1.5]
    assert list(table.loc["open", columns]) == ["memory", 3.0, "", ""]


def test_a_result_above_the_roof_is_shown_and_not_refused():
    """A convolution at twice the rate of the product that the roof was taken from is a true
    result.
    """
    above = {"a convolution": {"3 × 3": ((2e9, 1e6, 1), 1e-2)}}
    figure = study.draw_roof(above, MACHINE, reference.least_seconds)
    drawn = [
        line.get_ydata()[0]
        for line in figure.axes[0].lines
        if line.get_marker() == "o" and len(line.get_ydata())
    ]
    assert drawn == [2e11]
    assert max(drawn) > MACHINE["arithmetic"]


def test_the_ridge_is_where_memory_and_arithmetic_take_equally_long():
    assert study.ridge(MACHINE) == 5
    assert reference.least_seconds(5e9, 1e9, 1, MACHINE)[0] == pytest.approx(1e9 / 2e10)


def test_the_roof_rises_with_memory_and_is_level_from_the_ridge_on():
    board = {"tasks": {"left": ((1e6, 1e6, 1), 1e-3), "right": ((1e9, 1e6, 1), 1e-1)}}
    figure = study.draw_roof(board, MACHINE, reference.least_seconds)
    roof = next(line for line in figure.axes[0].lines if line.get_label() == "roof")
    intensity, speed = roof.get_data()
    np.testing.assert_allclose(speed, np.minimum(2e10 * intensity, 1e11))


def test_the_line_over_lengths_is_the_larger_of_overhead_and_memory(monkeypatch):
    shown = []
    monkeypatch.setattr(study, "display", shown.append)
    study.draw_lengths({1: 2e-6, 10_000_000: 5e-3}, MACHINE, 2**25)
    [figure] = shown
    line = next(
        line for line in figure.axes[0].lines if line.get_label() == "the larger of both limits"
    )
    count, microseconds = line.get_data()
    np.testing.assert_allclose(microseconds, np.maximum(1, 8e6 * count / 2e10))


# --- the last section ---


@pytest.fixture
def run_yours(monkeypatch):
    def run(network, inputs, cache=2**25):
        torch.manual_seed(0)
        mine = ModuleType("mine")
        mine.network, mine.inputs = network(), inputs()
        clock = {"wait": lambda: None, "now": time.thread_time}
        space = {"nn": nn, "np": np, "pd": pd, "torch": torch, "partial": partial, **clock}
        space |= {name: getattr(reference, name) for name in ("layer_task", "least_seconds")}
        space |= {
            "stopwatch": partial(reference.seconds_per_call, **clock),
            "machine": MACHINE,
            "cache": cache,
        }
        space |= {"device": torch.device("cpu"), "row": torch.ones(2**23)}
        monkeypatch.setitem(sys.modules, "mine", mine)
        monkeypatch.setitem(sys.modules, "labkit", None)  # an import of it fails
        with torch.no_grad():
            for source in cells_of_yours(LESSON):
                exec(source, space)
        return space

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_the_cells_of_yours_end_in_a_verdict_without_labkit(kind, run_yours, capsys):
    space = run_yours(*NETWORKS[kind])
    printed = capsys.readouterr().out
    assert "ms for 1 of your inputs" in printed
    assert ("take a profile" if kind.startswith("no layer") else "times the least") in printed
    assert space["gain"] > 0
    assert not any(
        layer._forward_hooks or layer._forward_pre_hooks for layer in space["network"].modules()
    )


@pytest.mark.slow
def test_every_convolution_and_linear_layer_of_a_resnet_is_timed_with_its_own_work(run_yours):
    space = run_yours(*NETWORKS["a ResNet of torchvision"])
    kinds = nn.Linear, nn.Conv2d, nn.BatchNorm2d
    layers = [name for name, layer in space["network"].named_modules() if isinstance(layer, kinds)]
    assert sorted(space["spent"]) == sorted(layers)
    assert sum(task[0] for task in space["my_tasks"].values()) == flops(
        space["network"], space["batch"]
    )


@pytest.mark.slow
def test_a_network_of_many_small_layers_waits_for_overhead(run_yours):
    """A bare call of a convolution takes longer than the arithmetic of four channels on an 8 × 8
    image.
    """

    def many_small_layers():
        blocks = [(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(10)]
        return nn.Sequential(*itertools.chain(*blocks))

    space = run_yours(many_small_layers, lambda: torch.randn(8, 4, 8, 8))
    assert {limit for _, limit in space["bounds"].values()} == {"overhead"}
    assert "overhead is the longest part" in space["verdict"](space["whole"], space["bounds"])
    for name, (least, _) in space["bounds"].items():
        assert least == space["bare"][space["kinds"][name]]


@pytest.mark.slow
@pytest.mark.parametrize(("cache", "source"), [(2**25, "cache"), (2**10, "memory")])
def test_weights_that_fit_into_the_cache_do_not_wait_for_memory(cache, source, run_yours):
    space = run_yours(
        lambda: nn.Sequential(nn.Linear(1_500, 1_500)), lambda: torch.randn(8, 1_500), cache
    )
    [(least, limit)] = space["bounds"].values()
    assert limit == source
    bandwidth = space["my_machine"]["memory"]
    assert least == pytest.approx(4 * (1_500 * 1_500 + 3 * 1_500) / bandwidth)
    assert (bandwidth == MACHINE["memory"]) == (source == "memory")


@pytest.mark.slow
def test_a_norm_reads_and_writes_and_counts_no_product(run_yours):
    space = run_yours(lambda: nn.Sequential(nn.LayerNorm(30)), lambda: torch.randn(8, 5, 30))
    [task] = space["my_tasks"].values()
    np.testing.assert_array_equal(task, [0, 4 * 2 * 150, 1])


@pytest.mark.slow
def test_a_layer_that_is_called_twice_in_a_pass_counts_twice(run_yours):
    space = run_yours(*NETWORKS["one layer called twice"])
    assert sum(task[0] for task in space["my_tasks"].values()) == flops(
        space["network"], space["batch"]
    )


@pytest.mark.parametrize(
    ("whole", "bounds", "words"),
    [
        (
            3.0,
            {"a": (1.0, "memory"), "b": (0.2, "arithmetic")},
            ("2.5 times the least", "memory", "how it is run"),
        ),
        (
            1.5,
            {"a": (0.4, "memory"), "b": (0.9, "arithmetic")},
            ("1.2 times the least", "smaller network"),
        ),
        (1.5, {"a": (1.0, "overhead"), "b": (0.2, "arithmetic")}, ("overhead", "fewer calls")),
        (0.9, {"a": (1.0, "memory")}, ("0.9 times the least", "cache")),
        (
            1.5,
            {"a": (1.0, "cache"), "b": (0.2, "memory")},
            ("cache is the longest part", "smaller numbers"),
        ),
        (1.0, {}, ("profile",)),
    ],
    ids=[
        "far away",
        "near it, by arithmetic",
        "near it, by overhead",
        "below it",
        "near it, by cache",
        "no layers",
    ],
)
def test_the_verdict_names_how_far_the_network_is_from_its_bound_and_what_to_change(
    whole, bounds, words
):
    space = {}
    exec(next(source for source in cells_of_yours(LESSON) if "def verdict(" in source), space)
    said = space["verdict"](whole, bounds)
    assert [word for word in words if word not in said] == []
