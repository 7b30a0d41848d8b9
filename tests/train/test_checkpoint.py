"""Checkpoints: exact resume, damage refused, kills survived."""

import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import signal
import time
from pathlib import Path

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
    return model, fit(model, images, config, device="cpu", test=shapes(40, seed=1), checkpoint=path)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_six_epochs_equal_three_a_power_cut_and_three_bit_for_bit(settings, tmp_path):
    config = TrainConfig(**{"epochs": 6, "batch": 20, "learning_rate": 0.02, **settings})
    whole, history = run(None, config, shapes())
    if config.workers is None:
        with pytest.raises(Stopped):
            run(tmp_path / "c.json", config, StopsAfter(shapes(), epoch=3))
    else:
        stop_after_saving(tmp_path / "c.json", config, epochs=3)
    torch.manual_seed(99)  # whatever the new process drew before
    resumed, rest = run(tmp_path / "c.json", config, shapes(), seed=5)
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
        run(tmp_path / "c.json", config, StopsAfter(shapes(), epoch=2))
    monkeypatch.setattr("labkit.device.set_rng_state", lambda device, state: None)
    resumed, _ = run(tmp_path / "c.json", config, shapes())
    assert not torch.equal(weights(whole), weights(resumed))


def test_a_finished_training_is_not_trained_again(tmp_path):
    config = TrainConfig(epochs=2, batch=20)
    model, history = run(tmp_path / "c.json", config, shapes())
    again, same = run(tmp_path / "c.json", config, shapes(), seed=5)
    assert torch.equal(weights(model), weights(again))
    assert same.losses == history.losses


def test_the_sidecar_can_be_read_and_one_file_of_tensors_lies_beside_it(tmp_path):
    run(tmp_path / "kept" / "c.json", TrainConfig(epochs=3, batch=20), shapes())
    sidecar = json.loads((tmp_path / "kept" / "c.json").read_text())
    assert sidecar["config"]["epochs"] == 3
    assert len(sidecar["history"]["losses"]) == 18
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"c.json", sidecar["weights"]}


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
    save_checkpoint(tmp_path / "c.json", trees(), {"note": "x"})
    state, facts = load_checkpoint(tmp_path / "c.json")
    assert same(trees(), state)
    assert facts == {"note": "x"}


def test_no_checkpoint_is_none(tmp_path):
    assert load_checkpoint(tmp_path / "c.json") is None


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def changed(change):
    """A damage: `change` does something to the contents of the sidecar, which is well-formed before and after."""

    def damage(sidecar, weights):
        contents = json.loads(sidecar.read_text())
        change(contents)
        sidecar.write_text(json.dumps(contents))

    return damage


def without(name):
    return changed(lambda contents: contents.pop(name))


def where(**values):
    return changed(lambda contents: contents.update(values))


def state_where(**values):
    """The state of one part is something else."""

    def change(contents):
        kept = dict(contents["state"]["dict"])
        assert values.keys() <= kept.keys()
        contents["state"]["dict"] = list({**kept, **values}.items())

    return changed(change)


def signed_nonsense(sidecar, weights):
    weights.write_bytes(b"no tensors at all")
    where(sha256=hashlib.sha256(weights.read_bytes()).hexdigest())(sidecar, weights)


def instead(make):
    def damage(sidecar, weights):
        sidecar.unlink()
        make(sidecar)

    return damage


