"""2:4 sparsity: the pattern by hand and against all choices, and the reason where it gains no time."""

import itertools

import pytest
import torch
from torch import nn

from labkit.compress import apply_masks, require_sparse_tensor_cores, sparsity_of, two_to_four_masks
from labkit.compress.two_to_four import _two_to_four_mask
from labkit.errors import LabError, Unavailable
from labkit.models import build


def test_the_two_largest_of_each_four_by_hand():
    weight = torch.tensor([[1.0, -4.0, 3.0, 2.0, 0.1, 0.2, -0.4, -0.3]])
    assert _two_to_four_mask(weight).tolist() == [[False, True, True, False, False, False, True, True]]


@pytest.mark.parametrize("shape", [(3, 8), (5, 12, 3, 3)])
def test_no_other_choice_of_two_keeps_more_and_groups_lie_along_the_input_channels(shape):
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    mask = _two_to_four_mask(weight)
    for first in range(0, shape[1], 4):
        four, kept = weight[:, first : first + 4], mask[:, first : first + 4]
        assert (kept.sum(1) == 2).all()
        best = torch.stack([four[:, list(pair)].square().sum(1) for pair in itertools.combinations(range(4), 2)])
        assert torch.allclose((four * kept).square().sum(1), best.max(0).values)


def test_equal_weights_lose_exactly_two():
    assert _two_to_four_mask(torch.zeros(2, 8)).sum(1).tolist() == [4, 4]


def test_a_network_loses_half_but_for_the_layer_that_sees_one_channel():
    model, _ = build("cnn-medium")
    whole = model[0][0].weight.numel()
    apply_masks(model, two_to_four_masks(model))
    total = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.Linear)))
    assert sparsity_of(model) == pytest.approx((total - whole) / 2 / total)


@pytest.mark.parametrize("shape", [(4,), (4, 6), (4, 1, 3, 3)])
def test_no_groups_of_four_are_refused(shape):
    with pytest.raises(LabError, match="no groups of four"):
        _two_to_four_mask(torch.zeros(shape))


@pytest.mark.parametrize(("capability", "reason"), [(None, "no NVIDIA GPU"), ("7.5", "compute capability 7.5")])
def test_without_sparse_tensor_cores_there_is_a_reason(monkeypatch, capability, reason):
    monkeypatch.setattr("labkit.device.compute_capability", lambda: capability)
    with pytest.raises(Unavailable) as missing:
        require_sparse_tensor_cores()
    assert missing.value.found == reason
    assert missing.value.fix


@pytest.mark.parametrize("capability", ["8.0", "9.0", "12.0"])
def test_with_them_there_is_none(monkeypatch, capability):
    monkeypatch.setattr("labkit.device.compute_capability", lambda: capability)
    require_sparse_tensor_cores()
