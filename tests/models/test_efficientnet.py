"""EfficientNet-Lite0: real weights, from the installation and from nowhere else."""

import socket

import pytest
import torch

from labkit.errors import DataError
from labkit.models import efficientnet
from labkit.models.efficientnet import _weights_file, efficientnet_lite0


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **settings):
        raise AssertionError("somebody wants the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refuse)


def test_the_weights_are_those_of_the_package_and_no_network_is_asked():
    stored = torch.load(_weights_file(), weights_only=True)
    found = efficientnet_lite0().state_dict()
    assert found.keys() == stored.keys()
    assert all(torch.equal(found[name], stored[name]) for name in stored)


def test_trained_filters_are_no_noise():
    first = efficientnet_lite0()._conv_stem.weight.flatten(1)  # (32, 27)
    fresh = efficientnet_lite0(pretrained=False)._conv_stem.weight.flatten(1)
    # neighbouring pixels of a trained filter belong together: few directions hold most of the
    # filters
    share = [
        torch.linalg.svdvals(filters)[:6].square().sum() / filters.square().sum()
        for filters in (first, fresh)
    ]
    assert share[0] > 0.7 > share[1]


def test_another_number_of_classes_exchanges_only_the_head():
    whole, new = efficientnet_lite0().state_dict(), efficientnet_lite0(classes=5).state_dict()
    changed = [
        name
        for name in whole
        if whole[name].shape != new[name].shape or not torch.equal(whole[name], new[name])
    ]
    assert changed == ["_fc.weight", "_fc.bias"]


def test_other_weights_than_the_published_ones_are_refused_before_they_are_opened(monkeypatch):
    monkeypatch.setattr(efficientnet, "SHA256", "0" * 64)
    monkeypatch.setattr(torch, "load", lambda *given, **settings: pytest.fail("opened"))
    with pytest.raises(DataError, match=r"is not the published one(?s:.*)--force-reinstall"):
        efficientnet_lite0()
