"""The lesson on smaller networks: functions against second implementations, claims with faults,
pictures.
"""

import ast
import copy
from functools import partial
from itertools import combinations, pairwise

import numpy as np
import pages
import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.lr_scheduler import OneCycleLR

from labkit import compress
from labkit.data import load
from labkit.lesson.exercises import l16_smaller_networks as reference
from labkit.lesson.support import load_support
from labkit.measure.stats import Interval, mean_interval
from labkit.measure.turns import Times
from labkit.models.trained import trained

study = load_support("smaller_networks")
SOLVED = ("remove_channels", "distillation_loss", "evened", "teacher_verdict")
STATEMENTS = pages.statements_of("16_smaller_networks")
judged = partial(pages.judged, STATEMENTS)


def page(**names):
    """The functions of the page, with the answers to its exercises; `names` are what the page
    has bound.
    """
    bound = {
        "copy": copy,
        "np": np,
        "torch": torch,
        "nn": nn,
        "_BatchNorm": _BatchNorm,
        "OneCycleLR": OneCycleLR,
    }
    bound |= {
        "pairwise": pairwise,
        "partial": partial,
        "study": study,
        "seed": 0,
        "seeds": range(2),
        "PASSES": 2,
    }
    for statement in STATEMENTS:
        if isinstance(statement, ast.FunctionDef):
            exec(ast.unparse(statement), bound)
    bound |= {name: getattr(reference, name) for name in SOLVED}
    bound |= names
    return bound


def chain(bias=False):
    """A chain of layers on images (n, 1, 8, 8), its batch norms with statistics and scales of
    their own.
    """
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3, padding=1, bias=bias), nn.BatchNorm2d(8), nn.ReLU()]
    layers += [nn.Conv2d(8, 8, 3, stride=2, bias=bias), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()]
    layers += [nn.Linear(72, 16, bias=bias), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)]
    for layer in layers:
        if isinstance(layer, _BatchNorm):
            nn.init.uniform_(layer.weight, 0.2, 2)
            nn.init.uniform_(layer.running_var, 0.2, 2)
            nn.init.normal_(layer.running_mean)
    return nn.Sequential(*layers).eval()


def task(count=64):
    """(images, labels): three classes that differ in their mean."""
    rng = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % 3
    return torch.randn(count, 1, 8, 8, generator=rng) + labels.view(-1, 1, 1, 1), labels


@pytest.mark.parametrize("bias", [False, True])
def test_the_narrow_network_answers_as_that_of_torch_pruning(bias):
    pytest.importorskip("torch_pruning")
    bound, network, (images, _) = page(), chain(bias), task()
    narrow = bound["narrow"](network, bound["smallest"])
    theirs = compress.without_channels(network, images[:1], 0.5, scope="layer", multiple=1)
    with torch.no_grad():
        torch.testing.assert_close(narrow(images), theirs(images), atol=1e-5, rtol=1e-4)
    assert sum(weight.numel() for weight in narrow.parameters()) < 0.3 * sum(
        w.numel() for w in network.parameters()
    )


def test_new_statistics_are_those_of_the_images_and_no_weight_moves():
    images, _ = task()
    network = chain()
    before = copy.deepcopy(network.state_dict())
    renormed = page(images=images)["renormed"](network)
    inputs = network[0](images).transpose(0, 1).flatten(1)
    torch.testing.assert_close(renormed[1].running_mean, inputs.mean(1), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(renormed[1].running_var, inputs.var(1), atol=1e-4, rtol=1e-3)
    assert all(torch.equal(weight, network.state_dict()[name]) for name, weight in before.items())
    assert all(map(torch.equal, renormed.parameters(), network.parameters()))
    assert not renormed.training


def same(first, second):
    return all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))


def test_a_student_of_share_0_hears_the_labels_alone_and_one_of_share_1_the_teacher_alone():
    images, labels = task()
    logits = torch.randn(2, len(images), 3)
    learned = page(images=images, labels=labels)["learned"]
    others = page(images=images, labels=labels.flip(0))["learned"]
    begin = chain()
    before = copy.deepcopy(begin)
    assert same(learned(begin, logits[0], 0.0, 0), learned(begin, logits[1], 0.0, 0))
    assert not same(learned(begin, logits[0], 0.0, 0), others(begin, logits[0], 0.0, 0))
    assert same(learned(begin, logits[0], 1.0, 0), others(begin, logits[0], 1.0, 0))
    assert not same(learned(begin, logits[0], 1.0, 0), learned(begin, logits[1], 1.0, 0))
    assert not same(learned(begin, logits[0], 1.0, 0), learned(begin, logits[0], 1.0, 1))
    assert same(begin, before)


