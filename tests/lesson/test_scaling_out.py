"""The lesson on many workers: ring and board drawn, what is timed in workers, the script's stub,
and Yours.
"""

import copy
import os
import runpy
import sys
from functools import partial
from types import ModuleType

import nbformat
import numpy as np
import pytest
import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet
from yours import Encoder, TwoOutputs, cells_of_yours

from labkit.errors import LabError
from labkit.files import root
from labkit.lesson import exercises
from labkit.lesson.exercises import l10_scaling_out as answers
from labkit.lesson.support import load_support
from labkit.measure.stats import Interval
from labkit.plots.canvas import in_words

LESSON = "10_scaling_out"
support = load_support("scaling_out")
in_workers = load_support("scaling_out_workers")


@pytest.fixture
def shown(monkeypatch):
    """The pictures that the support module shows."""
    pictures = []
    monkeypatch.setattr(support, "display", pictures.append)
    return pictures


# --- pictures and the table ---


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_ring_ends_with_the_sums_in_all_workers_after_as_many_steps_as_two_rounds(k):
    arrays = np.arange(k * k).reshape(k, k) ** 2
    states = support.ring_states(arrays)
    assert len(states) == 2 * (k - 1) + 1
    assert (states[0][0] == arrays).all()
    assert (states[-1][0] == arrays.sum(0)).all()
    halfway, _ = states[k - 1]
    finished = (halfway == arrays.sum(0)).sum(1)
    assert (finished == 1).all(), "after adding, each worker holds one finished sum"


def test_the_drawn_ring_has_the_numbers_that_are_worked_by_hand(shown):
    support.draw_ring([[1, 2, 3], [10, 20, 30], [100, 200, 300]])
    words = in_words(shown[0])
    assert "step 2: add" in words and "step 3: pass on" in words
    first = [text.get_text().strip() for text in shown[0].axes[1].texts]
    assert {"303", "11", "220"} <= set(first), "3 + 300, 10 + 1, 200 + 20"


def test_the_board_tells_rounding_from_another_training_and_draws_no_distance_at_the_left(shown):
    board = {"restarted": 0.0, "averaged": 2e-7, "batch norm": 0.2}
    support.draw_board(board, {"2 workers": Interval(1.2, 1.5, 20, 1.3)})
    distances, speeds = shown[0].axes
    (dots,) = [dots for dots in distances.collections if len(dots.get_offsets()) == len(board)]
    green, also_green, orange = dots.get_facecolors()
    assert (green == also_green).all() and (green != orange).any()
    positions = dots.get_offsets()[:, 0]
    assert positions[0] < positions[1] < positions[2]
    assert [text.get_text() for text in distances.texts] == ["0", "2e-07", "2e-01"]
    assert [text.get_text() for text in speeds.texts] == ["1.30"]


