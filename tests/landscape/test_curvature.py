"""Hessian-vector products and the largest eigenvalue, against closed forms and second implementations."""

import pytest
import torch
from test_landscape import images, network
from torch.func import grad, jvp

from labkit.landscape import Landscape, top_eigenvalue
from labkit.landscape.curvature import _hessian_vector


def quadratic(eigenvalues, seed=0):
    """(landscape of w A w / 2 with those eigenvalues, A)."""
    random = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues), generator=random, dtype=torch.float64))
    matrix = turn @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ turn.T
    return Landscape.function(lambda w: w @ matrix @ w / 2, torch.ones(len(eigenvalues), dtype=torch.float64)), matrix


def test_the_product_with_a_quadratics_hessian_is_the_matrix_product():
    view, matrix = quadratic([5.0, 2.0, -1.0])
    v = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(_hessian_vector(view, v), matrix @ v)


@pytest.mark.filterwarnings("ignore:.*jit.*:DeprecationWarning", "ignore:.*jit.*:FutureWarning")  # torch's own tables
def test_the_product_agrees_with_forward_over_reverse_differentiation_of_a_network():
    view = Landscape.of(network().double(), Doubled(images()), batch=40)
    ((_, part),) = view.parts
    v = torch.randn(view.weights.shape, generator=torch.Generator().manual_seed(1)).double()
    _, expected = jvp(grad(part), (view.weights,), (v,))
    torch.testing.assert_close(_hessian_vector(view, v), expected)


def test_the_product_agrees_with_a_difference_of_gradients():
    view = Landscape.of(network().double(), Doubled(images()), batch=17)
    v = torch.randn(view.weights.shape, generator=torch.Generator().manual_seed(1)).double()
    step = 1e-5
    ahead, behind = (view.gradient(view.weights + sign * step * v)[1] for sign in (1, -1))
    torch.testing.assert_close(_hessian_vector(view, v), (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-7)


class Doubled:
    """An ImageSet whose batches are float64."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def batches(self, batch, *, device):
        return [(x.double(), y) for x, y in self.data.batches(batch, device=device)]


@pytest.mark.parametrize(
    ("eigenvalues", "top"), [([7.0, 3.0, 0.5], 7), ([2.0, 1.0, -9.0], 2), ([-1.0, -2.0, -4.0], -1)]
)
def test_the_largest_eigenvalue_of_a_quadratic_is_found_even_where_a_negative_one_is_larger_in_size(eigenvalues, top):
    view, matrix = quadratic(eigenvalues)
    found = top_eigenvalue(view, steps=300, tolerance=1e-9)
    assert found.value == pytest.approx(top, rel=1e-5)
    assert found.residual < 1e-2
    torch.testing.assert_close(matrix @ found.vector, found.value * found.vector, rtol=0, atol=1e-2)


def test_a_flat_function_has_eigenvalue_zero():
    assert top_eigenvalue(Landscape.function(lambda w: (w**2).sum() * 0, torch.ones(3))).value == 0


def test_a_networks_largest_eigenvalue_is_that_of_its_whole_hessian():
    view = Landscape.of(network().double(), Doubled(images()), batch=40)
    ((_, part),) = view.parts
    hessian = torch.autograd.functional.hessian(part, view.weights)
    found = top_eigenvalue(view, steps=500, tolerance=1e-8)
    assert found.value == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-4)


def test_scaling_a_filter_under_batch_norm_changes_curvature_but_no_prediction():
    net, data = network(), images()
    before = Landscape.of(net, data)
    with torch.no_grad():
        net[0].weight *= 0.2
        net[0].bias *= 0.2
    after = Landscape.of(net, data)
    assert after.loss() == pytest.approx(before.loss(), abs=1e-3)
    assert top_eigenvalue(after).value > 3 * top_eigenvalue(before).value


def test_the_products_are_counted_and_end_at_the_limit():
    view, _ = quadratic([7.0, 6.9, 0.5])
    assert top_eigenvalue(view, steps=4, tolerance=0).products == 4
