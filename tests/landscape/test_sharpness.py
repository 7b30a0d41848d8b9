"""Sharpness in a box, against values worked by hand and a search over all corners."""

from itertools import product

import pytest
import torch
from test_curvature import quadratic
from test_landscape import images, network

from labkit.landscape import Landscape, sharpness


def parabola(curvature, at):
    return Landscape.function(lambda w: curvature / 2 * (w**2).sum(), torch.tensor(at, dtype=torch.float64))


def test_at_the_bottom_of_a_bowl_worked_by_hand():
    """The box is |w| <= e around 0 in three dimensions: the highest loss is 3 (c / 2) e^2, and the loss is 0."""
    found = sharpness(parabola(8.0, [0.0, 0.0, 0.0]), epsilon=0.1)
    assert found.value == pytest.approx(100 * 3 * 4 * 0.1**2)
    assert found.weights.abs().tolist() == pytest.approx([0.1] * 3)


def test_on_a_slope_worked_by_hand():
    """At w = 3 the box reaches 0.1 (3 + 1) = 0.4 to each side: from 9 to 3.4^2 = 11.56, over 1 + 9."""
    found = sharpness(parabola(2.0, [3.0]), epsilon=0.1)
    assert (found.loss, found.highest) == pytest.approx((9, 11.56))
    assert found.value == pytest.approx(100 * 2.56 / 10)


def test_a_flat_loss_has_no_sharpness():
    assert sharpness(Landscape.function(lambda w: 0 * w.sum() + 2, torch.ones(4))).value == 0


@pytest.mark.parametrize("seed", range(5))
def test_of_a_convex_function_it_is_nearly_the_highest_of_all_corners(seed):
    view, matrix = quadratic([9.0, 5.0, 4.0, 1.0, 0.5, 0.1], seed=seed)
    found = sharpness(view, epsilon=0.3, starts=8)
    corners = (view.weights + 0.6 * torch.tensor(signs, dtype=torch.float64) for signs in product((-1, 1), repeat=6))
    highest = max(float(w @ matrix @ w / 2) for w in corners)
    assert 0.97 * highest <= found.highest <= highest * (1 + 1e-9)


def test_more_starts_never_lower_it_and_a_larger_box_raises_it():
    view = Landscape.of(network(), images())
    few, many, wide = (
        sharpness(view, epsilon=e, starts=starts).value for e, starts in ((1e-3, 1), (1e-3, 4), (1e-2, 1))
    )
    assert 0 < few <= many < wide


def test_the_highest_point_lies_in_the_box_and_has_the_loss_it_says():
    view = Landscape.of(network(), images())
    found = sharpness(view, epsilon=0.01)
    assert bool(((found.weights - view.weights).abs() <= 0.0101 * (view.weights.abs() + 1)).all())
    assert view.loss(found.weights) == pytest.approx(found.highest, rel=1e-5)
    assert found.value == pytest.approx(100 * (found.highest - found.loss) / (1 + found.loss))


def test_it_agrees_with_small_steps_of_projected_gradient_ascent():
    view = Landscape.of(network(), images())
    width, w = 1e-3 * (view.weights.abs() + 1), view.weights.clone()
    for _ in range(200):
        _, slope = view.gradient(w)
        w = torch.minimum(torch.maximum(w + 0.05 * width * slope.sign(), view.weights - width), view.weights + width)
    assert sharpness(view).highest >= view.loss(w) * (1 - 1e-3)