def test_own_epochs_stand_beside_the_published_hours_and_several_gpus_wait(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    table = support.published_table({1: [2.0, 1.8, 2.2], 2: [1.25, 1.0, 2.0]})
    assert list(table.loc["ResNet-50, published, 8 GPUs (29 h for 90 epochs)"]) == [
        "1,160",
        "1",
        "100 %",
    ]
    assert list(table.loc["ResNet-50, published, 256 GPUs (1 h for 90 epochs)"]) == [
        "40",
        "29",
        "91 %",
    ]
    assert list(table.loc["here, 1 worker"]) == ["2.00", "1.00", "100 %"]
    assert list(table.loc["here, 2 workers"]) == ["1.25", "1.60 (0.90 to 2.20)", "80 %"]
    waiting = list(table.loc["here, several GPUs (NCCL)"])
    assert waiting[:2] == ["–", "–"] and "two GPUs, this one has 1" in waiting[2]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert not any("NCCL" in row for row in support.published_table({1: [2.0]}).index)


def test_parts_of_a_batch_are_lines_and_another_training_has_its_per_cent(shown):
    support.draw_parts({"batch norm": {2: 0.17, 4: 0.29}, "no norm": {2: 2e-7, 4: 0.0}})
    (ax,) = shown[0].axes
    assert [text.get_text() for text in ax.texts] == ["17 %", "29 %"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["batch norm", "no norm"]


def test_a_forecast_is_dashed_beside_what_was_measured(shown):
    support.draw_speeds({"2 workers": {16: Interval(0.5, 0.7, 20, 0.6)}}, {"2 workers": {16: 0.9}})
    (ax,) = shown[0].axes
    measured, forecast = (
        ax.lines[0],
        next(line for line in ax.lines if line.get_linestyle() == "--"),
    )
    assert list(measured.get_ydata()) == [0.6] and list(forecast.get_ydata()) == [0.9]
    assert measured.get_color() == forecast.get_color()


def one_by_one(stages, micro):
    return [[(kind, i) for i in range(micro) for kind in "FB"] for _ in range(stages)]


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_pipeline_ends_after_the_units_that_are_worked_by_hand(stages):
    taken = max(support.ends_of(one_by_one(stages, 4)).values())
    assert taken == 4 * stages * 3, "one micro-batch after the other through all stages and back"
    taken = max(support.ends_of(answers.pipeline_schedule(stages, 4)).values())
    assert taken == 3 * (4 + stages - 1)


def test_a_pipeline_in_which_every_stage_waits_is_said_in_words():
    with pytest.raises(LabError, match="Every stage of this schedule waits"):
        support.ends_of([[("B", 0), ("F", 0)], [("F", 0), ("B", 0)]])


def test_pipelines_are_drawn_with_their_units_and_their_waiting(shown):
    support.draw_pipelines(
        {"one by one": one_by_one(4, 4), "mine": answers.pipeline_schedule(4, 4)}
    )
    titles = [ax.get_title() for ax in shown[0].axes]
    assert titles == ["one by one: 48 units, 75 % waiting", "mine: 21 units, 43 % waiting"]


# --- what runs in worker processes ---


@pytest.fixture(scope="module")
def team():
    with load_support("worker_teams").Team(2, deadline_s=120) as team:
        yield team


def first_half(batch):
    return batch[: len(batch) // 2]


def test_a_race_times_every_way_and_size_without_its_first_round(team):
    networks = {"1 worker": nn.Linear(4, 3), "2 workers": nn.Linear(4, 3)}
    race = partial(in_workers.race, sizes=[4, 8], rounds=4, share=first_half)
    images, labels = torch.randn(8, 4), torch.arange(8) % 3
    for times in team.run(race, networks, images, labels):
        assert set(times) == {(way, count) for way in networks for count in (4, 8)}
        assert all(len(seconds) == 3 and (seconds > 0).all() for seconds in times.values())


# --- the script ---


def cells():
    return nbformat.read(root() / "notebooks" / f"{LESSON}.ipynb", as_version=4).cells


def test_the_cell_of_the_script_gives_what_the_reference_has_around_the_answer():
    (cell,) = [cell for cell in cells() if exercises.script_in(cell.source) == "ddp-script"]
    given = cell.source.split("\n", 2)[2]
    before, after = given.split("...  # your code\n")
    assert before == answers.DDP_BEFORE
    assert after == answers.DDP_AFTER.rstrip()
    assert exercises.fill(cell.source).endswith(answers.DDP_SCRIPT)


@pytest.mark.parametrize(
    ("settings", "truth"),
    [
        ({"shuffled_anew": False}, "the images of every epoch in the same order"),
        ({"batch": 32}, "with batches of 32"),
        ({"epochs": 2}, "after 2 of 3 epochs"),
    ],
)
def test_weights_of_another_training_are_said_to_be_those_of_that_training(settings, truth):
    with pytest.raises(exercises.Wrong, match=f"end where one worker does .*{truth}"):
        answers._expect_weights(answers._trained_by_one_worker(**settings))


# --- Yours ---


class CentredByTheBatch(nn.Module):
    """A layer that mixes images and is no batch norm."""

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


def resnet():
    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3), torch.randn(64, 3, 32, 32)


def encoder():
    return Encoder(), torch.randint(50, (64, 7))


def two_outputs():
    return TwoOutputs(), torch.randn(64, 12)


def with_dropout():
    return nn.Sequential(nn.Linear(12, 8), nn.Dropout(0.5), nn.Linear(8, 3)), torch.randn(64, 12)


def centred():
    return nn.Sequential(
        nn.Linear(12, 8), CentredByTheBatch(), nn.Tanh(), nn.Linear(8, 3)
    ), torch.randn(64, 12)


@pytest.fixture
def run_yours(monkeypatch, tmp_path):
    """A function that runs the section's cells as in the lesson; returns its names."""

    def run(network, inputs, labels=None, *, profile="quick", torchrun=None, change=("", "")):
        mine = ModuleType("mine")
        mine.network, mine.inputs = network.eval(), inputs
        mine.labels = torch.arange(len(inputs)) % 3 if labels is None else labels
        monkeypatch.setitem(sys.modules, "mine", mine)
        page = {"profile": profile, "torchrun": torchrun, "in_parts": answers.in_parts}
        page |= {"lab": type("Lab", (), {"folder": tmp_path}), "copy": copy, "runpy": runpy}
        page |= {"np": np, "torch": torch}
        for source in cells_of_yours(LESSON):
            if source.startswith("%%writefile"):
                text = source.split("\n", 1)[1].replace(*change)
                (tmp_path / "my_task.py").write_text(text, encoding="utf-8")
            else:
                exec(source, page)
        return page

    return run


@pytest.mark.parametrize("kind", [encoder, two_outputs, with_dropout])
def test_yours_says_that_many_workers_train_a_network_without_batch_norm_as_one_does(
    kind, run_yours, capsys
):
    torch.manual_seed(0)
    network, inputs = kind()
    before = [weight.detach().clone() for weight in network.parameters()]
    page = run_yours(network, inputs)
    assert "many workers train your network as one does" in capsys.readouterr().out
    assert page["off"] < 1e-5
    assert all(map(torch.equal, before, network.parameters()))
    assert not network.training and all(weight.grad is None for weight in network.parameters())


@pytest.mark.parametrize("shape", [(64, 1), (64,)])
def test_yours_takes_the_squared_error_of_a_network_that_predicts_numbers(shape, run_yours, capsys):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))
    page = run_yours(network, torch.randn(64, 12), torch.randn(shape))
    assert 0 < page["off"] < 1e-5
    assert "many workers train your network as one does" in capsys.readouterr().out
    network = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    assert run_yours(network, torch.randn(64, 12), torch.randn(shape))["off"] > 1e-2
    assert "by 1 batch norm (first: 1)" in capsys.readouterr().out


