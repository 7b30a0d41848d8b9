"""Every network by its name: shapes, sizes, gradients, exchangeable head and activation,
formats, graphs.
"""

import math

import pytest
import torch
from torch import nn

from labkit import models
from labkit.errors import LabError
from labkit.models.cnn import tiny
from labkit.models.resnet import resnet

CLASSES = {
    "convnext-homebrew": 200,
    "resnet50": 1000,
    "efficientnet-lite0": 1000,
    "encoder-small": 2,
    "minilm": 384,
}
LIGHT = ("cnn-small", "vgg-small", "shufflenet-mini", "convnext-mini", "encoder-small")
DECODERS = ("decoder-small", "decoder-medium")
TEXTS = ("encoder-small", "minilm", *DECODERS)
IMAGES = tuple(name for name in models.names() if name not in TEXTS)
EXCHANGEABLE = tuple(
    name for name in models.names() if name not in ("efficientnet-lite0", "minilm")
)


class Marked(nn.Tanh):
    """An activation that no network has of its own."""


def small_input(name, batch=2):
    """An input for the network: for those of large images, few pixels."""
    x = models.example(name, batch)
    return x[..., :32, :32] if x.ndim == 4 else x


@pytest.mark.parametrize("name", models.names())
def test_a_network_turns_its_example_into_logits(name):
    net, shape = models.build(name)
    x = models.example(name, 3)
    assert x.shape == (3, *shape)
    assert x.dtype == (torch.int64 if name in TEXTS else torch.float32)
    with torch.inference_mode():
        logits = net.eval()(x)
    assert logits.shape == ((3, 256, 256) if name in DECODERS else (3, CLASSES.get(name, 10)))
    assert logits.isfinite().all()


@pytest.mark.slow
# whose tokens are classes
@pytest.mark.parametrize("name", [name for name in models.names() if name not in DECODERS])
def test_every_parameter_learns_and_the_head_has_the_classes_asked_for(name):
    net, _ = models.build(name, classes=7)
    logits = net.train()(small_input(name, 4))
    assert logits.shape == (4, 7)
    nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    silent = [
        key
        for key, weight in net.named_parameters()
        if weight.grad is None or not weight.grad.isfinite().all()
    ]
    assert silent == []


@pytest.mark.parametrize("name", EXCHANGEABLE)
def test_the_activation_can_be_exchanged(name):
    with torch.device("meta"):  # no memory, no initial weights
        (net, _), (own, _) = models.build(name, activation=Marked), models.build(name)
    kinds = {type(layer) for layer in net.modules()}
    assert Marked in kinds and not {nn.ReLU, nn.GELU} & kinds
    assert len(net.state_dict()) == len(own.state_dict())


@pytest.mark.parametrize("name", IMAGES)
def test_channels_last_changes_only_the_order_in_memory(name):
    net, x = models.build(name)[0].eval(), small_input(name)
    with torch.inference_mode():
        wanted = net(x)
        found = net.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()


@pytest.mark.parametrize("name", ["convnext-mini", "resnet18"])
@pytest.mark.parametrize("side", [32, 64])
def test_small_colour_images_fit_as_well(name, side):
    net, shape = models.build(name, like=(3, side, side))
    with torch.inference_mode():
        assert net.eval()(torch.zeros(2, *shape)).shape[0] == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_a_network_is_one_graph_without_breaks(name):
    net, x = models.build(name)[0].eval(), models.example(name, 2)
    with torch.inference_mode():
        assert torch.equal(torch.compile(net, backend="eager", fullgraph=True)(x), net(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_a_network_exports_with_any_batch_size(name):
    net = models.build(name)[0].eval()
    program = torch.export.export(
        net, (models.example(name, 2),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    x = models.example(name, 5, seed=1)
    with torch.inference_mode():
        assert torch.allclose(program.module()(x), net(x), atol=1e-6)


@pytest.mark.parametrize("name", ["vgg-small", "encoder-small"])
def test_examples_follow_their_seed(name):
    assert torch.equal(models.example(name, 4, seed=1), models.example(name, 4, seed=1))
    assert not torch.equal(models.example(name, 4, seed=1), models.example(name, 4, seed=2))


def test_resnet_keeps_all_pixels_of_small_images_until_its_second_stage():
    def pixels(net):
        return net.layer1(
            net.maxpool(net.relu(net.bn1(net.conv1(torch.zeros(1, 3, 32, 32)))))
        ).shape[-1]

    assert pixels(resnet(18, channels=3)) == 32
    assert pixels(resnet(18)) == 8


def test_the_first_layer_of_another_number_of_channels_starts_with_torchvisions_scale():
    weight = resnet(18, channels=1).conv1.weight.detach()
    # Kaiming, fan out
    assert float(weight.std()) == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.1)


@pytest.mark.parametrize(
    "act", [models.build, models.recipe_of, lambda name: models.example(name, 1)]
)
def test_an_unknown_name_is_refused_with_those_there_are(act):
    with pytest.raises(LabError, match="convnext-homebrew"):
        act("resnet-9000")


@pytest.mark.parametrize(
    "name", ["cnn-small", "vgg-small", "vgg-medium", "shufflenet-mini", "convnext-mini", "resnet18"]
)
def test_a_network_for_small_images_is_built_like_the_images_it_will_see(name):
    net, shape = models.build(name, classes=7, like=(3, 32, 32))
    assert shape == (3, 32, 32)
    assert net.eval()(models.example(name, 2, shape=shape)).shape == (2, 7)
    assert models.build(name, like=(1, 500, 300))[1] == (1, 28, 28)


def test_the_tiny_network_has_the_weights_it_says_and_halves_the_image_three_times():
    net = tiny()
    assert f"{sum(weight.numel() for weight in net.parameters()):,}" in tiny.__doc__
    assert net[:-3](torch.randn(2, 1, 14, 14)).shape == (2, 32, 2, 2)
    assert net(torch.randn(2, 1, 14, 14)).shape == (2, 10)
