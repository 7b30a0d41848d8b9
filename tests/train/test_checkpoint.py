"""Checkpoints: exact resume, damage refused, kills survived."""

import dataclasses
import itertools
import math
import os
import signal
import time
import zipfile

import pytest
import torch
from made_up import network, shapes, weights

from labkit import models
from labkit.train import (
    CheckpointError,
    History,
    TrainConfig,
    accuracy,
    checkpoint,
    epoch_seed,
    fit,
    load_checkpoint,
    optimizers,
    restored,
    save_checkpoint,
)

CASES = {
    "plain": {},
    "sgd with momentum and a step schedule": {
        "optimizer": "sgd",
        "schedule": "step",
        "learning_rate": 0.1,
    },
    "fp16 with a scaler": {"amp": "fp16"},
    "an average of the weights": {"ema": 0.9},
    "lamb, warm-up, clipping": {
        "optimizer": "lamb",
        "schedule": "cosine",
        "warmup": "gradual",
        "warmup_epochs": 1,
        "clip": 1.0,
    },
    "a loader of single augmented images": {"workers": 0, "augment": True},
    "ghost batch norm": {"ghost_size": 10},
    "averages of batch norm that follow fast": {"norm_momentum": 0.4},
    "a batch in parts": {"accumulate": 4, "ema": 0.9},
    "growing images": {"first_size": 8, "size": 10, "ema": 0.9},
    **{
        f"optimizer {name}": {"optimizer": name, "schedule": "constant"}
        for name in optimizers.names()
    },
}


class Stopped(Exception):
    pass


class StopsAfter:
    """A set whose power is cut in the middle of an epoch."""

    def __init__(self, whole, epoch):
        self.whole, self.epoch = whole, epoch

    def __len__(self):
        return len(self.whole)

    def __getattr__(self, name):
        return getattr(self.whole, name)

    def batches(self, batch, *, seed=None, **how):
        for number, pair in enumerate(self.whole.batches(batch, seed=seed, **how)):
            if seed == epoch_seed(0, self.epoch) and number == 2:
                raise Stopped
            yield pair


def run(path, config, images, seed=0):
    model = network(seed, dropout=0.3)  # dropout draws random numbers in each step
    return model, fit(model, (images, shapes(40, seed=1)), config, device="cpu", checkpoint=path)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_six_epochs_equal_three_a_power_cut_and_three_bit_for_bit(settings, tmp_path):
    config = TrainConfig(**{"epochs": 6, "batch": 20, "learning_rate": 0.02, **settings})
    whole, history = run(None, config, shapes())
    if config.workers is None:
        with pytest.raises(Stopped):
            run(tmp_path / "c.pt", config, StopsAfter(shapes(), epoch=3))
    else:
        stop_after_saving(tmp_path / "c.pt", config, epochs=3)
    torch.manual_seed(99)  # whatever the new process drew before
    resumed, rest = run(tmp_path / "c.pt", config, shapes(), seed=5)
    assert torch.equal(weights(whole), weights(resumed))
    assert (rest.losses, rest.accuracy) == (history.losses, history.accuracy)
    assert (history.model is None) == (rest.model is None)
    if history.model:
        assert torch.equal(weights(history.model), weights(rest.model))


def stop_after_saving(path, config, epochs):
    class Stopping(checkpoint.Checkpoint):
        def save(self, history, tested):
            super().save(history, tested)
            if len(history.epoch_seconds) == epochs:
                raise Stopped

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("labkit.train.loop.Checkpoint", Stopping)
        run(path, config, shapes())


def test_a_resume_that_forgets_the_random_numbers_is_caught(tmp_path, monkeypatch):
    config = TrainConfig(epochs=4, batch=20)
    whole, _ = run(None, config, shapes())
    with pytest.raises(Stopped):
        run(tmp_path / "c.pt", config, StopsAfter(shapes(), epoch=2))
    monkeypatch.setattr("labkit.device.set_rng_state", lambda device, state: None)
    resumed, _ = run(tmp_path / "c.pt", config, shapes())
    assert not torch.equal(weights(whole), weights(resumed))


def test_a_finished_training_is_not_trained_again(tmp_path):
    config = TrainConfig(epochs=2, batch=20)
    model, history = run(tmp_path / "c.pt", config, shapes())
    again, same = run(tmp_path / "c.pt", config, shapes(), seed=5)
    assert torch.equal(weights(model), weights(again))
    assert same.losses == history.losses