REMEMBERED = ("losses", "accuracy", "epoch_seconds", "epoch_phases")
DAMAGE = {
    "a sidecar that is nested too deep": lambda sidecar, weights: sidecar.write_text("[" * 200_000),
    "a sidecar that is a pipe": instead(os.mkfifo),
    "a sidecar that is a folder": instead(os.mkdir),
    "a sidecar of 64 GB": lambda sidecar, weights: os.truncate(sidecar, 64 * 2**30),
    "weights that are signed and no tensors": signed_nonsense,
    "no state": without("state"),
    "no config": without("config"),
    "no history": without("history"),
    "no losses": changed(lambda contents: contents["history"].pop("losses")),
    "a config that is a list": where(config=[1, 2]),
    "a history of numbers": where(history=dict.fromkeys(REMEMBERED, 5)),
    "a state that is a number": where(state=5),
    "a state that is a list": where(state={"list": [1]}),
    "a tensor that is not there": where(state={"tensor": "nowhere"}),
    "two kinds at once": where(state={"list": [], "tuple": []}),
    "a network without layers": state_where(model={"dict": []}),
    "a network that is text": state_where(model="text"),
    "an optimizer without state": state_where(optimizer={"dict": []}),
    "random numbers that are none": state_where(rng={"dict": [["cpu", 5]]}),
    "a bit of the weights": lambda sidecar, weights: flip_a_bit(weights),
    "weights cut short": lambda sidecar, weights: weights.write_bytes(weights.read_bytes()[:-5]),
    "no weights": lambda sidecar, weights: weights.unlink(),
    "a torn sidecar": lambda sidecar, weights: sidecar.write_text(sidecar.read_text()[:40]),
    "an empty sidecar": lambda sidecar, weights: sidecar.write_text(""),
    "a sidecar of something else": lambda sidecar, weights: sidecar.write_text("[1, 2]"),
    "weights elsewhere": lambda sidecar, weights: sidecar.write_text(
        sidecar.read_text().replace(weights.name, f"../{weights.name}")
    ),
    "another format": lambda sidecar, weights: sidecar.write_text(sidecar.read_text().replace("checkpoint 1", "x")),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_never_trained_from(damage, tmp_path):
    sidecar = tmp_path / "c.json"
    run(sidecar, TrainConfig(epochs=1, batch=20), shapes())
    (file,) = tmp_path.glob("*.safetensors")
    damage(sidecar, file)
    with pytest.raises(CheckpointError, match=r"is damaged[\s\S]*next: put back a good copy"):
        run(sidecar, TrainConfig(epochs=1, batch=20), shapes())


LAYERS = models.build("cnn-small", classes=10)[0].state_dict()
NO_NETWORK = {  # (state, facts), each written and signed as it should be
    "no model": ({}, {}),
    "a model that is a list": ({"model": [1, 2]}, {}),
    "a state that is a list": ([LAYERS], {}),
    "a model without layers": ({"model": {}}, {}),
    "layers that are numbers": ({"model": dict.fromkeys(LAYERS, 5)}, {}),
    "a first layer without channels": ({"model": {**LAYERS, next(iter(LAYERS)): torch.tensor(1.0)}}, {}),
    "numbers as names": ({"model": dict(enumerate(LAYERS.values()))}, {}),
    "a config that is a list": ({"model": LAYERS}, {"config": [1]}),
    "a size in words": ({"model": LAYERS}, {"config": {"size": "large"}}),
    "a size of nothing": ({"model": LAYERS}, {"config": {"size": 0}}),
    "a size beyond all memory": ({"model": LAYERS}, {"config": {"size": 10**12}}),
}


@pytest.mark.parametrize(("state", "facts"), NO_NETWORK.values(), ids=NO_NETWORK)
def test_a_checkpoint_that_holds_no_network_of_the_course_is_refused_in_words(state, facts, tmp_path):
    with pytest.raises(CheckpointError, match=r"is damaged[\s\S]*next: put back a good copy"):
        restored(save_checkpoint(tmp_path / "x-cnn-small.json", state, facts))


def test_too_little_memory_is_not_called_damage(tmp_path):
    class Full(torch.nn.Module):
        def load_state_dict(self, state):
            raise torch.OutOfMemoryError("CUDA out of memory")

    config = TrainConfig(epochs=1, batch=20)
    run(tmp_path / "c.json", config, shapes())
    kept = checkpoint.Checkpoint(tmp_path / "c.json", {"model": Full()}, config, shapes(), "cpu")
    with pytest.raises(torch.OutOfMemoryError):
        kept.restore(None)


@pytest.mark.parametrize(
    ("other", "part"),
    [({"learning_rate": 0.5}, "learning_rate 0.5"), ({"epochs": 3}, "epochs 3"), ({"images": 80}, "images 80")],
)
def test_a_checkpoint_of_another_training_is_refused_with_what_differs(other, part, tmp_path):
    run(tmp_path / "c.json", TrainConfig(epochs=1, batch=20), shapes())
    settings = {"epochs": 1, "batch": 20, **other}
    images = shapes(settings.pop("images", 120))
    with pytest.raises(CheckpointError, match=rf"of another training[\s\S]*{part}"):
        run(tmp_path / "c.json", TrainConfig(**settings), images)


def test_switches_that_change_nothing_of_the_result_may_differ(tmp_path):
    run(tmp_path / "c.json", TrainConfig(epochs=1, batch=20), shapes())
    run(tmp_path / "c.json", TrainConfig(epochs=1, batch=20, workers=0, phases="events"), shapes())


BEFORE = Path(__file__).with_name("before")  # written by the first edition, two of three epochs
BEFORE_LOSSES = """1.5453275442123413 1.4920811653137207 1.5956661701202393 1.6131854057312012 1.4640597105026245
    1.4487073421478271 1.379804015159607 1.331311583518982 1.269507646560669 1.3155930042266846 1.2471380233764648
    1.1459001302719116 1.1455239057540894 1.1147820949554443 1.15328848361969 1.1512951850891113 1.113201379776001
    1.1736087799072266"""


def before(tmp_path):
    """A copy of the old checkpoint, and the config it belongs to; switches that are gone since stand in it."""
    shutil.copytree(BEFORE, tmp_path, dirs_exist_ok=True)
    settings = {"ema": 0.9, "label_smoothing": 0.1, "ghost_size": 10, "clip": 1.0, "optimizer": "sgd"}
    return tmp_path / "momentum-and-average.json", TrainConfig(epochs=3, batch=20, learning_rate=0.02, **settings)


def test_a_checkpoint_of_the_first_edition_is_gone_on_with(tmp_path):
    path, config = before(tmp_path)
    _, history = run(path, config, shapes(), seed=5)
    assert history.restored == 2
    assert history.losses == pytest.approx([float(loss) for loss in BEFORE_LOSSES.split()], rel=1e-4)
    assert history.accuracy[:2] == [0.25, 0.3]


def test_a_switch_that_a_checkpoint_does_not_know_yet_counts_as_off(tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(TrainConfig):
        drop: float = 0.5  # off, though not None

    path, config = before(tmp_path)
    run(path, Later(**vars(config)), shapes(), seed=5)
    path, config = before(tmp_path)
    with pytest.raises(CheckpointError, match=r"expected: drop 0\.1[\s\S]*found: drop 0\.5"):
        run(path, Later(**vars(config), drop=0.1), shapes())


def save_forever(path, told):
    for number in itertools.count(1):
        save_checkpoint(path, {"weights": torch.full((20_000,), float(number))}, {"number": number})
        os.write(told, b"x")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    path, random = tmp_path / "c.json", torch.Generator().manual_seed(0)
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
