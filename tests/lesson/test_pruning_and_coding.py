"""The lesson on pruning: its own functions by hand, its claims can fail, its tables say what was
counted.
"""

import ast
import copy
from functools import partial
from types import MappingProxyType

import numpy as np
import pages
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from labkit.compress import apply_masks, magnitude_masks, prunable
from labkit.lesson.exercises import l15_pruning_and_coding as reference
from labkit.lesson.support import load_support
from labkit.measure import Interval, Times
from labkit.measure.stats import mean_interval
from labkit.measure.turns import RatioInTurn
from labkit.models.trained import trained

coding = load_support("pruning_and_coding")
steps = load_support("pruning_board")
SOLVED = ("points_lost", "magnitude_mask", "prune_gradually", "k_means", "decode_huffman")
STATEMENTS = pages.statements_of("15_pruning_and_coding")
judged = partial(pages.judged, STATEMENTS)


class Batches:
    """Made-up images as the page uses them: `batches(size)` and `subset(count, seed)`."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def batches(self, size):
        return iter(list(zip(self.images.split(size), self.labels.split(size), strict=True)))

    def subset(self, count, seed=0):
        chosen = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(seed))[
            :count
        ]
        return Batches(self.images[chosen], self.labels[chosen])


def page(names=MappingProxyType({})):
    """What the page has bound: its functions, with the answers to its exercises."""
    bound = {
        "np": np,
        "torch": torch,
        "nn": nn,
        "F": F,
        "copy": copy,
        "partial": partial,
        "seed": 0,
    }
    bound |= {"coding": coding, "steps": steps, "Interval": Interval, "SPARSE": "sparse"}
    for statement in STATEMENTS:
        if isinstance(statement, ast.FunctionDef):
            exec(ast.unparse(statement), bound)
    bound |= {name: getattr(reference, name) for name in SOLVED}
    bound |= names
    return bound


def small_network(seed=0):
    """A convolution, two linear layers, two norms: (n, 1, 6, 6) -> (n, 3)."""
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
    return nn.Sequential(
        *layers, nn.Linear(64, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3)
    )


@pytest.fixture(scope="module")
def problem():
    """(a trained small network, 3,072 images of three classes)"""
    torch.manual_seed(1)
    labels = torch.randint(3, (3072,))
    images = 0.8 * torch.randn(3, 1, 6, 6)[labels] + torch.randn(3072, 1, 6, 6)
    network = small_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()
    return network.eval(), Batches(images, labels)


@pytest.fixture
def bound(problem):
    network, data = problem
    names = {
        "network": network,
        "some": data,
        "train": data,
        "test": data,
        "size": 8,
        "batches": 384,
    }
    names |= {
        "labels": data.labels.numpy(),
        "weights": [w.detach() for w in page()["weights_of"](network)],
    }
    return page(names)


# --- the functions of the page ---


def test_lamp_by_hand_and_as_labkit_chooses(bound):
    scores = bound["lamp"](torch.tensor([[1.0, -2.0], [0.0, 3.0]]))
    assert scores.flatten().tolist() == pytest.approx([1 / 14, 4 / 13, 0, 1])
    masks = bound["by_lamp"](bound["weights"], 0.8)
    expected = magnitude_masks(bound["network"], 0.8, scope="lamp").values()
    assert all(torch.equal(mask, other) for mask, other in zip(masks, expected, strict=True))


def test_the_weights_of_the_page_are_those_that_labkit_prunes(bound):
    weights = list(prunable(bound["network"]).values())
    assert all(
        ours is theirs
        for ours, theirs in zip(bound["weights_of"](bound["network"]), weights, strict=True)
    )


def test_new_statistics_undo_a_change_of_scale_and_change_nothing_else(bound, problem):
    network, data = problem
    shrunk = copy.deepcopy(network)
    shrunk[0].weight.data *= 0.05
    again, expected = bound["renormed"](shrunk), bound["renormed"](network)
    with torch.inference_mode():
        assert torch.allclose(again(data.images), expected(data.images), atol=0.05)
        assert not torch.allclose(shrunk(data.images), expected(data.images), atol=0.5)
    assert torch.equal(again[0].weight, shrunk[0].weight) and not again.training
    assert shrunk[1].running_var.equal(network[1].running_var), (
        "the network that was given stays as it is"
    )


def test_movement_by_hand_takes_what_moves_to_zero_and_leaves_what_is_gone():
    weights = [nn.Parameter(torch.tensor([4.0, 1.0, -2.0, 0.0, 3.0]))]
    weights[0].grad = torch.tensor([1.0, -1.0, 1.0, -9.0, 0.1])  # scores -4, 1, 2, gone, -0.3
    choose = steps.Movement()
    assert choose(weights, 0.4)[0].tolist() == [False, True, True, False, True]
    weights[0].grad = torch.tensor([-3.0, 2.0, 0.0, 0.0, 0.0])  # now 8, -1, 2, gone, -0.3
    assert choose(weights, 0.4)[0].tolist() == [True, False, True, False, True]
    assert choose(weights, 0.0)[0].all()


def test_a_file_of_the_page_opens_bit_for_bit_and_a_decoder_that_errs_is_noticed(bound):
    pruned = bound["cut"](bound["network"], bound["by_lamp"](bound["weights"], 0.7))
    final = coding.folded(bound["shared"](bound["renormed"](pruned), 8))
    data = coding.write_network(final)
    opened = coding.read_network(
        data, coding.folded(small_network(seed=9)), reference.decode_huffman
    )
    assert all(
        torch.equal(a, b) for a, b in zip(final.parameters(), opened.parameters(), strict=True)
    )

    # a gap that is too long would lead out of the layer
    def last_one_too_small(bits, codes, count):
        symbols = reference.decode_huffman(bits, codes, count)
        return [*symbols[:-1], min(codes)]

    wrong = coding.read_network(data, coding.folded(small_network(seed=9)), last_one_too_small)
    assert not all(
        torch.equal(a, b) for a, b in zip(final.parameters(), wrong.parameters(), strict=True)
    )


def test_a_layer_that_pruning_left_empty_is_shared_and_written_like_the_others(bound):
    network = bound["network"]
    everything = torch.zeros_like(bound["weights"][0], dtype=torch.bool)
    masks = [everything, *bound["by_lamp"](bound["weights"][1:], 0.5)]
    final = coding.folded(bound["shared"](bound["cut"](network, masks), 4))
    blank = coding.folded(small_network(seed=9))
    opened = coding.read_network(coding.write_network(final), blank, reference.decode_huffman)
    assert not opened[0].weight.any()
    assert all(
        torch.equal(a, b) for a, b in zip(final.parameters(), opened.parameters(), strict=True)
    )


# --- claims: each is seen to fail with a fault ---


def takes_no_step(weights, optimizer, loss, batches, choose, final):
    for weight, mask in zip(weights, choose(weights, final), strict=True):
        weight.data *= mask


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "verdict"), [(reference.prune_gradually, "holds"), (takes_no_step, "fails")]
)
def test_healing_pays_only_where_the_function_trains(bound, problem, train, verdict):
    network, _ = problem
    bound["prune_gradually"] = train
    pruned = bound["renormed"](bound["cut"](network, bound["by_lamp"](bound["weights"], 0.97)))
    untrained = bound["right"](pruned).mean()
    gains = []
    for seed in range(3):
        healed = bound["healed"](network, bound["by_lamp"], 0.97, seed)
        gains.append(100 * (bound["right"](healed).mean() - untrained))
    assert judged("healing-pays", {"gain": mean_interval(gains)}) == verdict


@pytest.mark.slow
@pytest.mark.parametrize(("sparsity", "verdict"), [(0.95, "holds"), (0.5, "fails")])
def test_a_file_with_half_of_the_weights_is_not_thirty_times_smaller(sparsity, verdict):
    network, _ = trained("vgg-medium")
    full = 4 * sum(weight.numel() for weight in network.parameters())
    apply_masks(network, magnitude_masks(network, sparsity, scope="lamp"))
    size = len(coding.write_network(coding.folded(coding.share(network, 16))))
    assert judged("much-smaller", {"smaller": full / size}) == verdict


def test_a_file_that_forgot_five_points_fails_its_claim():
    right = np.ones(2000, bool)
    for wrong, verdict in ((8, "holds"), (40, "inconclusive"), (100, "fails")):
        low, lost, high = reference.points_lost(right, np.arange(2000) >= wrong)
        row = {"points lost": Interval(low, high, 2000, lost)}
        assert judged("what-the-file-forgot", {"board": {"16 values, coded": row}}) == verdict


def test_zeros_that_are_skipped_fail_the_claim_that_they_are_multiplied():
    for seconds, verdict in ((1.0, "holds"), (0.5, "fails")):
        times = Times(("as trained", "sparse"), np.tile([1.0, seconds, 1.0], (12, 1)))
        assert judged("zeros-are-multiplied", {"zeros": times["sparse"]}) == verdict


def test_every_claim_of_the_lesson_is_seen_to_fail_here():
    claimed = {
        text.split("'")[1] for text in map(ast.unparse, STATEMENTS) if text.startswith("claim(")
    }
    assert claimed == {
        "healing-pays",
        "much-smaller",
        "what-the-file-forgot",
        "zeros-are-multiplied",
    }


# --- tables ---


def test_the_board_shows_bytes_factors_and_times_where_they_were_measured():
    lost = Interval(-0.25, 0.75, 100, 0.5)
    board = {
        "as trained": {"bytes": 6_000_000, "points lost": lost},
        "coded": {
            "bytes": 150_000,
            "points lost": lost,
            "times as fast": Interval(0.98, 1.03, 12, 1.01),
        },
        "zipped": {"bytes": 5_000_000, "points lost": lost, "times as fast": "same dense layers"},
    }
    table = steps.board_table(board)
    assert table.loc["coded"].tolist() == [
        "150",
        "40.0",
        "0.5 (-0.2 to 0.8)",
        "1.01 (0.98 to 1.03)",
    ]
    assert table["times as fast"].tolist() == ["-", "1.01 (0.98 to 1.03)", "same dense layers"]
    assert "times as fast" not in steps.board_table({"as trained": board["as trained"]})
    # the interval of its claim
    board["coded"]["times as fast"] = RatioInTurn(0.98, 1.03, 12, 1.01, floor=0.1)
    assert steps.board_table(board)["times as fast"].tolist()[1] == "1.01 (0.89 to 1.13)"


def test_the_parts_of_a_file_add_up_to_its_bytes(bound):
    model = coding.folded(
        bound["shared"](bound["cut"](bound["network"], bound["by_lamp"](bound["weights"], 0.7)), 8)
    )
    size = len(coding.write_network(model))
    table = steps.file_parts(model, size)
    assert table["kB"].sum() == pytest.approx(size / 1e3, abs=0.11)
    assert (table["kB"][:2] >= table["kB by Shannon's bound"][:2].astype(float)).all()


def test_the_published_factors_stand_beside_ours():
    table = steps.beside_published(72.4, Interval(0, 1, 100, 0.55))
    assert table["times smaller"].tolist() == ["40", "39", "35", "49", "72"]
    assert table["points lost"].tolist() == ["-0.06", "-0.06", "+0.00", "-0.33", "+0.55"]


def test_without_the_package_that_cuts_channels_there_is_a_reason_and_no_network(
    monkeypatch, capsys
):
    monkeypatch.setitem(__import__("sys").modules, "torch_pruning", None)
    assert steps.half_the_channels(small_network(), torch.zeros(1, 1, 6, 6)) is None
    assert "torch-pruning" in capsys.readouterr().out
