"""ConvNeXt: exactly the published size, and the block of the paper."""

import torch
from torch.nn import functional as F

from labkit import models
from labkit.models.convnext import Block, convnext


def parameters(net):
    return sum(weight.numel() for weight in net.parameters())


def test_the_homebrew_has_the_18166472_parameters_of_the_published_one():
    assert parameters(models.build("convnext-homebrew")[0]) == 18_166_472


def test_its_size_worked_by_hand():
    widths, depths = (96, 192, 384, 768), (1, 3, 9, 1)
    stem = 4 * 4 * 3 * 96 + 96
    # 5x5 depthwise, layer norm, two linear layers, each with its bias
    blocks = sum(
        n * (25 * c + c + 2 * c + 4 * c * c + 4 * c + 4 * c * c + c)
        for c, n in zip(widths, depths)  # noqa: B905
    )
    down = sum(2 * a + 2 * 2 * a * b + b for a, b in zip(widths, widths[1:]))  # noqa: B905, RUF007
    head = 2 * 768 + 768 * 200 + 200
    assert stem + blocks + down + head == 18_166_472
    with torch.device("meta"):
        assert parameters(convnext(widths, depths, classes=200)) == 18_166_472


def test_the_small_sibling_has_as_many_as_its_docstring_says():
    assert parameters(models.build("convnext-mini")[0]) == 223_834
    assert "223,834" in models.convnext.__doc__


def test_a_block_is_its_equation():
    torch.manual_seed(0)
    block, x = Block(8, torch.nn.GELU), torch.randn(2, 8, 6, 6)
    weight = dict(block.named_parameters())
    mixed = F.conv2d(x, weight["depthwise.weight"], weight["depthwise.bias"], padding=2, groups=8)
    mean, var = mixed.mean(1, keepdim=True), mixed.var(1, keepdim=True, correction=0)
    y = (mixed - mean) / (var + 1e-6).sqrt()  # the norm starts with weight 1 and bias 0
    # as 1x1 convolutions, which the linear layers are
    y = F.gelu(F.conv2d(y, weight["mlp.0.weight"][:, :, None, None], weight["mlp.0.bias"]))
    y = F.conv2d(y, weight["mlp.2.weight"][:, :, None, None], weight["mlp.2.bias"])
    assert torch.allclose(block(x), x + y, atol=1e-5)


def test_channels_last_stays_channels_last_through_the_network():
    net = models.build("convnext-mini")[0].to(memory_format=torch.channels_last)
    x = torch.zeros(2, 1, 28, 28).to(memory_format=torch.channels_last)
    for layer in net[:-3]:
        x = layer(x)
        assert x.is_contiguous(memory_format=torch.channels_last)
