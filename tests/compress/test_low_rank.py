"""Low-rank factorisation: the same answers at full rank, the best approximation below it, weights counted."""

import pytest
import torch
from torch import nn

from labkit.compress import factorize, factorize_layer, rank_of
from labkit.errors import LabError
from labkit.models import build


def low_rank_layer(layer, split, rank, seed=0):
    """The layer with a weight of exactly this rank, as the split sees it."""
    random = torch.Generator().manual_seed(seed)
    weight = layer.weight
    out, rest = weight.shape[0], weight[0].numel()
    with torch.no_grad():
        if weight.ndim == 4 and split == "space":
            (o, i, h, w) = weight.shape
            product = torch.randn(o * w, rank, generator=random) @ torch.randn(rank, i * h, generator=random)
            weight.copy_(product.view(o, w, i, h).permute(0, 2, 3, 1))
        else:
            product = torch.randn(out, rank, generator=random) @ torch.randn(rank, rest, generator=random)
            weight.copy_(product.view(weight.shape))
    return layer


LAYERS = {
    "linear": (lambda: nn.Linear(24, 18), (5, 24)),
    "linear without bias": (lambda: nn.Linear(24, 18, bias=False), (5, 24)),
    "convolution": (lambda: nn.Conv2d(8, 10, 3, padding=1), (2, 8, 9, 9)),
    "stride, unequal sides": (
        lambda: nn.Conv2d(8, 10, (3, 5), stride=(2, 1), padding=(1, 0), bias=False),
        (2, 8, 9, 11),
    ),
}


@pytest.mark.parametrize("split", ["space", "channel"])
@pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS)
def test_a_layer_of_rank_three_is_found_to_be_two_thin_layers_with_the_same_answers(make, shape, split):
    layer = low_rank_layer(make(), split, rank=3)
    pair = factorize_layer(layer, energy=1 - 1e-9, split=split)
    assert isinstance(pair, nn.Sequential)
    assert pair[0].weight.shape[0] == 3
    x = torch.randn(shape)
    assert torch.allclose(pair(x), layer(x), rtol=1e-4, atol=1e-3)


def test_the_sides_of_a_convolution_are_tall_then_wide():
    pair = factorize_layer(nn.Conv2d(8, 10, 3, padding=1), share=0.5)
    assert [tuple(part.kernel_size) for part in pair] == [(3, 1), (1, 3)]
    pair = factorize_layer(nn.Conv2d(8, 10, 3, padding=1), share=0.5, split="channel")
    assert [tuple(part.kernel_size) for part in pair] == [(3, 3), (1, 1)]


def test_the_error_is_what_the_singular_values_left_out_say():
    layer = nn.Linear(30, 20)
    singular = torch.linalg.svdvals(layer.weight.detach())
    pair = factorize_layer(layer, share=0.5)  # rank 6: 6 * 50 of 600 weights
    assert pair[0].out_features == 6
    error = (pair[1].weight @ pair[0].weight - layer.weight).detach().norm()
    assert float(error) == pytest.approx(float(singular[6:].norm()), rel=1e-4)


def test_the_rank_by_energy_by_hand():
    singular = torch.tensor([3.0, 2.0, 1.0, 1.0])  # squares 9, 4, 1, 1 of 15
    assert [rank_of(singular, energy) for energy in (0.1, 0.6, 0.61, 0.86, 0.87, 0.94, 1.0)] == [1, 1, 2, 2, 3, 4, 4]


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_network_is_copied_keeps_its_shapes_and_at_most_that_share_of_what_was_factorized(share):
    model, shape = build("cnn-large")
    thin = factorize(model, share=share)
    x = torch.randn(2, *shape)
    assert thin.eval()(x).shape == model.eval()(x).shape
    for name, old in model.named_modules():
        new = thin.get_submodule(name)
        if type(new) is not type(old):
            within = sum(part.weight.numel() for part in new) <= share * old.weight.numel()
            assert within or len(new[0].weight) == 1, "rank 1 is the least"
    assert sum(w.numel() for w in thin.parameters()) < (share + 0.05) * sum(w.numel() for w in model.parameters())
    assert isinstance(thin[1][0], nn.Sequential)


def test_a_layer_that_would_not_shrink_and_one_with_groups_stay():
    layer = nn.Linear(4, 4)
    assert factorize_layer(layer, energy=1.0) is layer
    grouped = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8))
    assert isinstance(factorize(grouped, share=0.1)[0], nn.Conv2d)


@pytest.mark.parametrize(
    "settings",
    [{}, {"energy": 0.9, "share": 0.5}, {"energy": 1.1}, {"share": 0}, {"share": 0.5, "split": "time"}],
    ids=str,
)
def test_unclear_wishes_are_refused(settings):
    with pytest.raises(LabError, match="how far to factorize"):
        factorize_layer(nn.Linear(4, 4), **settings)
