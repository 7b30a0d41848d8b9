"""Many trainings side by side, and the intervals between them."""

import copy
import math
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch

from labkit.data import load
from labkit.methods import Hooks
from labkit.models.cnn import cnn
from labkit.train import TrainConfig, fit, sweep, workers

BASE = TrainConfig(
    optimizer="sgd", learning_rate=0.05, schedule="cosine", weight_decay=0.0, batch=64, epochs=1
)


class Freeze(Hooks):
    """Puts the weights back after every step."""

    def begin(self, model):
        self.kept = [weight.detach().clone() for weight in model.parameters()]
        return model

    def after_update(self, model):
        for weight, kept in zip(model.parameters(), self.kept, strict=True):
            weight.data.copy_(kept)


def twice(logits, labels, images):
    return 2 * torch.nn.functional.cross_entropy(logits, labels)


@dataclass
class Row:
    name: str
    seed: int
    accuracy: float


def run(settings, make, data, *, seeds):
    jobs = [
        sweep.Job(name=name, config=replace(config, seed=seed), make=make, data=data)
        for name, config in settings.items()
        for seed in seeds
    ]
    return workers.work(sweep.tune_one, jobs)


def images():
    return sweep.halved(load("fashion-mnist", "train", limit=256)), sweep.halved(
        load("fashion-mnist", limit=100)
    )


@pytest.mark.parametrize(
    "settings", [{"ema": 0.8}, {"optimizer": "schedule_free", "schedule": "constant"}]
)
def test_an_average_of_the_weights_is_what_comes_out(settings):
    config, data = replace(BASE, **settings), images()
    torch.manual_seed(0)
    network = cnn(4)
    left = fit(network, data[0], config, device="cpu").model
    found = sweep.tune_one(
        sweep.Job(name="average", make=partial(cnn, 4), config=config, data=data)
    )
    for ours, theirs, last in zip(
        found.model.parameters(), left.parameters(), network.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs) and not torch.equal(ours, last)


def test_settings_are_compared_seed_by_seed():
    rows = [Row("a", 1, 82.0), Row("a", 0, 71.0), Row("a", 2, 3.0)]
    rows += [Row("b", 0, 70.0), Row("b", 2, 2.0), Row("b", 1, 81.0)]
    assert list(sweep.values(rows, "a")) == [71, 82, 3]
    assert (sweep.values(rows, "a") - sweep.values(rows, "b")).tolist() == [1, 1, 1]


def test_an_image_of_half_the_side_has_the_means_of_four_pixels():
    whole = load("fashion-mnist", "train", limit=20)
    small = sweep.halved(whole)
    assert small.images.shape == (20, 1, 14, 14)
    assert small.images.dtype == torch.uint8
    assert int(small.images[3, 0, 5, 6]) == pytest.approx(
        float(whole.images[3, 0, 10:12, 12:14].float().mean()), abs=0.5
    )


def test_every_setting_is_trained_with_every_seed_and_the_same_seed_gives_the_same_network(
    monkeypatch,
):
    monkeypatch.setattr(workers, "threads", lambda: 1)
    settings = {"a": BASE, "again": BASE}
    found = run(settings, partial(cnn, 2), images(), seeds=range(3))
    assert [(each.name, each.seed, each.steps) for each in found] == [
        (n, s, 4) for n in settings for s in range(3)
    ]
    assert (sweep.values(found, "a", "loss") == sweep.values(found, "again", "loss")).all()
    assert found[0].loss != found[1].loss
    assert all(0 <= each.accuracy <= 100 and each.loss > 0 for each in found)


def test_channels_last_trains_the_same_network_and_gives_it_back_in_the_usual_order(monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: 1)
    settings = {"usual": BASE, "last": replace(BASE, channels_last=True)}
    usual, last = run(settings, partial(cnn, 2), images(), seeds=[0])
    for mine, other in zip(last.model.parameters(), usual.model.parameters(), strict=True):
        assert mine.is_contiguous()
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_trained_network_is_left_with_the_statistics_of_the_training_images(monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: 1)
    train, _ = images()
    [found] = run({"a": BASE}, partial(cnn, 2), images(), seeds=[0])
    before = found.model[0][1].running_mean.clone()
    sweep.update_batch_norm(found.model, train, "cpu")
    torch.testing.assert_close(before, found.model[0][1].running_mean)


def test_running_statistics_are_those_of_the_training_images_afterwards():
    train, _ = images()
    torch.manual_seed(0)
    network = cnn(2)
    sweep.update_batch_norm(network, train, "cpu")
    x, _ = next(iter(train.batches(len(train))))
    seen = network[0][0](x)  # the first convolution
    torch.testing.assert_close(
        network[0][1].running_mean, seen.mean((0, 2, 3)), rtol=1e-4, atol=1e-5
    )


def test_a_job_of_its_own_loss_may_do_without_test_images():
    job = sweep.Job(name="untested", make=partial(cnn, 2), config=BASE, data=(images()[0], None))
    assert math.isnan(sweep.tune_one(job).accuracy)


@pytest.mark.slow
def test_a_job_begins_with_a_given_network_and_takes_hooks_and_a_loss(monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: 1)
    given = cnn(2)
    jobs = [
        sweep.Job(
            name="frozen",
            make=partial(copy.deepcopy, given),
            config=BASE,
            data=images(),
            hooks={"f": Freeze(0)},
        ),
        sweep.Job(
            name="own loss",
            make=partial(copy.deepcopy, given),
            config=BASE,
            data=images(),
            loss=twice,
        ),
        sweep.Job(name="plain", make=partial(copy.deepcopy, given), config=BASE, data=images()),
    ]
    frozen, own, plain = (
        list(each.model.parameters()) for each in workers.work(sweep.tune_one, jobs)
    )
    assert all(torch.equal(a, b) for a, b in zip(frozen, given.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(plain, given.parameters(), strict=True))
    assert not torch.equal(own[0], plain[0])
