"""The order of the images: another for every seed and every epoch, and the same again on every
machine.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from made_up import network, shapes

from labkit.train import (
    CheckpointError,
    TrainConfig,
    epoch_seed,
    fit,
    load_checkpoint,
    save_checkpoint,
)
from labkit.train.feed import Feed

CPU = torch.device("cpu")


def orders(images, *, seeds, epochs, **settings):
    """{(seed, epoch): the order of the images, as bytes} of so many trainings."""
    marked = replace(images, labels=torch.arange(len(images)))  # a label tells which image it is
    found = {}
    for seed in range(seeds):
        feed = Feed(marked, TrainConfig(batch=20, seed=seed, epochs=epochs, **settings), device=CPU)
        for epoch in range(epochs):
            found[seed, epoch] = (
                torch.cat([labels for _, labels in feed.epoch(epoch)]).numpy().tobytes()
            )
    return found


@pytest.mark.parametrize("workers", [None, 0])
def test_five_seeds_of_five_epochs_are_25_orders(workers):
    found = orders(shapes(), seeds=5, epochs=5, workers=workers)
    assert len(found) == len(set(found.values())) == 25


def test_single_images_come_in_the_order_of_whole_batches():
    assert orders(shapes(), seeds=2, epochs=3) == orders(shapes(), seeds=2, epochs=3, workers=0)


def test_the_seeds_of_epochs_do_not_meet():
    """300 seeds of 300 epochs: of 2**32 numbers, 90,000 drawn at random meet 0.9 times in the
    mean.
    """
    found = [epoch_seed(seed, epoch) for seed in range(300) for epoch in range(300)]
    assert len(found) - len(set(found)) <= 6
    assert all(0 <= each < 2**32 for each in found)


def test_neighbouring_seeds_and_epochs_differ_in_half_of_their_bits():
    table = [[epoch_seed(seed, epoch) for epoch in range(32)] for seed in range(32)]
    rows = [(a ^ b).bit_count() for row in table for a, b in pairwise(row)]
    columns = [
        (a ^ b).bit_count() for column in zip(*table, strict=True) for a, b in pairwise(column)
    ]
    for bits in (rows, columns):
        # the deviation of the mean is 0.09
        assert sum(bits) / len(bits) == pytest.approx(16, abs=0.5)


def test_the_hash_is_that_of_any_python_and_any_machine():
    """The numbers of numpy's SeedSequence, which its documentation promises to keep."""
    assert [epoch_seed(0, 0), epoch_seed(0, 1), epoch_seed(1, 0)] == [
        2968811710,
        3964924996,
        1835504127,
    ]


def test_a_checkpoint_of_the_older_order_is_not_gone_on_with(tmp_path):
    path, config = tmp_path / "c.pt", TrainConfig(batch=20, epochs=1)
    fit(network(), shapes(40), config, device="cpu", checkpoint=path)
    state, facts = load_checkpoint(path)
    assert facts.pop("order") == "hash of seed and epoch"
    save_checkpoint(path, state, facts)
    with pytest.raises(
        CheckpointError, match=r"order 'hash of seed and epoch'[\s\S]*order 'sum of seed and epoch'"
    ):
        fit(network(), shapes(40), config, device="cpu", checkpoint=path)
