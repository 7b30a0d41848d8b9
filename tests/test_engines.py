"""Engines: the same answers from each, and a clear word about what is not here."""

import shutil

import pytest
import torch

from labkit import engines, models
from labkit.errors import LabError, Unavailable

TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return models.build("cnn-small")[0].eval()


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", engines.NAMES)
@pytest.mark.filterwarnings("default")
def test_every_engine_computes_what_the_plain_network_computes(name, precision, network):
    images = torch.randn(4, 1, 28, 28)
    with torch.inference_mode():
        wanted = network(images)
    found = engines.load(name, network, images, precision=precision)(images)
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() <= TOLERANCE[precision] * wanted.abs().max()
    assert not found.requires_grad


def test_without_a_compiler_inductor_says_what_to_install(network, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Unavailable, match=r"g\+\+"):
        engines.load("inductor", network, torch.zeros(1, 1, 28, 28))


@pytest.mark.parametrize(("name", "precision"), [("tensorflow", "fp32"), ("eager", "fp8")])
def test_unknown_engines_and_precisions_are_refused(name, precision, network):
    with pytest.raises(LabError, match="expected"):
        engines.load(name, network, torch.zeros(1, 1, 28, 28), precision=precision)


def test_an_unknown_network_is_refused():
    with pytest.raises(LabError, match="cnn-large"):
        models.build("resnet-9000")
