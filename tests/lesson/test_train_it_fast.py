"""The lesson on training fast: rows of the map, its reference, the judge beside it, and Yours on
several networks.
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
from torch import nn
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock, ResNet
from yours import Encoder, cells_of_yours

from labkit.capstone import race as racing
from labkit.capstone.recipe import recipe_of
from labkit.files import root
from labkit.lesson.exercises import l11_train_it_fast as answers
from labkit.lesson.support import load_support

LESSON = "11_train_it_fast"
support = load_support("train_it_fast")
CELLS = nbformat.read(root() / "notebooks" / f"{LESSON}.ipynb", as_version=4).cells


def source_with(words):
    """The first code cell of the lesson that holds these words."""
    return next(cell.source for cell in CELLS if cell.cell_type == "code" and words in cell.source)


# --- the map ---


def row(images, microseconds):
    return support.Row(
        {}, np.asarray(images, dtype=float), 1e-6 * np.asarray(microseconds, dtype=float)
    )


def test_a_third_of_the_images_at_half_the_cost_is_six_times_as_fast():
    before = row([2700, 3000, 3300], [600, 610, 590])
    factor = support.faster(before, row(before.need / 3, 1e6 * before.cost / 2))
    assert factor.median == pytest.approx(6)
    assert (factor.low, factor.high) == pytest.approx((6, 6))
    assert factor.enough


def test_errors_of_the_two_factors_add_up_as_squares_do_on_logarithms():
    from labkit.measure.stats import mean_ratio

    before, after = (
        row([2700, 3000, 3500], [600, 640, 590]),
        row([900, 1200, 1000], [310, 290, 330]),
    )
    factors = mean_ratio(before.need, after.need), mean_ratio(before.cost, after.cost)
    halves = [np.log(factor.high / factor.median) for factor in factors]
    combined = support.faster(before, after)
    assert combined.median == pytest.approx(factors[0].median * factors[1].median)
    assert np.log(combined.high / combined.median) == pytest.approx(
        np.sqrt(halves[0] ** 2 + halves[1] ** 2)
    )
    assert np.log(combined.median / combined.low) == pytest.approx(
        np.log(combined.high / combined.median)
    )


def test_seconds_of_a_row_are_images_times_cost():
    assert row([1000, 4000], [100, 300, 200]).seconds == pytest.approx(2000 * 200e-6)


def test_trainings_side_by_side_come_back_in_the_order_of_their_jobs():
    def train(wait, value):
        time.sleep(wait)
        return value

    found = support.side_by_side(train, [(0.05, 1), (0.0, 2), (0.02, 3)], torch.device("cpu"))
    assert found.tolist() == [1, 2, 3]


def test_in_rounds_calls_each_as_often_and_leaves_out_the_first_call():
    counts = {"a": 0, "b": 0}

    def call(name):
        counts[name] += 1
        return counts[name]

    measured = support.in_rounds({name: partial(call, name) for name in counts}, rounds=4)
    assert {name: values.tolist() for name, values in measured.items()} == {
        "a": [2, 3, 4, 5],
        "b": [2, 3, 4, 5],
    }


def test_the_two_factors_of_a_change_are_said_in_words():
    before, after = row([3000, 3000], [600, 600]), row([2000, 2000], [800, 800])
    assert support.factors(before, after) == "1.50 x fewer images, each 0.75 x as cheap"


@pytest.mark.parametrize(
    "lengths", [range(2432, 4200, 128), [1500, 2048, 2049, 2050, 6000], [512, 512]]
)
def test_numbers_on_the_axis_of_images_do_not_overlap(lengths):
    marks = support.spaced(lengths)
    assert set(marks) <= set(lengths) and marks[0] == min(lengths)
    gaps = np.diff(np.log(marks))
    assert len(marks) <= 7 and (gaps >= np.log(max(lengths) / min(lengths)) / 6).all()


@pytest.mark.parametrize(
    ("factors_on_top", "goes_on"),
    [((1.5, 1.2, 0.9), "b"), ((1.5, 0.8, 0.9), "a"), ((1.5, 0.9, 1.3), "c")],
)
def test_the_fastest_recipe_on_the_way_up_goes_on_as_the_picture_shows_it(factors_on_top, goes_on):
    source = source_with("so_far = ")
    source = source[source.index("so_far = ") : source.index("support.draw_changes")]
    changes = dict.fromkeys("abc")
    on_top = {
        name: SimpleNamespace(median=factor)
        for name, factor in zip("abc", factors_on_top, strict=True)
    }
    space = {
        "np": np,
        "CHANGES": changes,
        "on_top": on_top,
        "stack": {name: name for name in changes},
    }
    exec(source, space)
    assert space["now"] == goes_on
    assert space["out"] == [name for name in changes if name > goes_on]


# --- the shortest that passed ---


def test_the_shortest_of_the_tries_that_passed_is_chosen():
    chosen = support.choose({3000: 78.0, 2500: 74.0, 2000: 75.0, 1500: 70.0}, target=75)
    assert (chosen.images, chosen.passed) == (2000, True)
    assert (
        "the shortest that passed" in chosen.report and "shortest try that passed" in chosen.words
    )


def test_where_no_try_passed_none_is_said_to_have():
    chosen = support.choose({3000: 73.0, 2500: 74.9, 2000: 70.0}, target=75)
    assert (chosen.images, chosen.passed) == (3000, False)
    assert chosen.report == "No try up to 3,000 images passed; the best got 74.9 %: start longer."
    assert "did not pass" in chosen.words


def tries_of_the_page(right_at):
    """The names of the cell that shortens a recipe, where right_at(images) is the accuracy of a
    training.
    """
    source = source_with("size, tries = ").split("predict(")[0]
    now = support.Row({"batch": 64}, np.full(6, 2000.0), np.ones(6))
    space = {
        "np": np,
        "support": support,
        "now": now,
        "seed": 0,
        "TARGET": 75,
        "device": torch.device("cpu"),
    }
    space["percent"] = lambda recipe, seed, images: right_at(images)
    exec(source, space)
    return space


def test_lengths_begin_above_the_map_and_shrink_until_one_passes(capsys):
    space = tries_of_the_page(lambda images: 76.0 if images >= 1800 else 70.0)
    assert space["chosen"].passed and space["chosen"].images == 1984
    assert max(space["tries"]) == 2944 and "start longer" not in capsys.readouterr().out


def test_where_no_length_passes_the_page_says_so_and_starts_longer(capsys):
    space = tries_of_the_page(lambda images: 76.0 if images >= 5000 else 70.0)
    printed = capsys.readouterr().out
    assert printed.startswith("No try up to 2,944 images passed")
    assert space["chosen"].passed and 5000 <= space["chosen"].images < 5300


def test_a_recipe_that_never_passes_is_never_said_to(capsys):
    space = tries_of_the_page(lambda images: 60.0)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4 and all(line.startswith("No try up to") for line in printed)
    assert not space["chosen"].passed and "did not pass" in space["chosen"].words


# --- recipes and the judge ---


def test_the_reference_of_the_page_is_the_one_of_the_judge():
    space = {"recipe_of": recipe_of}
    lines = [
        line for line in source_with("reference = {").splitlines() if line.startswith("reference ")
    ]
    exec("\n".join(lines), space)
    recipe = recipe_of({"name": "reference", "network": "vgg-small", **space["reference"]})
    assert recipe == racing.RACES["quick"].reference


@pytest.mark.slow
def test_in_this_process_the_judge_trains_the_same_weights_as_in_one_of_its_own():
    small = {
        "network": "cnn-small",
        "images": 512,
        "batch": 64,
        "learning_rate": 0.05,
        "optimizer": "sgd",
    }
    reference = recipe_of({"name": "reference", **small, "schedule": "constant"})
    against = racing.Race(
        name="small",
        dataset="fashion-mnist",
        accuracy=0.1,
        reference=reference,
        seeds=3,
        tested=500,
        seconds=60,
    )
    threads = torch.get_num_threads()
    (here,) = racing.race([], against, seeds=[5, 6, 7], apart=False)
    (apart,) = racing.race([], against, seeds=[5, 6, 7])
    assert here.accuracies == apart.accuracies
    assert torch.get_num_threads() == threads


def test_in_this_process_a_recipe_that_misses_the_target_has_no_score(monkeypatch):
    monkeypatch.setattr(
        racing, "_train_here", lambda recipe, against, seed: (1.0, 0.7 + seed / 100)
    )
    (reference,) = racing.race([], racing.RACES["quick"], seeds=[1, 2, 6], apart=False)
    assert reference.points is None
    assert reference.reason == "73.0 % on average, 75 % are asked for: 1 of 3 trainings reach it."


# --- Yours ---


class TwoOutputs(nn.Module):
    """Two heads on a body with batch norm: (n, 12) -> ((n, 3), (n, 1))."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = nn.Linear(12, 8), nn.BatchNorm1d(8)
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 1)])

    def forward(self, x):
        return tuple(head(self.norm(self.body(x)).relu()) for head in self.heads)


