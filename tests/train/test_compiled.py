"""`compile` with images that grow: a form of the network for each size, all of them compiled."""

import functools

import pytest
import torch
from made_up import network, shapes
from torch import nn

from labkit.errors import Unavailable
from labkit.train import TrainConfig, fit


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch):
    """Dynamo alone, which counts the forms: what it hands on is run as it is, to save the
    seconds of a compiler.
    """
    import torch._dynamo

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    monkeypatch.setattr("labkit.device.require_compiler", lambda device: None)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


def trained(model, images, **settings):
    test = shapes(20, side=24, seed=1)
    return fit(model, (images, test), TrainConfig(batch=20, compile=True, **settings), device="cpu")


def test_every_one_of_twelve_sizes_is_compiled(quick_compiler):
    history = trained(network(), shapes(40, side=24), epochs=12, first_size=8)
    assert quick_compiler["stats"]["unique_graphs"] == 12  # 8 with torch's own limit
    assert history.compiled == len(history.accuracy) == 12


def test_the_limits_of_torch_are_as_before_afterwards():
    limits = torch._dynamo.config
    before = (
        limits.recompile_limit,
        limits.accumulated_recompile_limit,
        limits.fail_on_recompile_limit_hit,
    )
    trained(network(), shapes(20, side=24), epochs=2, first_size=8)
    assert before == (
        limits.recompile_limit,
        limits.accumulated_recompile_limit,
        limits.fail_on_recompile_limit_hit,
    )


def of_width(width):
    layers = [nn.Conv2d(1, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4 * width, 4))


def test_a_third_network_is_compiled_for_its_sizes_as_the_first(quick_compiler):
    """torch counts the forms of a function in the whole process, whatever network it is given."""
    for number in range(1, 4):
        history = trained(of_width(2 * number), shapes(40, side=24), epochs=12, first_size=8)
        assert history.compiled == 12
        assert quick_compiler["stats"]["unique_graphs"] == 12 * number


def test_growing_images_with_a_last_batch_that_is_smaller_stay_compiled(quick_compiler):
    history = trained(network(), shapes(50, side=24), epochs=12, first_size=8)
    assert history.compiled == 12


def test_a_training_of_one_size_has_one_form(quick_compiler):
    assert trained(network(), shapes(40, side=24), epochs=3).compiled == 3
    assert quick_compiler["stats"]["unique_graphs"] == 1


def test_without_compile_no_epoch_counts_as_compiled():
    assert fit(network(), shapes(20), TrainConfig(batch=20, epochs=2), device="cpu").compiled == 0


class Restless(nn.Module):
    """A network that no form fits twice: its answer depends on a text that grows with each call.

    A text, not a number: torch may make one form for all numbers, which is what fits every call.
    """

    def __init__(self):
        super().__init__()
        self.inner, self.calls = network(), ""

    def forward(self, x):
        self.calls += "."
        return self.inner(x) * (1 + 0.001 * len(self.calls))


def test_a_training_that_torch_gives_up_ends_in_words():
    import torch._dynamo

    with (
        # torch's own; importing timm.optim raises it for the process
        torch._dynamo.config.patch(recompile_limit=8),
        pytest.raises(Unavailable, match=r"gives this training up[\s\S]*without compile"),
    ):
        trained(Restless(), shapes(400, side=24), epochs=1)


class Unseen(nn.Module):
    """A network that torch.compile is told to leave alone."""

    def __init__(self):
        super().__init__()
        self.inner = network()

    @torch.compiler.disable
    def forward(self, x):
        return self.inner(x)


def test_a_network_of_which_nothing_is_compiled_is_refused():
    with pytest.raises(
        Unavailable, match=r"compiled nothing of this network[\s\S]*TORCHDYNAMO_DISABLE"
    ):
        trained(Unseen(), shapes(20, side=24), epochs=1)


def test_where_compiling_is_switched_off_from_outside_it_is_said():
    import torch._dynamo

    with (
        torch._dynamo.config.patch(disable=True),  # as TORCHDYNAMO_DISABLE=1 does
        pytest.raises(Unavailable, match="compiled nothing of this network"),
    ):
        trained(network(), shapes(20, side=24), epochs=1)


def test_a_network_that_is_trained_a_second_time_takes_the_form_of_the_first():
    model = network()
    assert trained(model, shapes(20, side=24), epochs=1).compiled == 1
    assert trained(model, shapes(20, side=24), epochs=1).compiled == 1


class Broken(nn.Module):
    """A network with a place that torch.compile cannot see through."""

    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        torch._dynamo.graph_break()
        return self.inner(x)


def test_graph_breaks_are_counted():
    assert trained(network(), shapes(20, side=24), epochs=1).graph_breaks == 0
    history = trained(Broken(), shapes(20, side=24), epochs=1)
    assert history.compiled == 1
    assert history.graph_breaks >= 1  # torch counts one for each function that it had opened


def test_a_compiler_that_fails_is_said_in_words(monkeypatch):
    def fails(graph, inputs):
        raise OSError("no such compiler")

    whole = torch.compile.func
    monkeypatch.setattr(torch, "compile", functools.partial(whole, backend=fails))
    with pytest.raises(
        Unavailable, match=r"compiler behind torch.compile failed[\s\S]*no such compiler"
    ):
        trained(network(), shapes(20, side=24), epochs=1)
