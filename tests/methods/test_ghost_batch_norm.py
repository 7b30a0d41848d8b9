"""Ghost batch norm is batch norm of each group alone: values, gradients of both orders, layer,
whole networks.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from labkit import models
from labkit.errors import LabError
from labkit.methods.ghost_batch_norm import (
    GhostBatchNorm1d,
    GhostBatchNorm2d,
    _as_one_batch_norm,
    ghost_batch_norm,
    with_ghost_batch_norm,
)

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def sample(form="contiguous", dtype=torch.double, count=12, channels=5):
    torch.manual_seed(0)
    drift = torch.arange(count).view(-1, 1, 1, 1)
    x = (
        (torch.randn(count, channels, 4, 3) * (1 + drift) + drift)
        .to(dtype)
        .to(memory_format=FORMATS[form])
    )
    weight, bias = torch.rand(channels).to(dtype), torch.randn(channels).to(dtype)
    return x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()


def in_one(x, ghost_size, weight=None, bias=None, *, eps=1e-5):
    return _as_one_batch_norm(x, ghost_size, weight, bias, eps)[0]


def test_two_ghosts_worked_by_hand():
    x = torch.tensor([1.0, 3.0, 10.0, 30.0]).view(4, 1, 1, 1)
    for form in (ghost_batch_norm, in_one):
        assert form(x, 2, eps=1e-12).flatten().tolist() == pytest.approx([-1, 1, -1, 1])


@pytest.mark.parametrize("ghost_size", [1, 3, 4, 12])
@pytest.mark.parametrize("form", FORMATS)
def test_the_form_for_a_compiler_is_batch_norm_of_each_group_alone_forward_and_backward(
    form, ghost_size
):
    x, weight, bias = inputs = sample(form)
    wanted, found = (fn(x, ghost_size, weight, bias) for fn in (ghost_batch_norm, in_one))
    assert torch.allclose(found, wanted)
    assert wanted.is_contiguous(memory_format=FORMATS[form])
    assert found.is_contiguous(memory_format=FORMATS[form])
    slope = torch.randn_like(found)
    for theirs, ours in zip(
        *(torch.autograd.grad(y, inputs, slope) for y in (wanted, found)), strict=True
    ):
        assert torch.allclose(ours, theirs)


@pytest.mark.parametrize("form", FORMATS)
def test_first_and_second_derivatives_are_those_of_finite_differences(form):
    torch.manual_seed(0)
    x = torch.randn(4, 2, 2, 2, dtype=torch.double).to(memory_format=FORMATS[form]).requires_grad_()
    weight, bias = (torch.rand(2, dtype=torch.double, requires_grad=True) for _ in range(2))
    inputs = (x, weight, bias)
    assert torch.autograd.gradcheck(lambda x, w, b: ghost_batch_norm(x, 2, w, b), inputs)
    assert torch.autograd.gradgradcheck(lambda x, w, b: ghost_batch_norm(x, 2, w, b), inputs)


@pytest.mark.parametrize("form", FORMATS)
def test_half_precision_is_computed_in_float32(form):
    x, weight, bias = sample(form, torch.float32)
    wanted = ghost_batch_norm(x.bfloat16().float(), 4, weight, bias)
    found = ghost_batch_norm(x.bfloat16(), 4, weight, bias)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, wanted.bfloat16())
    assert torch.equal(
        in_one(x.bfloat16(), 4, weight, bias),
        in_one(x.bfloat16().float(), 4, weight, bias).bfloat16(),
    )


def test_without_weight_and_bias_each_ghost_has_mean_0_and_variance_1():
    y = ghost_batch_norm(sample()[0], 4).unflatten(0, (3, 4))
    assert torch.allclose(y.mean((1, 3, 4)), torch.zeros(3, 5, dtype=torch.double), atol=1e-6)
    assert torch.allclose(
        y.var((1, 3, 4), correction=0), torch.ones(3, 5, dtype=torch.double), atol=1e-4
    )


def test_one_ghost_of_the_whole_batch_is_the_batch_norm_layer_with_its_statistics():
    x = sample(dtype=torch.float32)[0].detach()
    ours, theirs = GhostBatchNorm2d(5, 12), nn.BatchNorm2d(5)
    for _ in range(3):
        assert torch.allclose(ours(x), theirs(x), atol=1e-5)
    for name, wanted in theirs.state_dict().items():
        assert torch.allclose(ours.state_dict()[name], wanted)
    assert torch.equal(
        ours.eval()(x), F.batch_norm(x, ours.running_mean, ours.running_var, ours.weight, ours.bias)
    )


@pytest.mark.parametrize("compiling", [False, True])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_move_towards_the_mean_of_those_of_the_ghosts(
    momentum, compiling, monkeypatch
):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    x, layer = sample(dtype=torch.float32)[0].detach(), GhostBatchNorm2d(5, 3, momentum=momentum)
    ghosts, share = x.unflatten(0, (4, 3)), 1 if momentum is None else momentum
    layer(x)
    assert torch.allclose(layer.running_mean, share * ghosts.mean((1, 3, 4)).mean(0))
    assert torch.allclose(layer.running_var, (1 - share) + share * ghosts.var((1, 3, 4)).mean(0))


def test_a_network_with_ghosts_shares_weights_and_statistics_and_infers_the_same():
    model, x = models.build("resnet18")[0], models.example("resnet18", 4)
    ghosts = with_ghost_batch_norm(model, 2)
    assert sum(isinstance(layer, GhostBatchNorm2d) for layer in ghosts.modules()) == 20
    assert not any(isinstance(layer, GhostBatchNorm2d) for layer in model.modules())
    assert all(a is b for a, b in zip(model.parameters(), ghosts.parameters(), strict=True))
    before = model.bn1.running_mean.clone()
    ghosts.train()(x)
    assert not torch.equal(model.bn1.running_mean, before)
    assert torch.equal(ghosts.eval()(x), model.eval()(x))


@pytest.mark.slow
def test_a_network_with_ghosts_trains_in_one_graph():
    net = with_ghost_batch_norm(models.build("vgg-small")[0], 2).to(
        memory_format=torch.channels_last
    )
    x = models.example("vgg-small", 4).to(memory_format=torch.channels_last)
    torch.compile(net, backend="eager", fullgraph=True)(x).square().sum().backward()
    assert all(weight.grad.isfinite().all() for weight in net.parameters())


@pytest.mark.parametrize("ghost_size", [5, 24, 0])
def test_a_batch_without_equal_groups_is_refused(ghost_size):
    with pytest.raises(LabError, match="found: 12 examples"):
        ghost_batch_norm(sample()[0], ghost_size)


def test_the_layer_for_rows_is_batch_norm_of_each_group_alone_and_plain_at_inference():
    torch.manual_seed(0)
    x = torch.randn(12, 5) * torch.arange(1, 13)[:, None]
    layer, plain = GhostBatchNorm1d(5, 4), nn.BatchNorm1d(5)
    wanted = torch.cat([plain(ghost) for ghost in x.split(4)])
    assert torch.allclose(layer(x), wanted, atol=1e-6)
    assert torch.allclose(layer.running_mean, 0.1 * x.view(3, 4, 5).mean(1).mean(0), atol=1e-6)
    layer.eval()
    alone = torch.cat([layer(row[None]) for row in x])
    # at inference an image's answer does not depend on the others
    assert torch.allclose(layer(x), alone, atol=1e-6)


def test_the_layer_for_rows_refuses_images_as_torchs_does():
    with pytest.raises(ValueError, match="expected 2D or 3D"):
        GhostBatchNorm1d(5, 4)(torch.ones(4, 5, 2, 2))


def test_batch_norms_of_rows_and_of_images_both_get_ghosts():
    model = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3), nn.BatchNorm1d(3))
    kinds = [type(layer) for layer in with_ghost_batch_norm(model, 4)]
    assert kinds == [GhostBatchNorm2d, nn.Flatten, nn.Linear, GhostBatchNorm1d]
    assert type(model[3]) is nn.BatchNorm1d


def test_the_form_for_a_compiler_takes_rows_too():
    torch.manual_seed(0)
    x = torch.randn(12, 5)
    assert torch.allclose(in_one(x, 4), ghost_batch_norm(x, 4), atol=1e-6)