def pictures(labels):
    return torch.randn(len(labels), 3, 16, 16) + 2 * labels.view(-1, 1, 1, 1)


def tokens(labels):
    return (torch.randint(15, (len(labels), 12)) + 15 * labels[:, None]).clamp(max=49)


def vectors(labels):
    return torch.randn(len(labels), 12) + 2 * labels[:, None]


NETWORKS = {
    "a ResNet of torchvision": (partial(ResNet, BasicBlock, [1, 1, 1, 1], num_classes=3), pictures),
    "a transformer encoder": (Encoder, tokens),
    "two outputs": (TwoOutputs, vectors),
}


def yours(kind, monkeypatch, *, training=False, **changes):
    """Run the cells of Yours, where labkit cannot be imported; returns their names.

    changes  names of the first cell that a reader sets otherwise
    """
    network, make = NETWORKS[kind]
    torch.manual_seed(0)
    mine = ModuleType("mine")
    mine.labels = torch.arange(400) % 3
    mine.network, mine.inputs = network().train(training), make(mine.labels)
    monkeypatch.setitem(sys.modules, "mine", mine)
    before = copy.deepcopy(mine.network.state_dict())
    space = {
        "torch": torch,
        "np": np,
        "copy": copy,
        "time": time,
        "F": F,
        "nn": nn,
        "profile": "quick",
    }
    space |= {"recounted": answers.recounted}
    monkeypatch.setitem(sys.modules, "labkit", None)  # an import of it fails
    first, *others = cells_of_yours(LESSON)
    exec(first, space)
    assert set(changes) <= set(space), "a name that the first cell does not set"
    space |= changes
    for cell in others:
        exec(cell, space)
    after = mine.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before), (
        "the reader's network was changed"
    )
    assert mine.network.training == training
    return space


