"""Channel pruning: the surgery against the whole network, and what is refused."""

import copy

import pytest
import torch
from torch import nn

from labkit.compress import without_channels
from labkit.errors import LabError
from labkit.export import as_written, to_onnx
from labkit.measure import multiply_adds
from labkit.models import build, example

PRUNABLE = ("cnn-small", "vgg-medium", "mobilenet-mini", "resnet18")


def norms(model):
    return [
        layer for layer in model.modules() if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d))
    ]


def lived_in(name):
    """A network in eval mode whose batch norms have scales, shifts and statistics that all
    differ.
    """
    torch.manual_seed(0)
    network = build(name)[0].eval()
    for norm in norms(network):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.2, 0.2)
        norm.running_mean.uniform_(-0.1, 0.1)
        norm.running_var.uniform_(0.5, 1.5)
    return network


def widths(model):
    return [norm.num_features for norm in norms(model)]


@pytest.mark.parametrize("name", PRUNABLE)
def test_removing_channels_that_are_silent_keeps_the_function(name):
    network, x = lived_in(name), example(name, 2)
    # the same channels everywhere, so that those added up are silent together
    for norm in norms(network):
        with torch.no_grad():
            norm.weight[1::2], norm.bias[1::2] = 0, 0
    smaller = without_channels(network, x, 0.5, scope="layer", multiple=1)
    assert widths(smaller) == [width // 2 for width in widths(network)]
    with torch.inference_mode():
        wanted, found = network(x), smaller(x)
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))


def test_the_channels_with_the_smallest_scales_of_all_layers_go():
    network, x = lived_in("vgg-small"), example("vgg-small", 2)
    scales = torch.cat([norm.weight for norm in norms(network)]).detach()
    limit = scales.sort().values[round(0.4 * len(scales)) - 1]
    smaller = without_channels(network, x, 0.4, multiple=1)
    for before, after in zip(norms(network), norms(smaller), strict=True):
        assert torch.equal(after.weight, before.weight[before.weight > limit])


def test_of_each_layer_the_same_share_goes():
    network, x = lived_in("vgg-small"), example("vgg-small", 2)
    assert widths(without_channels(network, x, 0.25, scope="layer", multiple=1)) == [12, 24, 48, 96]


def test_what_is_left_is_rounded_up_to_whole_blocks_of_channels():
    network, x = lived_in("vgg-small"), example("vgg-small", 2)
    assert widths(without_channels(network, x, 0.7, scope="layer", multiple=8)) == [8, 16, 24, 40]
    assert widths(without_channels(network, x, 1.0, multiple=8)) == [8, 8, 8, 8]
    assert widths(without_channels(network, x, 0.5, scope="layer", multiple=1000)) == widths(
        network
    )


def test_scales_that_are_all_equal_are_no_obstacle():
    network = build("vgg-small")[0]  # fresh: every scale is 1
    smaller = without_channels(network, example("vgg-small", 2), 0.5, scope="layer")
    assert widths(smaller) == [8, 16, 32, 64]


def test_the_network_itself_is_not_changed_and_a_share_of_0_takes_nothing():
    network, x = lived_in("cnn-small"), example("cnn-small", 2)
    kept = copy.deepcopy(network.state_dict())
    whole, smaller = without_channels(network, x, 0), without_channels(network, x, 0.5, multiple=1)
    with torch.inference_mode():
        assert torch.equal(whole(x), network(x))
    assert all(torch.equal(kept[name], value) for name, value in network.state_dict().items())
    assert multiply_adds(smaller, x) < 0.6 * multiply_adds(network, x)


@pytest.mark.slow
def test_a_smaller_network_trains_and_exports_like_any_other(tmp_path):
    x = example("cnn-small", 3)
    smaller = without_channels(lived_in("cnn-small"), x, 0.6, multiple=1)
    smaller.train()(x).square().mean().backward()
    assert all(weight.grad is not None for weight in smaller.parameters())
    path = to_onnx(smaller.eval(), x, tmp_path / "smaller.onnx")
    with torch.inference_mode():
        wanted = smaller(x)
    assert torch.allclose(as_written(path)(x), wanted, atol=1e-4 * float(wanted.abs().max()))


@pytest.mark.parametrize(
    ("name", "share", "scope", "says"),
    [
        ("shufflenet-mini", 0.5, "global", "in groups"),
        ("convnext-mini", 0.5, "global", "No batch norm"),
        ("cnn-small", 1.5, "global", "1.5"),
        ("cnn-small", -0.1, "global", "-0.1"),
        ("cnn-small", 0.5, "everywhere", "everywhere"),
    ],
)
def test_what_cannot_be_pruned_is_refused(name, share, scope, says):
    with pytest.raises(LabError, match=says):
        without_channels(build(name)[0], example(name, 2), share, scope=scope)