def test_one_file_holds_the_training_and_what_it_was(tmp_path):
    run(tmp_path / "kept" / "c.pt", TrainConfig(epochs=3, batch=20), shapes())
    _, facts = load_checkpoint(tmp_path / "kept" / "c.pt")
    assert facts["config"]["epochs"] == 3
    assert len(facts["history"]["losses"]) == 18
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["c.pt"]


def trees():
    tied = torch.arange(3.0)
    return {
        "numbers as keys": {0: torch.ones(2), 1: torch.zeros(2, dtype=torch.int64)},
        "one tensor under two names": {"a": tied, "b": tied, "view": tied[1:]},
        "plain values": [None, True, 3, 0.1, float("inf"), "text", (1, 2)],
        "scalars and empty": {"step": torch.tensor(3.0), "none": torch.empty(0), "list": []},
        "bytes": torch.tensor([0, 255], dtype=torch.uint8),
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b and type(a) is type(b)


def test_what_is_saved_comes_back_exactly(tmp_path):
    save_checkpoint(tmp_path / "c.pt", trees(), {"note": "x"})
    state, facts = load_checkpoint(tmp_path / "c.pt")
    assert same(trees(), state)
    assert facts == {"note": "x"}


def test_no_checkpoint_is_none(tmp_path):
    assert load_checkpoint(tmp_path / "c.pt") is None


class Runs:
    """Would call a function when it is unpickled."""

    def __reduce__(self):
        return print, ("code of the file ran",)


def flip_a_bit(path):
    with zipfile.ZipFile(path) as file:
        largest = max(file.infolist(), key=lambda part: part.file_size)
        content = file.read(largest)
    data = bytearray(path.read_bytes())
    # between the parts lies padding, which nothing reads
    data[data.index(content) + len(content) // 2] ^= 1
    path.write_bytes(bytes(data))


def a_folder(path):
    path.unlink()
    path.mkdir()


def a_foreign_zip(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("letter.txt", "no tensors at all")


def changed(change):
    """A damage: `change` does something to the contents, which are written as they should be
    before and after.
    """

    def damage(path):
        contents = torch.load(path, weights_only=True)
        change(contents)
        torch.save(contents, path)

    return damage


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("[1, 2]"),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-50]),
    "one bit of the weights": flip_a_bit,
    "a folder": a_folder,
}
FOREIGN = {
    "a foreign zip": a_foreign_zip,
    "a pickle that runs code": lambda path: torch.save(Runs(), path),
    "a file of other contents": lambda path: torch.save([1, 2], path),
    "another format": changed(lambda contents: contents.update(format="x")),
    "no state": changed(lambda contents: contents.pop("state")),
}
UNFIT = {
    "no config": changed(lambda contents: contents["facts"].pop("config")),
    "no losses": changed(lambda contents: contents["facts"]["history"].pop("losses")),
    "a history of numbers": changed(
        lambda contents: contents["facts"].update(history={"losses": 5})
    ),
    "a network without layers": changed(lambda contents: contents["state"].update(model={})),
    "a network that is text": changed(lambda contents: contents["state"].update(model="text")),
    "an optimizer without state": changed(lambda contents: contents["state"].update(optimizer={})),
    "random numbers that are none": changed(
        lambda contents: contents["state"].update(rng={"cpu": 5})
    ),
}


def kinds_of_harm():
    """pytest's parameters: what is done to the file, and what is then said of it."""
    for harms, words in (
        (DAMAGE, "is damaged"),
        (FOREIGN, "but no checkpoint"),
        (UNFIT, "cannot go on from it"),
    ):
        yield from (pytest.param(harm, words, id=name) for name, harm in harms.items())


@pytest.mark.parametrize(("harm", "words"), list(kinds_of_harm()))
def test_a_file_that_cannot_be_gone_on_from_is_refused_and_a_whole_one_not_called_damaged(
    harm, words, tmp_path, capsys
):
    path = tmp_path / "c.pt"
    run(path, TrainConfig(epochs=1, batch=20), shapes())
    harm(path)
    with pytest.raises(CheckpointError, match=words) as refused:
        run(path, TrainConfig(epochs=1, batch=20), shapes())
    assert "delete" not in str(refused.value)
    assert "code of the file ran" not in capsys.readouterr().out