VERDICTS = "TAKE CHANGED: ", "KEEP USUAL: ", "UNDECIDED: ", "NO SCORE: "


def verdict_of(printed):
    """The one verdict that was printed."""
    (verdict,) = [verdict for verdict in VERDICTS if verdict in printed]
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_yours_ends_in_one_verdict_for_networks_of_several_kinds(kind, monkeypatch, capsys):
    space = yours(kind, monkeypatch, my_target=0)
    printed = capsys.readouterr().out
    assert verdict_of(printed) != "NO SCORE: " and "Both reach 0 %" in printed
    assert space["my_score"] > 0
    for name in ("usual", "changed"):
        assert f"{name}: " in printed


@pytest.mark.slow
def test_recipes_below_the_target_are_named_and_get_no_score(monkeypatch, capsys):
    space = yours("two outputs", monkeypatch, my_target=101)
    assert space["my_score"] is None
    printed = capsys.readouterr().out
    assert (
        verdict_of(printed) == "NO SCORE: " and "below 101 % on average: usual, changed." in printed
    )


@pytest.mark.slow
def test_a_network_in_training_mode_is_taken_too(monkeypatch, capsys):
    yours("two outputs", monkeypatch, my_target=0, training=True)
    assert verdict_of(capsys.readouterr().out) in VERDICTS[:3]


@pytest.mark.slow
def test_a_tenth_of_the_passes_are_fewer_seconds(monkeypatch, capsys):
    # seconds of this process: other programs would make the trainings of a moment longer
    clock = SimpleNamespace(perf_counter=time.process_time)
    usual = {"batch": 32, "learning_rate": 0.01, "passes": 20}
    recipes = {"usual": usual, "changed": usual | {"passes": 2}}
    space = yours("two outputs", monkeypatch, my_target=0, time=clock, **recipes)
    assert space["my_score"] > 2
    assert verdict_of(capsys.readouterr().out) == "TAKE CHANGED: "


