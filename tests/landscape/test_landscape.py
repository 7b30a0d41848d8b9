"""The loss as a function of a flat vector of weights."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.data import ImageSet
from labkit.landscape import Landscape, interpolate, surface
from labkit.landscape.paths import _filter_normalised, _random_direction


def images(count=40):
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=random)
    labels = torch.arange(count) % 3
    return ImageSet(
        images=pixels,
        labels=labels,
        classes=("a", "b", "c"),
        name="noise",
        split="train",
        mean=(0.5,),
        std=(0.25,),
        digest="",
    )


def network(seed=0):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(16, 3))


def test_the_loss_at_the_solution_is_the_networks_own():
    net, data = network(), images()
    x, y = next(iter(data.batches(len(data))))
    with torch.no_grad():
        expected = float(cross_entropy(net.train()(x), y))
    assert Landscape.of(net, data, batch=len(data)).loss() == pytest.approx(expected, rel=1e-6)


def test_with_running_statistics_it_is_the_loss_of_eval_mode_in_any_chunks():
    net, data = network(), images()
    x, y = next(iter(data.batches(len(data))))
    with torch.no_grad():
        expected = float(cross_entropy(net.eval()(x), y))
        right = float((net(x).argmax(1) == y).float().mean())
    view = Landscape.of(net, data, batch=7, statistics="running")
    assert view.loss() == pytest.approx(expected, rel=1e-6)
    assert view.accuracy() == pytest.approx(right)


def test_the_gradient_is_that_of_backward():
    net, data = network(), images()
    x, y = next(iter(data.batches(len(data))))
    own = cross_entropy(net.train()(x), y)
    own.backward()
    expected = torch.cat([weight.grad.reshape(-1) for weight in net.parameters()])
    loss, slope = Landscape.of(net, data, batch=len(data)).gradient()
    torch.testing.assert_close(slope, expected, rtol=1e-4, atol=1e-6)
    assert loss == pytest.approx(float(own.detach()), rel=1e-5)


def test_the_network_stays_as_it_is():
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    view = Landscape.of(net, images())
    view.gradient(view.weights + 1)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_the_flat_vector_splits_into_the_parameters():
    net = network()
    view = Landscape.of(net, images())
    for name, weight in net.named_parameters():
        assert torch.equal(view.split(view.weights)[name], weight)


def test_a_line_begins_at_one_solution_and_ends_at_the_other():
    first, second = (Landscape.of(network(seed), images()) for seed in (0, 1))
    walk = interpolate(first, second.weights, [0, 0.5, 1])
    assert walk[0] == pytest.approx(first.loss())
    assert walk[2] == pytest.approx(second.loss(), rel=1e-5)
    between = first.loss((first.weights + second.weights) / 2)
    assert walk[1] == pytest.approx(between, rel=1e-5)


def test_a_line_through_a_quadratic_is_the_parabola_worked_by_hand():
    view = Landscape.function(lambda w: (w**2).sum(), torch.tensor([1.0, 0.0]))
    assert interpolate(view, torch.tensor([-1.0, 0.0]), [-0.5, 0, 0.25, 0.5, 1]) == pytest.approx([4, 1, 0.25, 0, 1])


def test_another_measure_is_taken_along_the_line():
    view = Landscape.function(lambda w: w.sum(), torch.zeros(2))
    assert list(interpolate(view, torch.ones(2), [0, 1], measure=lambda w: float(w[0]))) == [0, 1]


def test_every_filter_of_a_direction_is_as_long_as_the_filter_it_moves():
    view = Landscape.of(network(), images())
    weights, direction = view.split(view.weights), view.split(_random_direction(view, seed=3))
    for name in ("0.weight", "5.weight"):
        for filter, move in zip(weights[name], direction[name], strict=True):
            assert float(move.norm()) == pytest.approx(float(filter.norm()), rel=1e-5)
    assert not any(direction[name].any() for name in ("0.bias", "1.weight", "1.bias", "5.bias"))


def test_filter_normalising_by_hand():
    view = Landscape(((1.0, torch.sum),), torch.tensor([3.0, 4.0, 0.0, 2.0, 7.0]), {"w": (2, 2), "b": (1,)})
    found = _filter_normalised(torch.tensor([0.0, 2.0, 1.0, 0.0, 1.0]), view)
    assert found.tolist() == pytest.approx([0, 5, 2, 0, 0])


def test_a_surface_has_the_solution_in_its_middle_and_is_the_same_for_rescaled_filters():
    net, data = network(), images()
    plain = surface(Landscape.of(net, data), points=3)
    assert plain.loss[1, 1] == pytest.approx(Landscape.of(net, data).loss())
    with torch.no_grad():
        net[0].weight *= 5  # batch norm divides it out again
        net[0].bias *= 5
    assert surface(Landscape.of(net, data), points=3).loss == pytest.approx(plain.loss, rel=1e-3)


def test_a_surface_shows_the_first_direction_along_its_rows():
    view = Landscape(((1.0, lambda w: w[0] + 10 * w[1]),), torch.tensor([1.0, 1.0]), {"w": (2, 1)})
    first, second = _random_direction(view, seed=0), _random_direction(view, seed=1)
    found = surface(view, points=3, reach=0.5)
    moved = view.loss(view.weights + 0.5 * first - 0.5 * second)
    assert found.loss[2, 0] == pytest.approx(moved)
    assert found.x.tolist() == [-0.5, 0, 0.5]