LAYERS = models.build("cnn-small", classes=10)[0].state_dict()
NO_NETWORK = {  # each written as it should be
    "no model": {},
    "a model that is a list": {"model": [1, 2]},
    "a state that is a list": [LAYERS],
    "a model without layers": {"model": {}},
    "layers that are numbers": {"model": dict.fromkeys(LAYERS, 5)},
    "a first layer without channels": {"model": {**LAYERS, next(iter(LAYERS)): torch.tensor(1.0)}},
    "numbers as names": {"model": dict(enumerate(LAYERS.values()))},
}


@pytest.mark.parametrize("state", NO_NETWORK.values(), ids=NO_NETWORK)
def test_a_checkpoint_that_holds_no_network_of_the_course_is_refused_in_words(state, tmp_path):
    with pytest.raises(CheckpointError, match=r"is whole, but holds no network of labkit"):
        restored(save_checkpoint(tmp_path / "x-cnn-small.pt", state, {}))


def test_too_little_memory_is_not_called_damage(tmp_path):
    class Full(torch.nn.Module):
        def load_state_dict(self, state):
            raise torch.OutOfMemoryError("CUDA out of memory")

    config = TrainConfig(epochs=1, batch=20)
    run(tmp_path / "c.pt", config, shapes())
    kept = checkpoint.Checkpoint(tmp_path / "c.pt", {"model": Full()}, config, shapes(), "cpu")
    with pytest.raises(torch.OutOfMemoryError):
        kept.restore(None)


@pytest.mark.parametrize(
    ("other", "part"),
    [
        ({"learning_rate": 0.5}, "learning_rate 0.5"),
        ({"images": 80}, "images 80"),
        ({"ema": 0.9}, "ema 0.9"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused_with_what_differs(other, part, tmp_path):
    run(tmp_path / "c.pt", TrainConfig(epochs=1, batch=20), shapes())
    settings = {"epochs": 1, "batch": 20, **other}
    images = shapes(settings.pop("images", 120))
    with pytest.raises(CheckpointError, match=rf"of another training[\s\S]*{part}"):
        run(tmp_path / "c.pt", TrainConfig(**settings), images)


@pytest.mark.parametrize(
    "settings", [{}, {"warmup": "gradual", "warmup_epochs": 1.3, "ema": 0.9, "optimizer": "sgd"}]
)
def test_a_training_at_a_constant_rate_is_lengthened_to_the_one_that_was_longer_from_the_start(
    settings, tmp_path
):
    settings = {"batch": 20, "schedule": "constant", **settings}
    whole, history = run(None, TrainConfig(epochs=5, **settings), shapes())
    for epochs in (2, 4, 5):
        longer, rest = run(tmp_path / "c.pt", TrainConfig(epochs=epochs, **settings), shapes())
    assert torch.equal(weights(longer), weights(whole))
    assert (rest.losses, rest.accuracy, rest.lengthened) == (
        history.losses,
        history.accuracy,
        [2, 4],
    )
    assert load_checkpoint(tmp_path / "c.pt")[1]["lengthened"] == [2, 4]


def test_a_lengthened_training_follows_the_schedule_of_its_new_length_from_there_on(tmp_path):
    config = TrainConfig(epochs=2, batch=20, schedule="cosine", optimizer="sgd")
    run(tmp_path / "c.pt", config, shapes())
    run(tmp_path / "c.pt", dataclasses.replace(config, epochs=4), shapes())
    (group,) = load_checkpoint(tmp_path / "c.pt")[0]["optimizer"]["param_groups"]
    last = 4 * 6 - 1  # 6 steps an epoch
    assert group["lr"] == pytest.approx(0.01 * (1 + math.cos(math.pi * last / 24)) / 2)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"schedule": "constant"}, "is now that of 4 epochs from the start"),
        ({}, "the schedule onecycle went by that number"),
        (
            {"schedule": "constant", "first_size": 8},
            "the size of the growing images went by that number",
        ),
    ],
)
def test_it_is_said_whether_a_lengthened_training_is_that_of_its_new_length(settings, part):
    history = History(lengthened=[2])
    (remark,) = checkpoint.length_remarks(history, TrainConfig(epochs=4, **settings))
    assert "begun for 2 epochs" in remark and part in remark
    assert list(checkpoint.length_remarks(History(), TrainConfig(epochs=4, **settings))) == []