def test_a_student_learns_from_labels_and_from_a_teacher():
    images, labels = task(192)
    bound = page(images=images, labels=labels, test_images=images, test_labels=labels, PASSES=8)
    teacher = 4.0 * nn.functional.one_hot(labels, 3)
    for share in (0.0, 1.0):
        student = bound["learned"](bound["anew"](chain(), 0), teacher, share, 0, 3 / 1000)
        assert bound["accuracy"](student) > 70


def test_new_weights_are_those_of_the_seed_in_the_same_shapes():
    anew, network = page()["anew"], page()["narrow"](chain(), page()["smallest"])
    first, again, other = (anew(network, seed) for seed in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)
    assert [w.shape for w in first.parameters()] == [w.shape for w in network.parameters()]
    assert torch.equal(first[1].running_var, torch.ones(4))


@pytest.mark.parametrize("bias", [True, False])
def test_two_thin_layers_give_a_matrix_of_low_rank_back_and_have_the_share_of_its_numbers(bias):
    torch.manual_seed(0)
    layer = nn.Linear(40, 60, bias=bias)
    layer.weight.data = torch.randn(60, 4) @ torch.randn(4, 40)
    thin = page()["two_thin_layers"](layer, 0.2)
    x = torch.randn(5, 40)
    torch.testing.assert_close(thin(x), layer(x), atol=1e-4, rtol=1e-4)
    numbers = sum(part.weight.numel() for part in thin)
    assert numbers == pytest.approx(0.2 * 2400, abs=50)


def test_an_evened_teacher_is_as_sure_of_the_same_choice_and_resembles_nothing():
    logits = 3 * torch.randn(20, 10, generator=torch.Generator().manual_seed(0))
    taught, evened = (torch.softmax(x / 4, 1) for x in (logits, reference.evened(logits, 4.0)))
    torch.testing.assert_close(evened.max(1).values, taught.max(1).values)
    assert torch.equal(evened.argmax(1), taught.argmax(1))
    rest = evened.sort(dim=1).values[:, :-1]
    torch.testing.assert_close(rest[:, 0], rest[:, -1])


# --- claims: each is seen to fail with a fault ---


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "verdict"), [(False, "holds"), (True, "fails")])
def test_removing_the_largest_scales_breaks_the_claim_that_statistics_bring_half_back(
    fault, verdict
):
    network, _ = trained("vgg-medium")
    images, _ = next(load("fashion-mnist", "train", limit=300).batches(300))
    test_images, test_labels = next(load("fashion-mnist", "test", limit=400).batches(400))
    bound = page(images=images, test_images=test_images, test_labels=test_labels)
    smallest = bound["smallest"]
    half = bound["narrow"](network, (lambda norm: smallest(norm).flip(0)) if fault else smallest)
    bound |= {"whole": bound["accuracy"](network), "as_cut": bound["accuracy"](half)}
    bound["again"] = bound["accuracy"](bound["renormed"](half))
    assert judged("statistics", bound) == verdict


def test_a_teacher_that_adds_nothing_breaks_the_claim_that_it_helps():
    assert judged("teacher-helps", {"gain": mean_interval([0.9, 1.0, 1.1])}) == "holds"
    assert judged("teacher-helps", {"gain": mean_interval([0.02, 0.0, -0.02])}) == "fails"


def times_of(**seconds):
    """`Times` in which every call takes so many seconds; the first is compared with."""
    return Times(
        tuple(seconds), np.tile([*seconds.values(), next(iter(seconds.values()))], (12, 1))
    )


@pytest.mark.parametrize(("seconds", "verdict"), [(0.25, "holds"), (1 / 17, "fails")])
def test_time_in_proportion_to_the_work_breaks_the_claim_that_work_is_not_time(seconds, verdict):
    bound = {
        "times": times_of(whole=1.0, ShuffleNet=seconds),
        "work": {"whole": 17.0, "ShuffleNet": 1.0},
    }
    assert judged("work-is-not-time", bound | {"study": study}) == verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(1.4, "holds"), (0.97, "fails")])
def test_time_by_work_breaks_the_claim_about_63_channels(seconds, verdict):
    times = Times(("64", "63"), np.tile([1.0, seconds, 1.0], (12, 1)))
    assert judged("one-less", {"longer": {63: study.times_as_long(times, "63", "64")}}) == verdict


def test_every_claim_of_the_lesson_is_seen_to_fail_here():
    claimed = {
        text.split("'")[1] for text in map(ast.unparse, STATEMENTS) if text.startswith("claim(")
    }
    assert claimed == {"statistics", "teacher-helps", "work-is-not-time", "one-less"}


# --- support ---


