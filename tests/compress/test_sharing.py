"""Weight sharing: k-means against a plain one and all partitions, the centroid's gradient by hand."""

import itertools

import numpy as np
import pytest
import torch
from made_up import network, shapes, weights
from torch import nn

from labkit.compress import SharedWeights, apply_masks, magnitude_masks, prunable, share
from labkit.compress.magnitude import masks_of
from labkit.compress.sharing import _kmeans
from labkit.train import TrainConfig, accuracy, fit


def plain_kmeans(values, count):
    """Lloyd's rounds as a textbook has them: every number against every centroid."""
    centroids = np.linspace(values.min(), values.max(), count)
    for _ in range(200):
        index = np.abs(values[:, None] - centroids).argmin(1)
        centroids = np.array([values[index == k].mean() if (index == k).any() else centroids[k] for k in range(count)])
    return centroids, index


@pytest.mark.parametrize("count", [1, 2, 5, 16, 33])
def test_sorted_ranges_give_what_the_textbook_gives(count):
    values = np.random.default_rng(count).normal(size=500)
    centroids, index = _kmeans(values, count)
    wanted, of = plain_kmeans(values, count)
    assert centroids == pytest.approx(wanted)
    assert index.tolist() == of.tolist()


def test_a_small_example_by_hand_is_the_best_of_all_partitions():
    values = np.array([0.0, 1.0, 2.0, 10.0, 11.0])
    centroids, index = _kmeans(values, 2)  # begun at 0 and 11
    assert centroids.tolist() == [1, 10.5]
    assert index.tolist() == [0, 0, 0, 1, 1]

    def error(cut):
        return sum(((part - part.mean()) ** 2).sum() for part in np.split(values, [cut]))

    assert ((values - centroids[index]) ** 2).sum() == min(error(cut) for cut in range(1, 5)) == 2.5


def test_more_centroids_than_numbers_give_the_numbers_back():
    centroids, index = _kmeans([3.0, 1.0, 2.0], 5)
    assert centroids[index].tolist() == [3, 1, 2]
    assert _kmeans([2.0, 2.0], 4)[0][_kmeans([2.0, 2.0], 4)[1]].tolist() == [2, 2]


def test_a_shared_layer_has_so_many_values_and_its_zeros():
    model = apply_masks(network(), magnitude_masks(network(), 0.5))
    masks = masks_of(model)
    share(model, bits=2)
    assert all(len(weight[weight != 0].unique()) <= 4 for weight in prunable(model).values())
    assert all(torch.equal(mask, masks[name]) for name, mask in masks_of(model).items())
    again = weights(model)
    assert torch.equal(weights(share(model, bits=2)), again), "shared weights stay as they are"


def test_the_gradient_of_a_centroid_is_that_of_a_network_whose_parameter_it_is():
    model = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0, 0.0], [2.0, 2.0, 1.0]]))
    hook = SharedWeights(bits=1)
    hook.begin(model)
    x, target = torch.randn(5, 3), torch.randn(5, 2)
    (model(x) - target).square().sum().backward()
    codebook = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    (x @ codebook[torch.tensor([[1, 2, 0], [2, 2, 1]])].T - target).square().sum().backward()
    hook.before_update(model)
    wanted = codebook.grad * torch.tensor([0, 1, 1])
    assert torch.allclose(model.weight.grad, wanted[torch.tensor([[1, 2, 0], [2, 2, 1]])], atol=1e-5)


def trained(seed=0, checkpoint=None, epochs=4, **settings):
    model = network(seed)
    apply_masks(model, magnitude_masks(model, 0.4))
    hook, config = SharedWeights(bits=2), TrainConfig(epochs=epochs, batch=20, learning_rate=0.02, **settings)
    fit(model, shapes(), config, device="cpu", hooks={"share": hook}, checkpoint=checkpoint)
    return model, hook


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_training_moves_the_centroids_and_nothing_else(optimizer):
    start = apply_masks(network(), magnitude_masks(network(), 0.4))
    masks = masks_of(start)
    share(start, bits=2)
    model, _ = trained(optimizer=optimizer, weight_decay=0.05)
    assert all(torch.equal(mask, masks[name]) for name, mask in masks_of(model).items())
    for name, weight in prunable(model).items():
        before = prunable(start)[name]
        assert len(weight[weight != 0].unique()) <= 4
        assert all(len(weight[before == value].unique()) == 1 for value in before.unique())
        assert not torch.equal(weight, before)
    assert accuracy(model, shapes(40, seed=1), device="cpu") > accuracy(start, shapes(40, seed=1), device="cpu")


def test_a_resumed_training_of_centroids_ends_as_one_that_never_stopped(tmp_path, monkeypatch):
    whole, _ = trained()
    path = tmp_path / "c.json"
    steps = itertools.count(1)
    update = SharedWeights.after_update

    def stops(self, model):
        update(self, model)
        if next(steps) == 14:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SharedWeights, "after_update", stops)
        trained(checkpoint=path)
    resumed, _ = trained(seed=5, checkpoint=path)  # other weights, whose groups are others
    assert torch.equal(weights(whole), weights(resumed))