def test_a_training_is_not_made_shorter_than_it_is(tmp_path):
    config = TrainConfig(epochs=3, batch=20)
    run(tmp_path / "c.pt", config, shapes())
    with pytest.raises(
        CheckpointError, match=r"longer training[\s\S]*at most 2 epochs[\s\S]*3 epochs"
    ):
        run(tmp_path / "c.pt", dataclasses.replace(config, epochs=2), shapes())


AVERAGING = {
    "ema": {"ema": 0.8},
    "schedule-free": {"optimizer": "schedule_free", "schedule": "constant"},
}


def small_training(path, settings):
    """(network, history) of a small network of the course, trained for a few steps with a
    checkpoint at `path`.
    """
    torch.manual_seed(0)
    network = models.build("cnn-small", classes=4)[0]
    config = TrainConfig(epochs=2, batch=20, **settings)
    return network, fit(
        network, (shapes(side=28), shapes(40, side=28)), config, device="cpu", checkpoint=path
    )


@pytest.mark.parametrize("settings", AVERAGING.values(), ids=AVERAGING)
def test_the_network_that_was_tested_is_the_one_that_comes_back(settings, tmp_path):
    network, history = small_training(tmp_path / "x-cnn-small.pt", settings)
    found = restored(tmp_path / "x-cnn-small.pt")[0]
    assert torch.equal(weights(found), weights(history.model))
    assert accuracy(found, shapes(40, side=28)) == history.accuracy[-1]
    assert not torch.equal(weights(found), weights(network))


def test_the_tested_network_takes_no_room_of_its_own_where_it_is_the_trained_one(tmp_path):
    network, _ = small_training(tmp_path / "x-cnn-small.pt", {"optimizer": "sgd"})
    numbers = sum(tensor.numel() for tensor in network.state_dict().values())
    momenta = sum(weight.numel() for weight in network.parameters())
    assert (tmp_path / "x-cnn-small.pt").stat().st_size < 4 * (numbers + momenta) + 60_000


@pytest.mark.parametrize("settings", [{}, *AVERAGING.values()], ids=["last weights", *AVERAGING])
def test_a_checkpoint_from_before_comes_back_as_what_was_tested_then(settings, tmp_path):
    path = tmp_path / "x-cnn-small.pt"
    network, history = small_training(path, settings)
    contents = torch.load(path, weights_only=True)
    del contents["state"]["tested"], contents["facts"]["lengthened"]
    if settings.get("ema"):  # the average had the running statistics of the last weights
        for name, statistics in network.named_buffers():
            contents["state"]["ema"][f"module.{name}"] = statistics
    torch.save(contents, path)
    tested = history.model or network
    found = restored(path)[0]
    for name, weight in found.named_parameters():
        assert torch.equal(weight, tested.get_parameter(name))
    for name, statistics in found.named_buffers():
        assert torch.equal(statistics, network.get_buffer(name))
    assert small_training(path, settings)[1].restored == 2


def test_switches_that_change_nothing_of_the_result_may_differ(tmp_path):
    run(tmp_path / "c.pt", TrainConfig(epochs=1, batch=20), shapes())
    run(tmp_path / "c.pt", TrainConfig(epochs=1, batch=20, workers=0, phases="events"), shapes())


def test_a_switch_that_a_checkpoint_does_not_know_yet_counts_as_off(tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(TrainConfig):
        drop: float = 0.5  # off, though not None

    path, config = tmp_path / "c.pt", TrainConfig(epochs=1, batch=20)
    run(path, config, shapes())
    assert run(path, Later(**vars(config)), shapes(), seed=5)[1].restored == 1
    with pytest.raises(CheckpointError, match=r"expected: drop 0\.1[\s\S]*found: drop 0\.5"):
        run(path, Later(**vars(config), drop=0.1), shapes())


def save_forever(path, told):
    for number in itertools.count(1):
        save_checkpoint(path, {"weights": torch.full((20_000,), float(number))}, {"number": number})
        os.write(told, b"x")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    path, random = tmp_path / "c.pt", torch.Generator().manual_seed(0)
    for _ in range(20):
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            save_forever(path, told)
        saved = len(os.read(heard, 1))
        time.sleep(0.02 * torch.rand((), generator=random).item())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        saved += len(os.read(heard, 100_000))
        os.close(heard)
        state, facts = load_checkpoint(path)
        assert facts["number"] in (saved, saved + 1)  # what was said to be safe is; one more may be
        assert torch.equal(state["weights"], torch.full((20_000,), float(facts["number"])))
