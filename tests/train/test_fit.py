"""The training loop: learns, repeats itself, each switch does what it says, and troubles are
explained.
"""

import copy
import dataclasses

import pytest
import torch
from made_up import network, shapes, weights
from torch import nn
from torch.nn.functional import cross_entropy

from labkit import device as devices
from labkit.data import ImageSet
from labkit.errors import DataError, LabError, Unavailable
from labkit.methods import Hooks, Loss
from labkit.train import (
    NotFinite,
    OutOfMemory,
    TrainConfig,
    accuracy,
    epoch_seed,
    fit,
    right_answers,
    scripted,
)
from labkit.train.watch import Losses


@pytest.fixture(scope="module")
def images():
    return shapes()


def trained(images, model=None, test=None, **settings):
    model = model or network()
    settings = {"epochs": 2, "batch": 20, "learning_rate": 0.02, **settings}
    data = images if test is None else (images, test)
    return model, fit(model, data, TrainConfig(**settings), device="cpu")


def plain_training(images, model, make_optimizer, steps):
    """The second implementation: nothing but the equations."""
    optimizer, losses = make_optimizer(model.parameters()), []
    for epoch in range(2):
        for x, y in images.batches(20, seed=epoch_seed(0, epoch), drop_last=True):
            for group in optimizer.param_groups:
                group["lr"] = 0.02
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses[:steps]


@pytest.mark.parametrize(
    ("optimizer", "make"),
    [
        ("sgd", lambda params: torch.optim.SGD(params, lr=0.02, momentum=0.9, weight_decay=1e-2)),
        ("adamw", lambda params: torch.optim.AdamW(params, lr=0.02, weight_decay=1e-2)),
        ("adam", lambda params: torch.optim.Adam(params, lr=0.02, weight_decay=1e-2)),
    ],
)
def test_the_loop_with_every_switch_off_is_a_plain_loop(images, optimizer, make):
    model, plain = network(), network()
    _, history = trained(images, model, optimizer=optimizer, schedule="constant")
    assert history.losses == plain_training(images, plain, make, steps=12)
    assert torch.equal(weights(model), weights(plain))


def test_another_loss_and_a_hook_from_outside_take_part_in_the_loop(images):
    class Frozen(Hooks):
        """Puts the first weights back after each step."""

        def begin(self, model):
            self.kept = copy.deepcopy(model.state_dict())
            return model

        def after_update(self, model):
            model.load_state_dict(self.kept)

    config, model, seen = TrainConfig(batch=20), network(), []

    def halved(logits, labels, batch):
        seen.append(batch.shape)
        return cross_entropy(logits, labels) / 2

    history = fit(
        model, images, config, device="cpu", hooks={"frozen": Frozen(None), "loss": Loss(halved)}
    )
    whole = fit(network(), images, config, device="cpu", hooks={"frozen": Frozen(None)})
    assert torch.equal(weights(model), weights(network()))
    assert history.losses == pytest.approx([each / 2 for each in whole.losses], rel=1e-6)
    assert set(seen) == {(20, *images.images.shape[1:])}


def test_training_learns_and_tells_its_losses_accuracy_and_seconds(images):
    _, history = trained(images, test=shapes(seed=1), epochs=4)
    assert history.steps == len(history.losses) == 4 * 6
    assert history.losses[-1] < 0.5 * history.losses[0]
    assert history.accuracy[-1] > 0.9
    assert len(history.accuracy) == len(history.epoch_seconds) == 4
    assert history.seconds > 0
    assert (history.epoch_phases, history.peak_bytes, history.model) == ([{}] * 4, None, None)


def test_the_same_seed_gives_the_same_losses_and_another_seed_others(images):
    assert trained(images)[1].losses == trained(images)[1].losses
    assert trained(images)[1].losses != trained(images, seed=7)[1].losses


def test_accuracy_counts_what_a_plain_loop_counts(images):
    model, _ = trained(images, epochs=1)
    with torch.inference_mode():
        right = [int(model.eval()(x).argmax()) == int(y) for x, y in images.batches(1)]
    assert accuracy(model.train(), images, device="cpu", batch=50) == pytest.approx(
        sum(right) / len(images)
    )
    assert right_answers(model, images, batch=50).tolist() == right
    assert not model.training


