"""Checkpoints: exact resume, damage refused, kills survived."""

import dataclasses
import itertools
import os
import signal
import time
import zipfile

import pytest
import torch
from made_up import network, shapes, weights

from labkit import models
from labkit.train import CheckpointError, TrainConfig, checkpoint, fit, load_checkpoint, restored, save_checkpoint

CASES = {
    "plain": {},
    "sgd with momentum and a step schedule": {"optimizer": "sgd", "schedule": "step", "learning_rate": 0.1},
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
}


class Stopped(Exception):
    pass


class StopsAfter:
    """A set whose power is cut in the middle of an epoch."""

    def __init__(self, images, epoch):
        self.images, self.epoch = images, epoch

    def __len__(self):
        return len(self.images)

    def __getattr__(self, name):
        return getattr(self.images, name)

    def batches(self, batch, *, seed=None, **how):
        for number, pair in enumerate(self.images.batches(batch, seed=seed, **how)):
            if seed == self.epoch and number == 2:
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
    if config.ema:
        assert torch.equal(weights(history.model), weights(rest.model))


def stop_after_saving(path, config, epochs):
    class Stopping(checkpoint.Checkpoint):
        def save(self, history):
            super().save(history)
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
    data[data.index(content) + len(content) // 2] ^= 1  # between the parts lies padding, which nothing reads
    path.write_bytes(bytes(data))


def a_folder(path):
    path.unlink()
    path.mkdir()


def a_foreign_zip(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("letter.txt", "no tensors at all")


def changed(change):
    """A damage: `change` does something to the contents, which are written as they should be before and after."""

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
    "a foreign zip": a_foreign_zip,
    "a pickle that runs code": lambda path: torch.save(Runs(), path),
    "a file of other contents": lambda path: torch.save([1, 2], path),
    "another format": changed(lambda contents: contents.update(format="x")),
    "no state": changed(lambda contents: contents.pop("state")),
    "no config": changed(lambda contents: contents["facts"].pop("config")),
    "no losses": changed(lambda contents: contents["facts"]["history"].pop("losses")),
    "a history of numbers": changed(lambda contents: contents["facts"].update(history={"losses": 5})),
    "a network without layers": changed(lambda contents: contents["state"].update(model={})),
    "a network that is text": changed(lambda contents: contents["state"].update(model="text")),
    "an optimizer without state": changed(lambda contents: contents["state"].update(optimizer={})),
    "random numbers that are none": changed(lambda contents: contents["state"].update(rng={"cpu": 5})),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_never_trained_from(damage, tmp_path, capsys):
    path = tmp_path / "c.pt"
    run(path, TrainConfig(epochs=1, batch=20), shapes())
    damage(path)
    with pytest.raises(CheckpointError, match=r"is damaged[\s\S]*next: put back a good copy"):
        run(path, TrainConfig(epochs=1, batch=20), shapes())
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
    with pytest.raises(CheckpointError, match=r"is damaged[\s\S]*next: put back a good copy"):
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
    [({"learning_rate": 0.5}, "learning_rate 0.5"), ({"epochs": 3}, "epochs 3"), ({"images": 80}, "images 80")],
)
def test_a_checkpoint_of_another_training_is_refused_with_what_differs(other, part, tmp_path):
    run(tmp_path / "c.pt", TrainConfig(epochs=1, batch=20), shapes())
    settings = {"epochs": 1, "batch": 20, **other}
    images = shapes(settings.pop("images", 120))
    with pytest.raises(CheckpointError, match=rf"of another training[\s\S]*{part}"):
        run(tmp_path / "c.pt", TrainConfig(**settings), images)


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
