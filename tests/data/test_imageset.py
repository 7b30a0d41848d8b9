"""Batches: crop, mirror, resize and normalise against plain loops and torchvision."""

import pytest
import torch
from torchvision.transforms import functional

from labkit.data import ImageSet
from labkit.data._transforms import crop, crop_and_mirror, normalise, resize
from labkit.errors import DataError

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def some(count=50, classes=5, side=16, seed=0):
    chance = torch.Generator().manual_seed(seed)
    return ImageSet(
        images=torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=chance),
        labels=torch.arange(count) % classes,
        classes=tuple("abcdefghij"[:classes]),
        name="some",
        split="train",
        mean=MEAN,
        std=STD,
        digest="0" * 64,
    )


def test_normalising_is_that_of_torchvision():
    images = some().images
    assert torch.allclose(
        normalise(images, MEAN, STD), functional.normalize(images / 255, MEAN, STD), atol=1e-5
    )


def test_normalising_leaves_the_callers_floats_alone():
    images = some().images.float()
    before = images.clone()
    normalise(images, MEAN, STD)
    assert torch.equal(images, before)


def test_normalised_with_its_own_mean_a_set_has_mean_zero_and_deviation_one():
    images = some().images
    pixels = images / 255
    done = normalise(images, pixels.mean((0, 2, 3)).tolist(), pixels.std((0, 2, 3)).tolist())
    assert torch.allclose(done.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(done.std((0, 2, 3)), torch.ones(3), atol=1e-5)


def test_cropping_a_batch_is_cropping_each_image():
    images, chance = some(30).images, torch.Generator().manual_seed(1)
    down, right = (torch.randint(0, 5, (30,), generator=chance) for _ in range(2))
    mirror = torch.rand(30, generator=chance) < 0.5
    together = crop(images, down, right, mirror, border=(2, 2))
    for image, d, r, flipped, got in zip(images, down, right, mirror, together, strict=True):
        alone = functional.crop(functional.pad(image, [2, 2, 2, 2]), int(d), int(r), 16, 16)
        assert torch.equal(functional.hflip(alone) if flipped else alone, got)


def test_in_the_middle_and_unmirrored_a_crop_changes_nothing():
    images = some().images
    middle = torch.full((len(images),), 2)
    same = crop(images, middle, middle, torch.zeros(len(images), dtype=torch.bool), border=(2, 2))
    assert torch.equal(images, same)


def test_every_place_and_both_sides_come_up_about_equally_often():
    images = torch.zeros(4000, 1, 8, 8, dtype=torch.uint8)
    images[:, :, 4, 3] = 255  # one bright pixel; a border of 1 leaves 3 x 3 places, and two sides
    seen = crop_and_mirror(images, torch.Generator().manual_seed(0)).flatten(1).argmax(1).bincount()
    seen = seen[seen > 0]
    assert len(seen) == 3 * 4  # columns 2, 3, 4 and mirrored 3, 4, 5
    assert seen.sum() == 4000 and seen.min() > 4000 / 18 * 0.7 and seen.max() < 4000 / 9 * 1.3


@pytest.mark.parametrize("size", [8, 40, 224])
def test_resizing_is_that_of_torchvision(size):
    images = some(4).images
    wanted = functional.resize(images.float(), [size, size], antialias=True)
    assert torch.allclose(resize(images, size), wanted, atol=1e-3)


def test_a_resized_batch_is_resized_then_normalised():
    images, _ = next(iter(some().batches(8, size=40)))
    assert torch.allclose(images, normalise(resize(some().images[:8], 40), MEAN, STD), atol=1e-4)


def test_images_of_the_wanted_size_are_left_alone():
    images = some(4).images
    assert resize(images, 16) is images and resize(images, None) is images


def test_in_order_the_batches_are_the_set():
    one = some()
    got = list(one.batches(16))
    assert [len(labels) for _, labels in got] == [16, 16, 16, 2]
    assert torch.equal(torch.cat([labels for _, labels in got]), one.labels)
    assert torch.allclose(
        torch.cat([images for images, _ in got]), normalise(one.images, MEAN, STD)
    )


def test_a_shuffled_epoch_has_every_image_once_with_its_label():
    one = some()
    images, labels = (torch.cat(parts) for parts in zip(*one.batches(16, seed=3), strict=True))
    assert not torch.equal(labels, one.labels)
    places = {
        image.numpy().tobytes(): i for i, image in enumerate(normalise(one.images, MEAN, STD))
    }
    found = [places[image.numpy().tobytes()] for image in images]
    assert sorted(found) == list(range(50))
    assert torch.equal(one.labels[found], labels)


def test_the_same_seed_gives_the_same_epoch_and_another_seed_another():
    def epoch(seed):
        return torch.cat([images for images, _ in some().batches(16, seed=seed, augment=True)])

    assert torch.equal(epoch(1), epoch(1))
    assert not torch.equal(epoch(1), epoch(2))


@pytest.mark.parametrize(("drop_last", "count"), [(False, 4), (True, 3)])
def test_the_last_batch_may_be_smaller_or_is_left_out(drop_last, count):
    assert len(list(some().batches(16, drop_last=drop_last))) == count


def test_batches_are_made_where_and_as_they_are_wanted():
    (images, labels), *_ = some().batches(
        4, device="cpu", size=32, channels_last=True, augment=True
    )
    assert (
        images.shape == (4, 3, 32, 32)
        and images.dtype == torch.float32
        and labels.dtype == torch.int64
    )
    assert images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_sees_the_same_batches():
    settings = {"seed": 1, "augment": True, "size": 32}
    here, there = some().batches(16, **settings), some().batches(16, device="cuda", **settings)
    moved = some().to("cuda").batches(16, **settings)
    for (a, la), (b, lb), (c, lc) in zip(here, there, moved, strict=True):
        assert b.is_cuda and c.is_cuda and torch.equal(b, c)
        assert torch.allclose(a, b.cpu(), atol=1e-4)
        assert torch.equal(la, lb.cpu()) and torch.equal(la, lc.cpu())


@pytest.mark.parametrize("n", [1, 7, 10, 49, 50])
def test_a_subset_keeps_the_classes_in_proportion(n):
    part = some().subset(n)
    counts = part.labels.bincount(minlength=5)
    assert len(part) == n and counts.max() - counts.min() <= 1


def test_a_subset_of_uneven_classes_keeps_their_shares():
    uneven = some(100, 2)
    uneven.labels[:] = (torch.arange(100) >= 80).long()
    assert uneven.subset(10).labels.bincount().tolist() == [8, 2]


def test_a_subset_depends_on_its_seed_only():
    assert torch.equal(some().subset(10, seed=1).images, some().subset(10, seed=1).images)
    assert not torch.equal(some().subset(10, seed=1).images, some().subset(10, seed=2).images)


@pytest.mark.parametrize("n", [0, -1, 51])
def test_a_subset_of_none_or_more_than_all_is_refused(n):
    with pytest.raises(DataError, match="1 to 50"):
        some().subset(n)


def test_a_set_says_what_it_is():
    assert repr(some()) == "some train: 50 colour images 16 x 16, 5 classes"
