"""ResNet-50 with published weights: fetched, all but the head; where they cannot be had, words."""

import pytest
import torch
import torchvision

from labkit.errors import Unavailable
from labkit.models import build

ENTRY = torchvision.models.ResNet50_Weights


@pytest.fixture
def published(monkeypatch):
    """A stand-in for what torchvision publishes, and how it was asked for."""
    torch.manual_seed(1)
    state, asked = torchvision.models.resnet50(weights=None).state_dict(), []

    def get(self, **settings):
        asked.append((self, settings))
        return state

    monkeypatch.setattr(ENTRY, "get_state_dict", get)
    return state, asked


def test_all_but_a_head_for_other_classes_is_published(published):
    state, asked = published
    network = build("resnet50", classes=100, pretrained=True)[0].state_dict()
    assert network["fc.weight"].shape == (100, 2048)
    assert [name for name in state if not torch.equal(network[name], state[name])] == [
        "fc.weight",
        "fc.bias",
    ]
    assert asked == [
        (ENTRY.DEFAULT, {"map_location": "cpu", "check_hash": True, "weights_only": True})
    ]
    assert state["fc.weight"].shape == (1000, 2048), "what was fetched stays as it is"


def test_with_its_own_classes_the_head_is_published_too(published):
    state, _ = published
    network = build("resnet50", pretrained=True)[0].state_dict()
    assert all(torch.equal(network[name], value) for name, value in state.items())


@pytest.mark.parametrize("pretrained", [None, False])
def test_nothing_is_fetched_where_nobody_asks(pretrained, published):
    build("resnet50", classes=10, pretrained=pretrained)
    assert published[1] == []


def test_without_a_network_it_says_what_to_do(monkeypatch):
    def refuse(self, **settings):
        raise OSError("no route to host")

    monkeypatch.setattr(ENTRY, "get_state_dict", refuse)
    with pytest.raises(Unavailable, match="efficientnet-lite0"):
        build("resnet50", pretrained=True)