@pytest.mark.slow
def test_every_field_of_a_recipe_does_what_its_name_says(monkeypatch):
    usual = {"batch": 32, "learning_rate": 0.01, "passes": 1}
    changed = usual | {"norm_momentum": 0.4, "recount": True, "channels_last": True, "size": 8}
    space = yours("a ResNet of torchvision", monkeypatch, my_target=0, usual=usual, changed=changed)
    model, plain = space["my_untrained"](changed), space["my_untrained"](usual)
    momenta = {layer.momentum for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)}
    assert momenta == {0.4} and model.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert {layer.momentum for layer in plain.modules() if isinstance(layer, nn.BatchNorm2d)} == {
        0.1
    }
    images = space["my_inputs"](changed)
    assert images.shape[2:] == (8, 8) and images.is_contiguous(memory_format=torch.channels_last)
    assert space["my_inputs"](usual) is space["inputs"]
    runs = space["my_runs"]["changed"]
    assert np.array_equal(runs[:, 1], runs[:, 2])  # it was tested recounted already


@pytest.mark.slow
def test_the_length_is_said_beforehand_and_a_limit_shortens_it(monkeypatch, capsys):
    yours("two outputs", monkeypatch, my_target=0, my_limit=1e9)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("64 inputs, 3 trainings of each recipe: about ")
    space = yours("two outputs", monkeypatch, my_target=0, my_limit=0)
    assert "too long for my_limit: 16 inputs instead" in capsys.readouterr().out
    assert space["count"] == 16 and len(space["my_runs"]["usual"]) == 3


@pytest.mark.slow
def test_few_steps_with_batch_norm_are_told_to_count_anew_and_without_it_are_not(
    monkeypatch, capsys
):
    few = {"my_target": 0, "usual": {"batch": 32, "learning_rate": 0.01, "passes": 1}, "tries": 4}
    space = yours("a ResNet of torchvision", monkeypatch, **few)
    costly = []
    for runs in space["my_runs"].values():
        lost = runs[:, 2] - runs[:, 1]
        costly.append(lost.mean() > 2 * lost.std(ddof=1) / 2 + 1)
    assert capsys.readouterr().out.count("batch norm's statistics cost it") == sum(costly)
    space = yours("a transformer encoder", monkeypatch, **few)
    assert "batch norm's statistics cost it" not in capsys.readouterr().out
    assert np.array_equal(space["my_runs"]["usual"][:, 1], space["my_runs"]["usual"][:, 2])


def judged(capsys, usual, changed):
    """What the last cell prints of (seconds, as the recipe ends, anew) per training of both
    recipes.
    """
    space = {"np": np, "my_target": 50, "tries": len(usual)}
    space["my_runs"] = {"usual": np.array(usual), "changed": np.array(changed)}
    exec(cells_of_yours(LESSON)[-1], space)
    return capsys.readouterr().out


SLOW = [(2.0, 60, 60), (2.1, 61, 61), (1.9, 59, 59)]
FAST = [(1.0, 60, 60), (1.05, 61, 61), (0.95, 59, 59)]
LOW = [(0.1, 49, 60), (0.1, 50, 60), (0.1, 50, 60)]


@pytest.mark.parametrize(
    ("usual", "changed", "verdict", "words"),
    [
        (SLOW, FAST, "TAKE CHANGED: ", "2.00 times as fast"),
        (FAST, SLOW, "KEEP USUAL: ", "0.50 times as fast"),
        (SLOW, SLOW[::-1], "UNDECIDED: ", "Both reach 50 %"),
        (SLOW, LOW, "NO SCORE: ", "average: changed."),
        (LOW, FAST, "NO SCORE: ", "average: usual."),
        (LOW, LOW, "NO SCORE: ", "average: usual, changed."),
    ],
)
def test_the_verdict_follows_the_numbers(usual, changed, verdict, words, capsys):
    printed = judged(capsys, usual, changed)
    assert verdict_of(printed) == verdict and words in printed