@pytest.mark.parametrize("update", ["loop", "foreach", "fused"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_each_form_of_the_update_leads_to_the_same_weights(images, optimizer, update):
    plain, other = (trained(images, optimizer=optimizer, update=how)[0] for how in (None, update))
    assert torch.allclose(weights(plain), weights(other), atol=1e-5)


def test_accumulated_parts_make_the_same_step_as_the_whole_batch(images):
    without_batch_norm = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(4, 4))
    whole, parts = (
        trained(images, copy.deepcopy(without_batch_norm), accumulate=n) for n in (1, 4)
    )
    assert parts[1].losses == pytest.approx(whole[1].losses, rel=1e-5)
    assert torch.allclose(weights(whole[0]), weights(parts[0]), atol=1e-5)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_images_loaded_one_by_one_train_the_same_as_whole_batches(images, workers):
    assert trained(images, workers=workers)[1].losses == pytest.approx(
        trained(images)[1].losses, rel=1e-5
    )


def test_augmented_images_differ_from_epoch_to_epoch_and_repeat_with_the_seed(images):
    assert (
        trained(images, augment=True, workers=0)[1].losses
        == trained(images, augment=True, workers=0)[1].losses
    )
    assert (
        trained(images, augment=True, workers=0)[1].losses != trained(images, workers=0)[1].losses
    )


@pytest.mark.parametrize("switch", [{"channels_last": True}, {"cudnn_autotuner": True}])
def test_a_switch_of_speed_alone_changes_no_loss_beyond_rounding(images, switch):
    assert trained(images, **switch)[1].losses == pytest.approx(trained(images)[1].losses, rel=1e-3)


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_autocast_learns_as_well_and_keeps_its_weights_in_fp32(images, amp):
    model, history = trained(images, epochs=4, amp=amp)
    assert history.losses[-1] < 0.5 * history.losses[0]
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("switch", ["torchscript", pytest.param("compile", marks=pytest.mark.slow)])
def test_the_compiled_and_the_scripted_network_learn_what_the_plain_one_learns(images, switch):
    plain, history = trained(images, epochs=1)
    model, faster = trained(images, epochs=1, **{switch: True})
    assert faster.losses == pytest.approx(history.losses, rel=1e-3)
    assert torch.allclose(weights(model), weights(plain), atol=1e-3)


def test_a_network_torchscript_cannot_translate_is_refused_with_the_reason():
    class Odd(nn.Module):
        def forward(self, x):
            return x if {**globals()} else -x

    with pytest.raises(LabError, match=r"TorchScript cannot run[\s\S]*torch.compile"):
        scripted(Odd())


def test_clipping_bounds_the_step():
    model = network()
    trained(
        shapes(20),
        model,
        epochs=1,
        batch=20,
        optimizer="sgd",
        schedule="constant",
        clip=1e-3,
        weight_decay=0.0,
    )
    moved = [
        (a - b).detach().flatten()
        for a, b in zip(model.parameters(), network().parameters(), strict=True)
    ]
    assert torch.cat(moved).norm().item() == pytest.approx(0.02 * 1e-3, rel=0.01)


def test_ghost_batch_norm_trains_the_weights_and_statistics_of_the_model_that_was_given(images):
    model = network()
    before = weights(model)
    _, history = trained(images, model, epochs=4, ghost_size=10, test=images)
    assert not torch.isclose(weights(model), before).all()
    assert accuracy(model, images, device="cpu") == history.accuracy[-1] > 0.9
    assert isinstance(model[1], nn.BatchNorm2d)
    assert history.losses != trained(images, epochs=4)[1].losses


def test_the_average_of_the_weights_is_tested_in_place_of_the_last_ones(images):
    _, history = trained(images, ema=0.9, test=images)
    assert history.accuracy[-1] == accuracy(history.model, images, device="cpu")


@pytest.mark.parametrize(("optimizer", "rate"), [("lars", 20.0), ("lamb", 0.05)])
def test_layer_wise_rates_learn(images, optimizer, rate):
    settings = {
        "optimizer": optimizer,
        "schedule": "cosine",
        "warmup": "gradual",
        "warmup_epochs": 1,
    }
    _, history = trained(images, epochs=6, learning_rate=rate, **settings)
    assert history.losses[-1] < 0.5 * history.losses[0]


def test_label_smoothing_is_that_of_cross_entropy(images):
    model = network()
    x, y = next(iter(images.batches(20, seed=epoch_seed(0, 0))))
    expected = cross_entropy(network().train()(x), y, label_smoothing=0.2).item()
    assert trained(images, model, label_smoothing=0.2)[1].losses[0] == pytest.approx(
        expected, rel=1e-6
    )


def test_the_phases_add_up_to_the_epochs(images):
    for how in ("events", "synchronize"):
        history = trained(images, phases=how)[1]
        for phases, seconds in zip(history.epoch_phases, history.epoch_seconds, strict=True):
            assert set(phases) == {"data", "forward", "backward", "optimizer"}
            assert all(part > 0 for part in phases.values())
            assert sum(phases.values()) <= seconds


def test_a_loss_that_is_not_finite_stops_training_in_that_step_with_advice(images):
    spoiled = ImageSet(**{**vars(images), "std": (0.0,)})
    model = network()
    before = weights(model)
    with pytest.raises(NotFinite, match=r"step 1[\s\S]*learning rate of 0\.002[\s\S]*clip"):
        trained(spoiled, model)
    # no weight was touched; batch norm's statistics were
    assert torch.equal(weights(model)[:54], before[:54])


def test_on_a_device_with_a_queue_a_bad_loss_is_found_one_step_later():
    waited = []

    class Event:
        def record(self):
            pass

        def synchronize(self):
            waited.append(len(losses.values))

    losses = Losses([], TrainConfig(), device="cpu")
    losses.mark = Event
    losses.add(torch.tensor(1.0))
    losses.add(torch.tensor(float("nan")))
    assert (losses.values, waited) == ([1.0], [0])
    with pytest.raises(NotFinite, match="step 2"):
        losses.add(torch.tensor(1.0))


def test_too_little_memory_is_explained_with_batch_peak_and_what_to_try(images, monkeypatch):
    class Greedy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, x):
            raise torch.OutOfMemoryError("no more")

    monkeypatch.setattr(devices, "peak_memory_bytes", lambda device: 3_000_000_000)
    with pytest.raises(
        OutOfMemory, match=r"batches of 10\.[\s\S]*a peak of 3[\s\S]*accumulate 4[\s\S]*bf16"
    ):
        trained(images, Greedy(), accumulate=2)