@pytest.mark.parametrize("constant", ["0 * labels.sum()", "torch.tensor(float('nan'))"])
def test_yours_gives_no_verdict_where_the_loss_has_no_gradient(constant, run_yours, capsys):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(12, 8), nn.Linear(8, 1))
    change = "F.mse_loss(outputs, labels.view_as(outputs))", f"{constant} * outputs.mean()"
    run_yours(network, torch.randn(64, 12), torch.randn(64, 1), change=change)
    printed = capsys.readouterr().out
    assert "this loss has no gradient here, so nothing is told" in printed
    assert "mixes the images" not in printed and "as one does" not in printed


def test_yours_names_the_batch_norms_of_a_resnet_and_their_cure(run_yours, capsys):
    torch.manual_seed(0)
    network, inputs = resnet()
    page = run_yours(network, inputs)
    printed = capsys.readouterr().out
    norms = sum(isinstance(layer, nn.BatchNorm2d) for layer in network.modules())
    assert (
        f"another network, by {norms} batch norms (first: bn1); on GPUs nn.SyncBatchNorm" in printed
    )
    assert page["off"] > 1e-2


def test_yours_suspects_another_layer_where_there_is_no_batch_norm(run_yours, capsys):
    torch.manual_seed(0)
    run_yours(*centred())
    assert "some layer mixes the images of a batch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "two", "advice"),
    [
        ([9.0, 2.0, 2.2], [9.0, 1.0, 1.2], "a second worker is worth it"),
        ([1.0, 1.0, 1.1], [1.0, 1.2, 1.3], "slower: larger batches first"),
        ([9.0, 1.0, 2.0], [1.0, 1.2, 1.5], "cannot be told which is faster"),
    ],
)
def test_yours_ends_in_advice_by_the_epochs_after_the_first(one, two, advice, run_yours, capsys):
    def torchrun(workers, path, *arguments):
        assert path.name == "my_task.py"
        return {1: one, 2: two}[workers]

    run_yours(*two_outputs(), profile="lab", torchrun=torchrun)
    printed = capsys.readouterr().out
    assert advice in printed and "9.00" not in printed


@pytest.mark.slow
def test_the_script_trains_a_network_with_two_outputs_of_which_one_is_not_used(
    tmp_path, run_yours, monkeypatch
):
    torch.manual_seed(0)
    run_yours(*two_outputs())  # writes my_task.py
    mine = """
import torch
from yours import TwoOutputs

torch.manual_seed(0)
network, inputs, labels = TwoOutputs().eval(), torch.randn(64, 12), torch.arange(64) % 3
"""
    (tmp_path / "mine.py").write_text(mine)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    arguments = str(tmp_path / "my_task.py"), "16", "1", str(tmp_path / "weights.pt")
    printed = answers.DDP_SCRIPT.run(*arguments, launcher=answers.LAUNCHER, seconds=150)
    assert printed.startswith("epoch 0: ")
    weights = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert set(weights) == set(TwoOutputs().state_dict())
