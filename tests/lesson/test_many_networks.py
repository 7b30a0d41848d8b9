"""Many networks trained at once are the networks that a loop over the seeds trains."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from labkit.device import using_threads
from labkit.errors import LabError
from labkit.lesson.support import load_support

many_networks = load_support("many_networks")
AT_ONCE, train_many = many_networks.AT_ONCE, many_networks.train_many

EPOCHS, BATCH, RATE = 40, 20, 0.01


@pytest.fixture(autouse=True)
def one_thread():
    """Two threads that wait for each other are slow where another program runs."""
    with using_threads(1):
        yield


def build():
    return nn.Sequential(nn.Linear(6, 8), nn.Hardswish(), nn.Linear(8, 3))


@pytest.fixture
def made_up():
    rng = torch.Generator().manual_seed(1)
    labels = torch.randint(3, (320,), generator=rng)
    images = torch.randn(320, 6, generator=rng) + labels[:, None]
    # 195 images: the last batch has 15
    return (images[:195], labels[:195]), (images[195:], labels[195:])


def one_by_one(data, test, seed, rate=RATE, epochs=EPOCHS):
    """The plain loop: (losses of the epochs, which test images are right)."""
    images, labels = data
    torch.manual_seed(seed)
    network = build()
    optimizer = torch.optim.AdamW(network.parameters(), rate)
    schedule = OneCycleLR(optimizer, rate, total_steps=epochs * math.ceil(len(images) / BATCH))
    losses = []
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(images)).split(BATCH):
            loss = F.cross_entropy(network(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        losses.append(total / len(images))
    return np.array(losses), (network(test[0]).argmax(1) == test[1]).numpy()


def test_each_of_many_networks_is_the_one_of_a_loop_over_400_steps(made_up):
    data, test = made_up
    seeds = [3, 0, 11]
    runs = train_many(build, data, seeds, test=test, learning_rate=RATE, epochs=EPOCHS, batch=BATCH)
    assert runs.seeds == (3, 0, 11)
    for seed, run in zip(seeds, runs, strict=True):
        losses, right = one_by_one(data, test, seed)
        assert len(losses) * math.ceil(195 / BATCH) == 400
        np.testing.assert_allclose(run.losses, losses, atol=1e-5)
        np.testing.assert_array_equal(run.right, right)
        assert run.accuracy == pytest.approx(100 * right.mean())


def test_more_seeds_than_fit_at_once_come_back_in_order_and_do_not_touch_each_other(made_up):
    data, test = made_up
    settings = {"test": test, "learning_rate": RATE, "epochs": 1, "batch": BATCH}
    many = train_many(build, data, range(AT_ONCE + 2), **settings)
    assert len(many) == AT_ONCE + 2
    last = train_many(build, data, [AT_ONCE + 1], **settings)
    np.testing.assert_allclose(many[-1].losses, last[0].losses, atol=1e-6)
    assert len({run.losses[0] for run in many}) == AT_ONCE + 2, (
        "each seed has a training of its own"
    )
    assert (many - last).tolist() == pytest.approx([0.0])


def test_a_convolution_can_be_stacked_too(made_up):
    (images, labels), _ = made_up
    pictures = images.view(-1, 1, 2, 3)

    def small_cnn():
        return nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))

    data = pictures, labels
    runs = train_many(small_cnn, data, range(2), test=data, learning_rate=RATE, epochs=10)
    assert (runs.losses[:, -1] < runs.losses[:, 0]).all()
    assert (runs.accuracy > 40).all()


@pytest.mark.parametrize(
    ("layer", "words"),
    [(nn.BatchNorm1d(8), "batch norm"), (nn.Dropout(0.5), "dropout")],
    ids=["norm", "dropout"],
)
def test_networks_whose_layers_do_more_than_compute_are_refused(made_up, layer, words):
    data, test = made_up
    with pytest.raises(LabError, match=words):
        train_many(
            lambda: nn.Sequential(nn.Linear(6, 8), layer), data, [0], test=test, learning_rate=RATE
        )