def test_another_error_of_the_network_passes_through(images):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        trained(images, nn.Sequential(nn.Flatten(), nn.Linear(3, 4)))


def test_fewer_images_than_one_batch_are_refused(images):
    with pytest.raises(DataError, match="at least 500"):
        trained(images, batch=500)


def test_with_the_head_alone_all_else_stays_and_computes_as_in_use(images):
    before, dropped = network(dropout=0.5), network(dropout=0.5)
    trained(images, dropped, head_only=True)
    old, new = before.state_dict(), dropped.state_dict()
    changed = {name for name in new if not torch.equal(new[name], old[name])}
    assert changed == {"6.weight", "6.bias"}  # neither the running statistics of batch norm
    assert not dropped[0].weight.requires_grad
    # the second implementation: logistic regression on what the rest says in use
    with torch.no_grad():
        body = before.eval()[:6]
        seeds = [epoch_seed(0, epoch) for epoch in range(2)]
        batches = [
            (body(x), y) for seed in seeds for x, y in images.batches(20, seed=seed, drop_last=True)
        ]
    optimizer = torch.optim.Adam(before[6].parameters(), lr=0.02, weight_decay=0)
    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(before[6](x), y).backward()
        optimizer.step()
    model, _ = trained(
        images, head_only=True, optimizer="adam", weight_decay=0.0, schedule="constant"
    )
    assert torch.allclose(model[6].weight, before[6].weight, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"optimizer": "adams"}, "adamw or adam or sgd"),
        ({"amp": "int8"}, "bf16 or fp16"),
        ({"epochs": 0}, "at least 1"),
        ({"accumulate": 3}, "parts of equal size"),
        ({"optimizer": "lars", "update": "fused"}, "foreach"),
        ({"compile": True, "torchscript": True}, "one of the two"),
        ({"workers": -1}, "at least 0"),
    ],
)
def test_a_config_that_cannot_be_is_refused(settings, part):
    with pytest.raises(LabError, match=part):
        TrainConfig(**settings)


def test_switches_without_effect_here_say_why():
    everything = TrainConfig(pin_memory=True, cudnn_autotuner=True)
    assert set(everything.idle("cpu")) == {"pin_memory", "cudnn_autotuner"}
    assert everything.idle("cuda:0") == {}
    assert TrainConfig().idle("cpu") == {}
    assert all(dataclasses.asdict(everything)[name] for name in everything.idle("cpu"))
    assert (
        fit(network(), shapes(40), dataclasses.replace(everything, batch=20), device="cpu").steps
        == 2
    )


def test_the_autotuner_is_put_back_after_training(images):
    before = torch.backends.cudnn.benchmark
    trained(images, cudnn_autotuner=True)
    assert torch.backends.cudnn.benchmark == before


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), r"/dev/shm[\s\S]*No space left[\s\S]*0 workers"),
        (
            OSError("AF_UNIX path too long"),
            r"a short name[\s\S]*path too long[\s\S]*0 workers[\s\S]*TMPDIR",
        ),
    ],
    ids=["no shared memory", "a temporary folder too deep for sockets"],
)
def test_a_loader_whose_processes_cannot_hand_images_over_says_why(
    images, monkeypatch, error, words
):
    def refused(loader):
        raise error

    monkeypatch.setattr(torch.utils.data.DataLoader, "__iter__", refused)
    with pytest.raises(Unavailable, match=words):
        trained(images, workers=2)


@pytest.mark.parametrize(("first_size", "size"), [(16, None), (20, None), (16, 16), (24, 12)])
def test_images_that_would_shrink_or_stay_as_they_are_in_place_of_growing_are_refused(
    first_size, size
):
    with pytest.raises(LabError, match="The images would not grow") as refused:
        trained(shapes(side=16), network(), epochs=3, first_size=first_size, size=size)
    assert f"{size or 16} pixels" in refused.value.expected


@pytest.mark.parametrize(("size", "sides"), [(None, [8, 12, 16]), (24, [8, 16, 24])])
def test_images_grow_from_the_first_size_to_the_last_by_equal_steps(size, sides):
    model, seen = network(), []
    model.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape[-1]))
    trained(shapes(side=16), model, epochs=3, first_size=8, size=size)
    assert seen == [side for side in sides for _ in range(6)]  # 120 images, 20 per step
