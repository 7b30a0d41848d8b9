"""The last section of the lesson on smaller networks: networks of several kinds, where labkit
cannot be imported.
"""

import pytest
import torch
from test_smaller_networks import chain, page
from torch import nn
from yours import Encoder, TwoOutputs, cells_of_yours, run_yours


def resnet():
    models = pytest.importorskip("torchvision").models
    return models.resnet18(num_classes=3)


def encoder():
    return nn.Sequential(Encoder(), nn.Linear(16, 3))


def images(channels, side):
    return lambda labels: torch.randn(len(labels), channels, side, side) + labels.view(-1, 1, 1, 1)


def numbers(labels):
    return torch.randn(len(labels), 12) + labels.view(-1, 1)


def tokens(labels):
    return torch.randint(15, (len(labels), 12)) + 15 * labels.view(-1, 1)


NETWORKS = {  # {kind: (network, inputs, can it be cut)}
    "a chain": (chain, images(1, 8), True),
    "a chain with biases": (lambda: chain(bias=True), images(1, 8), True),
    "a ResNet": (resnet, images(3, 16), False),
    "a transformer encoder": (encoder, tokens, False),
    "two outputs": (TwoOutputs, numbers, False),
    "a chain without batch norm": (
        lambda: nn.Sequential(nn.Linear(12, 8), nn.Linear(8, 3)),
        numbers,
        False,
    ),
}


def without_statistics():
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    return nn.Sequential(nn.Linear(12, 8), norm, nn.Linear(8, 3))


def in_groups():
    layers = [
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.BatchNorm2d(8),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers, nn.Linear(128, 3))


def normed_behind_the_flatten():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.BatchNorm1d(288), nn.Linear(288, 3))


def shuffled_pixels():
    layers = [
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.PixelShuffle(2),
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(400, 3))


OTHER_CHAINS = {  # batch norms after each layer, but a channel has no numbers of its own to cut
    "batch norm without running statistics": without_statistics,
    "a convolution in groups": in_groups,
    "batch norm of pixels": normed_behind_the_flatten,
    "pixels shuffled": shuffled_pixels,
}


class Oracle(nn.Module):
    """A teacher that knows the classes of `numbers`; as good as trained."""

    def forward(self, x):
        return -4 * (x.mean(1, keepdim=True) - torch.arange(3.0)).square()


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function (network, inputs of labels, ...) -> (names that the section bound, what
    it printed).
    """

    def run(network, inputs, profile="quick", count=240):
        torch.manual_seed(0)
        labels = torch.randint(3, (count,))
        mine = {"network": network.eval(), "inputs": inputs(labels), "labels": labels}
        bound = run_yours("16_smaller_networks", page(profile=profile), mine, monkeypatch)
        return bound, capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_yours_runs_on_each_kind_leaves_the_network_as_it_was_and_ends_in_one_verdict(kind, run):
    network, inputs, cut = NETWORKS[kind]
    network = network()
    before = [weight.clone() for weight in network.state_dict().values()]
    bound, printed = run(network, inputs)
    assert bound["chain"] is cut
    assert ("new statistics alone" in printed) is cut
    assert printed.count("Verdict: ") == 1
    assert all(map(torch.equal, before, network.state_dict().values()))
    assert [len(reached) for reached in bound["by_share"].values()] == [3, 3]


@pytest.mark.slow
def test_an_untrained_network_gets_no_verdict(run):
    _, printed = run(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 3)),
        lambda labels: torch.randn(len(labels), 1, 8, 8),
    )
    assert "open: your network is near chance" in printed


@pytest.mark.slow
def test_a_good_teacher_of_students_that_learn_gets_a_verdict(run):
    bound, printed = run(
        Oracle(), lambda labels: numbers(labels) / 2 + labels.view(-1, 1) / 2, "lab", count=1_000
    )
    assert max(bound["by_share"][1.0]) > 85
    assert "open" not in printed


@pytest.mark.parametrize("kind", OTHER_CHAINS)
def test_a_chain_that_cannot_be_cut_is_told_apart(kind):
    assert page()["is_chain"](chain(bias=True))
    assert not page()["is_chain"](OTHER_CHAINS[kind]())


VERDICTS = {  # (your network, labels, the teacher, how the verdict begins)
    "the teacher helps": (95, (91, 91, 91), (93, 93.1, 93.2), "your network helps the student"),
    "labels are as good": (
        95,
        (93, 93.1, 93.2),
        (93.1, 93, 93.2),
        "your network adds less than 0.5 points",
    ),
    "labels are better": (95, (93, 93.1, 93.2), (91, 91, 91), "labels teach better"),
    "labels are perhaps better": (95, (93, 94, 93.5), (93, 92, 94), "cannot tell"),
    "all students far below": (
        98.8,
        (86.8, 84.6, 86.0),
        (81.4, 80.2, 83.4),
        "open: the students are 13 points",
    ),
    "one arm has learned": (98.8, (97.4, 97.6, 98.6), (81.4, 80.2, 83.4), "labels teach better"),
    "untrained students": (95, (34, 33, 35), (34, 34, 34), "open: the students are 61 points"),
    "an untrained network": (34, (60, 61, 62), (33, 33, 33), "open: your network is near chance"),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_the_verdict_is_open_where_students_have_not_learned_and_says_when_labels_are_better(
    case, capsys
):
    teacher_gets, labelled, taught, beginning = VERDICTS[case]
    reached = {0.0: list(labelled), 1.0: list(taught)}
    bound = page(by_share=reached, teacher_gets=teacher_gets, chance=33, worth=0.5, far=5)
    exec(cells_of_yours("16_smaller_networks")[-1], bound)
    assert capsys.readouterr().out.startswith(f"Verdict: {beginning}")
