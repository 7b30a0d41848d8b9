"""MobileNet and ShuffleNet for small images: their multiply-adds by hand, and the shuffle."""

import pytest
import torch

from labkit.measure import multiply_adds
from labkit.models import build, example
from labkit.models.efficient import mobilenet, shuffled, shufflenet

# channels before, after; pixels a side after
BLOCKS = ((32, 64, 14), (64, 64, 14), (64, 128, 7), (128, 128, 7))
STEM, HEAD = 28 * 28 * 9 * 32, 128 * 10


def test_a_separable_block_multiplies_each_channel_on_its_own_and_then_across():
    blocks = sum(side**2 * (9 * before + before * after) for before, after, side in BLOCKS)
    assert multiply_adds(mobilenet(), example("mobilenet-mini", 1)) == STEM + blocks + HEAD


def test_the_plain_counterpart_multiplies_across_in_all_nine_places():
    blocks = sum(side**2 * 9 * before * after for before, after, side in BLOCKS)
    assert (
        multiply_adds(mobilenet(separable=False), example("mobilenet-plain", 1))
        == STEM + blocks + HEAD
    )


def test_a_shuffle_unit_multiplies_in_groups():
    groups, stem = 4, 28 * 28 * 9 * 24

    def unit(before, after, side_before, side):
        middle, new = after // 4, after - before if side < side_before else after
        return (
            side_before**2 * before * middle // groups
            + side**2 * 9 * middle
            + side**2 * middle * new // groups
        )

    first = unit(24, 96, 28, 14) + 2 * unit(96, 96, 14, 14)
    second = unit(96, 192, 14, 7) + 2 * unit(192, 192, 7, 7)
    assert (
        multiply_adds(shufflenet(), example("shufflenet-mini", 1))
        == stem + first + second + 192 * 10
    )


def test_the_shuffle_deals_the_channels_out_to_the_groups():
    x = torch.arange(6.0).reshape(1, 6, 1, 1)
    assert shuffled(x, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5]
    x = torch.randn(2, 12, 3, 3)
    assert torch.equal(shuffled(x, 4), torch.nn.ChannelShuffle(4)(x))
    assert torch.equal(shuffled(shuffled(x, 4), 3), x)


@pytest.mark.parametrize("changed", [0, 5])
def test_through_the_shuffle_every_group_hears_of_every_other(changed):
    """Of one unit, a change of one input channel reaches channels of all groups."""
    torch.manual_seed(0)
    unit = build("shufflenet-mini")[0].eval()[4]  # stride 1, 96 channels
    unit.activation = torch.nn.Identity()
    x = torch.randn(1, 96, 8, 8)
    y = x.clone()
    y[:, changed] += 1
    with torch.inference_mode():
        moved = (unit(x) - unit(y)).abs().amax((0, 2, 3)) > 1e-6
    assert moved.reshape(4, 24).any(1).all()
