"""Magnitude pruning: masks worked out by hand, exact counts, bad input."""

import pytest
import torch
from made_up import network
from torch import nn

from labkit.compress import apply_masks, magnitude_masks, prunable, sparsity_of
from labkit.compress.magnitude import _lamp_scores, masks_of, top_masks
from labkit.errors import LabError


def two_layers():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -2.0], [3.0, -4.0]]))
        model[2].weight.copy_(torch.tensor([[10.0, 20.0], [30.0, 0.5]]))
    return model


def test_one_threshold_for_all_layers_and_one_for_each_by_hand():
    masks = magnitude_masks(two_layers(), 0.5)  # the four smallest of 0.5 1 2 3 4 10 20 30
    assert masks["0.weight"].tolist() == [[False, False], [False, True]]
    assert masks["2.weight"].tolist() == [[True, True], [True, False]]
    masks = magnitude_masks(two_layers(), 0.5, scope="layer")
    assert masks["0.weight"].tolist() == [[False, False], [True, True]]
    assert masks["2.weight"].tolist() == [[False, True], [True, False]]


def test_lamp_compares_a_weight_with_the_larger_ones_of_its_layer_by_hand():
    scores = _lamp_scores(torch.tensor([[1.0, -2.0], [0.0, 3.0]]))  # squares 1 4 0 9
    assert scores.tolist() == [pytest.approx([1 / 14, 4 / 13]), [0, 1]]
    assert _lamp_scores(torch.zeros(2, 2)).tolist() == [[0, 0], [0, 0]]
    model = two_layers()  # scores 1/30 4/29 9/25 1 and 100/1400 400/1300 1 .25/1400.25
    masks = magnitude_masks(model, 0.5, scope="lamp")
    assert masks["0.weight"].tolist() == [[False, False], [True, True]]
    assert masks["2.weight"].tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_lamp_scores_are_those_of_the_sum_over_all_that_are_no_smaller(dtype):
    weight = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    # no two are equal, or the order among them would matter
    squares = weight.float().flatten().double().square()
    assert len(squares.unique()) == len(squares)
    wanted = squares / (squares * (squares >= squares[:, None])).sum(1)
    torch.testing.assert_close(_lamp_scores(weight).flatten(), wanted, rtol=1e-12, atol=0)


def test_lamp_is_blind_to_the_scale_of_a_layer_and_never_empties_one():
    model = two_layers()
    before = magnitude_masks(model, 0.7, scope="lamp")
    with torch.no_grad():
        model[2].weight *= 1e-6
    after = magnitude_masks(model, 0.7, scope="lamp")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not magnitude_masks(model, 0.5)["2.weight"].any(), "one threshold for all would empty it"


def test_masks_set_the_rest_to_zero_and_touches_neither_biases_nor_norms():
    model = two_layers()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    apply_masks(model, magnitude_masks(model, 0.5))
    assert model[0].weight.tolist() == [[0, 0], [0, -4]]
    assert sparsity_of(model) == 0.5
    assert list(prunable(model)) == ["0.weight", "2.weight"]
    others = set(before) - set(prunable(model))
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in others)


@pytest.mark.parametrize("sparsity", [0, 0.001, 0.37, 0.9, 0.999, 1])
def test_the_number_that_goes_is_exact_even_among_equals(sparsity):
    scores = {
        "many": torch.randn(40, 50).abs(),
        "equal": torch.ones(10, 3, 3),
        "none": torch.zeros(7),
    }
    kept = sum(int(mask.sum()) for mask in top_masks(scores, sparsity).values())
    assert kept == 2097 - round(sparsity * 2097)
    per_layer = top_masks(scores, sparsity, scope="layer")
    assert all(
        int(per_layer[key].sum()) == each.numel() - round(sparsity * each.numel())
        for key, each in scores.items()
    )


def test_masks_are_those_of_a_full_sort():
    scores = torch.randn(3000, generator=torch.Generator().manual_seed(0))
    kept = top_masks({"a": scores}, 0.8)["a"].nonzero()[:, 0]
    assert kept.tolist() == sorted(scores.argsort(descending=True)[:600].tolist())


def test_the_masks_of_a_pruned_network_are_found_again():
    model = network()
    masks = magnitude_masks(model, 0.6)
    found = masks_of(apply_masks(model, masks))
    assert all(torch.equal(masks[name], found[name]) for name in masks)


@pytest.mark.parametrize(
    "settings", [{"sparsity": 1.5}, {"sparsity": -0.1}, {"sparsity": 0.5, "scope": "row"}]
)
def test_what_means_nothing_is_refused(settings):
    with pytest.raises(LabError, match=r"means nothing|no scope"):
        magnitude_masks(two_layers(), **settings)