def test_jobs_side_by_side_come_back_in_order():
    assert study.side_by_side(lambda first, second: first * second, [(2, 3), (4, 5), (6, 7)]) == [
        6,
        20,
        42,
    ]


def test_convolutions_of_as_many_channels_as_asked_answer_images_of_the_same_side(tmp_path):
    even, odd = (study.convolutions(channels, tmp_path) for channels in (32, 31))
    for row in (even, odd):
        (outputs,) = row.call()
        assert outputs.shape == (1, study.ENDS, study.SIDE, study.SIDE)
    assert even.stored == "32 x 32"  # whole blocks, of 8 or of 16


@pytest.fixture
def pictures(monkeypatch):
    shown = []
    monkeypatch.setattr(study, "display", shown.append)
    return shown


def test_the_board_has_a_row_for_each_network_and_a_dash_where_no_time_was_taken(pictures):
    board = {"whole": study.Row(np.array([93.0]), 1_500_000, "whole")}
    board["half"] = study.Row(np.array([90.0, 91.0, 92.0]), 400_000, "half")
    figure = study.draw_board(board, {"whole": 1.25})
    accuracy, weights, times = figure.axes
    assert [text.get_text() for text in accuracy.get_yticklabels()] == ["whole", "half"]
    assert [text.get_text().strip() for text in accuracy.texts] == ["93.0", "91.0"]
    assert [text.get_text().strip() for text in weights.texts] == ["1,500", "400"]
    assert [text.get_text().strip() for text in times.texts] == ["1.25", "– not timed"]
    assert len(study.draw_board(board).axes) == 2


def test_the_teacher_is_shown_with_probabilities_at_the_temperature(pictures):
    logits = torch.tensor([[4.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    study.draw_teacher(
        torch.zeros(2, 1, 4, 4), [0, 1], {"teacher": logits}, ["a", "b", "c"], temperature=2.0
    )
    widths = [bar.get_width() for bar in pictures[0].axes[2].patches]
    assert widths == pytest.approx([66.5, 24.5, 9.0], abs=0.1)


def test_arms_shares_work_and_stairs_are_drawn_where_their_numbers_are(pictures):
    study.draw_arms({("old weights", "labels"): np.array([90.0, 91.0, 92.0])}, whole=93.0)
    study.draw_shares({"taught": {50: np.array([90.0, 92.0]), 75: np.array([60.0])}}, whole=93.0)
    one, two = Interval(0.9, 1.1, 12, 1.0), Interval(1.9, 2.1, 12, 2.0)
    study.draw_work({"whole": 4.0, "half": 1.0}, {"whole": one, "half": two})
    study.draw_stairs({64: one, 63: two})
    study.draw_channel()
    arms, shares, work, stairs, _ = (figure.axes[0] for figure in pictures)
    assert [text.get_text() for text in arms.get_yticklabels()] == ["old weights, labels"]
    assert list(shares.get_lines()[0].get_ydata()) == [91.0, 60.0]
    assert (4.0, 2.0) in [(line.get_xdata()[0], line.get_ydata()[0]) for line in work.get_lines()]
    labels = stairs.get_legend_handles_labels()[1]
    assert labels == ["multiples of 4", "other numbers", "in proportion to the work"]


def test_each_name_stands_beside_its_own_point_and_on_no_other_name(pictures):
    million = {
        "whole": 30.3,
        "half": 7.6,
        "half, thin": 7.4,
        "MobileNet": 2.9,
        "ShuffleNet": 1.7,
        "narrow": 3.1,
    }
    medians = {
        "whole": 1.0,
        "half": 4.0,
        "half, thin": 4.5,
        "MobileNet": 8.6,
        "ShuffleNet": 4.7,
        "narrow": 8.8,
    }
    speeds = {shape: Interval(0.9 * fast, 1.1 * fast, 12, fast) for shape, fast in medians.items()}
    study.draw_work(million, speeds)
    ax = pictures[0].axes[0]
    pictures[0].canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts}
    assert set(boxes) == set(million)
    for first, second in combinations(boxes.values(), 2):
        assert not first.overlaps(second)
    points = {
        shape: ax.transData.transform((30.3 / million[shape], medians[shape])) for shape in million
    }
    for name, box in boxes.items():
        distances = {shape: gap(box, point) for shape, point in points.items()}
        assert min(distances, key=distances.get) == name


def gap(box, point):
    """How far a point lies from a box, in pixels."""
    across = max(box.x0 - point[0], 0, point[0] - box.x1)
    up = max(box.y0 - point[1], 0, point[1] - box.y1)
    return np.hypot(across, up)


def test_exercises_of_the_page_are_those_of_the_module():
    assert tuple(task.name for task in reference.EXERCISES) == SOLVED
