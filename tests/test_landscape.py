"""The loss as a function of a flat vector of weights, Hessian-vector products, eigenvalues and sharpness."""

import math
from itertools import product

import pytest
import torch
from torch import nn
from torch.func import grad, jvp, vmap
from torch.nn.functional import cross_entropy

from labkit.data import ImageSet
from labkit.landscape import Landscape, hessian_product, sharpness, top_eigenvalue, with_gradient


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


class Doubled:
    """An ImageSet whose batches are float64."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def batches(self, batch, *, device):
        return [(x.double(), y) for x, y in self.data.batches(batch, device=device)]


def exact():
    """The landscape of a network in float64."""
    return Landscape(network().double(), Doubled(images()))


def quadratic(eigenvalues, seed=0):
    """(w -> w A w / 2 with those eigenvalues, a point, A)."""
    random = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues), generator=random, dtype=torch.float64))
    matrix = turn @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ turn.T
    return lambda w: w @ matrix @ w / 2, torch.ones(len(eigenvalues), dtype=torch.float64), matrix


def test_the_loss_and_gradient_at_the_solution_are_the_networks_own():
    net, data = network(), images()
    x, y = next(iter(data.batches(len(data))))
    own = cross_entropy(net.train()(x), y)
    own.backward()
    expected = torch.cat([weight.grad.reshape(-1) for weight in net.parameters()])
    view = Landscape(net, data)
    loss, slope = with_gradient(view, view.weights)
    assert loss == pytest.approx(float(own.detach()), rel=1e-6)
    torch.testing.assert_close(slope, expected, rtol=1e-4, atol=1e-6)


def test_the_gradients_of_many_batches_at_once_are_those_of_one_after_the_other():
    net, data = network(), images()
    view, (x, y) = Landscape(net, data), next(iter(data.batches(len(data))))
    draws = torch.randint(len(data), (5, 8), generator=torch.Generator().manual_seed(0))
    copies = view.weights.repeat(len(draws), 1).requires_grad_()
    (found,) = torch.autograd.grad(vmap(view, chunk_size=2)(copies, x[draws], y[draws]).sum(), copies)
    assert found.shape == (5, len(view.weights))
    for slope, chosen in zip(found, draws, strict=True):
        own = torch.autograd.grad(cross_entropy(net.train()(x[chosen]), y[chosen]), list(net.parameters()))
        torch.testing.assert_close(slope, torch.cat([part.reshape(-1) for part in own]), rtol=1e-4, atol=1e-6)


def test_the_network_stays_as_it_is():
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    view = Landscape(net, images())
    with_gradient(view, view.weights + 1)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_the_flat_vector_splits_into_the_parameters():
    net = network()
    view = Landscape(net, images())
    for name, weight in net.named_parameters():
        assert torch.equal(view.split(view.weights)[name], weight)


def test_the_product_with_a_quadratics_hessian_is_the_matrix_product():
    loss, at, matrix = quadratic([5.0, 2.0, -1.0])
    v = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(hessian_product(loss, at)(v), matrix @ v)


@pytest.mark.filterwarnings("ignore:.*jit.*:DeprecationWarning", "ignore:.*jit.*:FutureWarning")  # torch's own tables
def test_the_product_agrees_with_forward_over_reverse_differentiation_of_a_network():
    view = exact()
    v = torch.randn(view.weights.shape, generator=torch.Generator().manual_seed(1)).double()
    _, expected = jvp(grad(view), (view.weights,), (v,))
    torch.testing.assert_close(hessian_product(view, view.weights)(v), expected)


def test_the_product_agrees_with_a_difference_of_gradients():
    view, step = exact(), 1e-5
    v = torch.randn(view.weights.shape, generator=torch.Generator().manual_seed(1)).double()
    ahead, behind = (with_gradient(view, view.weights + sign * step * v)[1] for sign in (1, -1))
    found = hessian_product(view, view.weights)(v)
    torch.testing.assert_close(found, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("eigenvalues", "top"), [([7.0, 3.0, 0.5], 7), ([2.0, 1.0, -9.0], 2), ([-1.0, -2.0, -4.0], -1)]
)
def test_the_largest_eigenvalue_of_a_quadratic_is_found_even_where_a_negative_one_is_larger_in_size(eigenvalues, top):
    loss, at, matrix = quadratic(eigenvalues)
    found = top_eigenvalue(loss, at, tolerance=1e-9)
    assert found.value == pytest.approx(top, rel=1e-5)
    torch.testing.assert_close(matrix @ found.vector, found.value * found.vector, rtol=0, atol=1e-4)


def test_where_the_loss_is_not_a_number_the_eigenvalue_is_none_either():
    assert math.isnan(top_eigenvalue(lambda w: w.square().sum() * math.nan, torch.ones(3)).value)
    assert math.isnan(top_eigenvalue(lambda w: w.square().sum() * math.inf, torch.ones(3)).value)


def test_a_flat_function_has_eigenvalue_zero():
    assert top_eigenvalue(lambda w: (w**2).sum() * 0, torch.ones(3)).value == 0


def test_a_networks_largest_eigenvalue_is_that_of_its_whole_hessian():
    view = exact()
    hessian = torch.autograd.functional.hessian(view, view.weights)
    found = top_eigenvalue(view, view.weights, tolerance=1e-8)
    assert found.value == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-4)


def test_scaling_a_filter_under_batch_norm_changes_curvature_but_no_prediction():
    net, data = network(), images()
    before = Landscape(net, data)
    with torch.no_grad():
        net[0].weight *= 0.2
        net[0].bias *= 0.2
    after = Landscape(net, data)
    assert float(after(after.weights)) == pytest.approx(float(before(before.weights)), abs=1e-3)
    assert top_eigenvalue(after, after.weights).value > 3 * top_eigenvalue(before, before.weights).value


def parabola(curvature, at):
    return lambda w: curvature / 2 * (w**2).sum(), torch.tensor(at, dtype=torch.float64)


def test_sharpness_at_the_bottom_of_a_bowl_worked_by_hand():
    """The box is |w| <= e around 0 in three dimensions: the highest loss is 3 (c / 2) e^2, and the loss is 0."""
    found = sharpness(*parabola(8.0, [0.0, 0.0, 0.0]), epsilon=0.1)
    assert found.value == pytest.approx(100 * 3 * 4 * 0.1**2)
    assert found.step.abs().tolist() == pytest.approx([0.1] * 3)


def test_sharpness_on_a_slope_worked_by_hand():
    """At w = 3 the box reaches 0.1 (3 + 1) = 0.4 to each side: from 9 to 3.4^2 = 11.56, over 1 + 9."""
    found = sharpness(*parabola(2.0, [3.0]), epsilon=0.1)
    assert (found.loss, found.highest) == pytest.approx((9, 11.56))
    assert found.value == pytest.approx(100 * 2.56 / 10)


def test_a_flat_loss_has_no_sharpness():
    assert sharpness(lambda w: 0 * w.sum() + 2, torch.ones(4)).value == 0


@pytest.mark.parametrize("seed", range(5))
def test_sharpness_of_a_convex_function_is_nearly_the_highest_of_all_corners(seed):
    loss, at, matrix = quadratic([9.0, 5.0, 4.0, 1.0, 0.5, 0.1], seed=seed)
    found = sharpness(loss, at, epsilon=0.3, starts=8)
    corners = (at + 0.6 * torch.tensor(signs, dtype=torch.float64) for signs in product((-1, 1), repeat=6))
    highest = max(float(w @ matrix @ w / 2) for w in corners)
    assert 0.97 * highest <= found.highest <= highest * (1 + 1e-9)


def test_more_starts_never_lower_sharpness_and_a_larger_box_raises_it():
    view = Landscape(network(), images())
    few, many, wide = (
        sharpness(view, view.weights, epsilon=e, starts=starts).value for e, starts in ((1e-3, 1), (1e-3, 4), (1e-2, 1))
    )
    assert 0 < few <= many < wide


def test_the_highest_point_lies_in_the_box_and_has_the_loss_it_says():
    view = Landscape(network(), images())
    found = sharpness(view, view.weights, epsilon=0.01)
    assert bool((found.step.abs() <= 0.0101 * (view.weights.abs() + 1)).all())
    assert float(view(view.weights + found.step)) == pytest.approx(found.highest, rel=1e-5)
    assert found.value == pytest.approx(100 * (found.highest - found.loss) / (1 + found.loss))


def test_sharpness_agrees_with_small_steps_of_projected_gradient_ascent():
    view = Landscape(network(), images())
    width, w = 1e-3 * (view.weights.abs() + 1), view.weights.clone()
    for _ in range(200):
        _, slope = with_gradient(view, w)
        w = torch.minimum(torch.maximum(w + 0.05 * width * slope.sign(), view.weights - width), view.weights + width)
    assert sharpness(view, view.weights).highest >= float(view(w)) * (1 - 1e-3)
