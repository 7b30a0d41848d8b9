"""Numbers and pairs of switches that make no sense, or would do nothing: refused before anything
is trained.
"""

import dataclasses
import math
import types

import pytest
import torch
from made_up import network, shapes
from typer.testing import CliRunner

from labkit import cli, methods
from labkit.errors import LabError, brief
from labkit.train import TrainConfig, fit
from labkit.train.bounds import BOUNDS, Bounds

NUMERIC = {
    field.name: field.type
    for field in dataclasses.fields(TrainConfig)
    if field.type is not bool and (isinstance(1, field.type) or isinstance(0.5, field.type))
}
# what else a value needs in order to be a sensible one
COMPANIONS = {
    "momentum": {"schedule": "constant"},
    "warmup_epochs": {"schedule": "constant", "warmup": "gradual", "epochs": 1_000_000},
    "first_size": {"epochs": 2},
    "ghost_size": {"batch": 1_000_000},
    "accumulate": {"batch": 1_000_000},
}


def made(name, value):
    """A config with one number changed, and what that number needs."""
    settings = {**COMPANIONS.get(name, {}), name: value}
    if name == "warmup_epochs" and value == 0:
        settings = {name: value}
    return TrainConfig(**settings)


def beside(name, number, step):
    """The nearest number of the field's type, above or below."""
    if isinstance(0.5, NUMERIC[name]):
        return math.nextafter(number, step * math.inf)
    return number + step


def test_every_numeric_field_states_its_bounds_and_no_other_does():
    assert set(BOUNDS) == set(NUMERIC)
    assert len(NUMERIC) >= 16


@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_at_its_bound_is_taken_and_the_next_one_beyond_is_refused(name):
    bounds = BOUNDS[name]
    for number, bracket, outwards in (
        (bounds.lowest, bounds.ends[0], -1),
        (bounds.highest, bounds.ends[1], 1),
    ):
        outside = beside(name, number, outwards)
        inside = number
        if bracket in "()":
            outside = type(beside(name, number, 1))(number)
            inside = beside(name, number, -outwards)
        assert getattr(made(name, inside), name) == inside
        with pytest.raises(LabError, match=f"^{name} is .*\n  expected: (at least|above)"):
            made(name, outside)


OF_NO_USE = [math.nan, math.inf, -math.inf, -1, 1e300, 10**5000, -(10**400), "3", 0.5j]


@pytest.mark.parametrize("value", OF_NO_USE, ids=lambda value: brief(value)[:20])
@pytest.mark.parametrize("name", NUMERIC)
def test_no_field_takes_what_is_no_number_of_use(name, value):
    with pytest.raises(LabError, match=f"^{name} is "):
        made(name, value)


@pytest.mark.parametrize(
    "name", [name for name, kind in NUMERIC.items() if not isinstance(0.5, kind)]
)
def test_a_count_is_a_whole_number(name):
    with pytest.raises(LabError, match="a whole number"):
        made(name, BOUNDS[name].lowest + 0.5)


def test_the_four_kinds_of_interval_are_told_apart():
    taken = {
        ends: [number in Bounds(0, 1, ends) for number in (0, 0.5, 1)]
        for ends in ("[]", "[)", "(]", "()")
    }
    assert taken == {
        "[]": [True, True, True],
        "[)": [True, True, False],
        "(]": [False, True, True],
        "()": [False, True, False],
    }


def test_seeds_beyond_the_bound_would_repeat_others_on_a_cpu():
    orders = [
        torch.randperm(100, generator=torch.Generator().manual_seed(seed)) for seed in (0, 2**32)
    ]
    assert torch.equal(*orders)


def test_a_number_of_a_field_from_outside_is_finite():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(TrainConfig):
        sign: float | None = None

    assert Later(sign=2.0).sign == 2.0
    with pytest.raises(LabError, match="sign is nan"):
        Later(sign=math.nan)


NOTHING_TO_DO = {
    "momentum, which one-cycle moves": ({"momentum": 0.5}, "onecycle moves the momentum"),
    "no momentum under one-cycle": (
        {"optimizer": "sgd", "momentum": 0.0},
        "onecycle moves the momentum",
    ),
    "a warm-up under one-cycle": (
        {"warmup": "gradual", "warmup_epochs": 1},
        "a warm-up of its own",
    ),
    "a warm-up of no epoch": (
        {"warmup": "gradual", "schedule": "cosine"},
        "of 0 epochs does not fit",
    ),
    "epochs of no warm-up": ({"warmup_epochs": 1, "schedule": "cosine"}, "there is no warm-up"),
    "a warm-up longer than the training": (
        {"warmup": "constant", "warmup_epochs": 5, "schedule": "cosine", "epochs": 4},
        "of 5 epochs does not fit a training of 4",
    ),
    "schedule-free with the usual schedule": (
        {"optimizer": "schedule_free"},
        "no schedule onecycle",
    ),
    "schedule-free with another": (
        {"optimizer": "schedule_free", "schedule": "step"},
        "the schedule constant",
    ),
    "ghosts that do not fit the batch": (
        {"batch": 128, "ghost_size": 7},
        "128 images at once have no groups of 7",
    ),
    "ghosts that do not fit its parts": (
        {"batch": 64, "accumulate": 4, "ghost_size": 32},
        "16 images at once",
    ),
}


@pytest.mark.parametrize("case", NOTHING_TO_DO)
def test_a_switch_that_would_do_nothing_is_refused_with_the_reason(case):
    settings, words = NOTHING_TO_DO[case]
    with pytest.raises(LabError, match=words):
        TrainConfig(**settings)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "step"])
def test_momentum_decides_the_weights_under_every_schedule_that_takes_it(schedule):
    def losses(momentum):
        config = TrainConfig(
            epochs=2, batch=20, optimizer="sgd", schedule=schedule, momentum=momentum
        )
        return fit(network(), shapes(60), config, device="cpu").losses

    assert losses(0.0) != losses(0.9)


PLAIN = '''
"""Made up: gradient descent."""

import torch


class Plain(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                weight -= group["lr"] * weight.grad


def make(named_parameters, config):
    return Plain(named_parameters, {"lr": config.learning_rate})
'''


def test_an_optimizer_without_momentum_refuses_one_and_trains_under_one_cycle(
    tmp_path, monkeypatch
):
    (tmp_path / "plain.py").write_text(PLAIN)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    with pytest.raises(LabError, match=r"momentum is 0\.5, and plain has none"):
        TrainConfig(optimizer="plain", schedule="constant", momentum=0.5)
    config = TrainConfig(optimizer="plain", batch=20)
    assert fit(network(), shapes(40), config, device="cpu").steps == 2


HUGE = "0x" + "f" * 5000
BAD_OPTIONS = [
    ["--momentum", "0.5"],
    ["--warmup", "gradual", "--warmup-epochs", "1"],
    ["--clip", "-1"],
    ["--clip", "0"],
    ["--weight-decay", "-1"],
    ["--label-smoothing", "2"],
    ["--norm-momentum", "5"],
    ["--ema", "1"],
    ["--learning-rate", "nan"],
    ["--learning-rate", "inf"],
    ["--learning-rate", "1e300"],
    ["--seed", "1" + 400 * "0"],
    ["--seed", str(2**32)],
    ["--ghost-size", "7"],
    ["--optimizer", "schedule_free"],
    ["--schedule", "cosine", "--warmup", "gradual", "--warmup-epochs", "5"],
]


@pytest.fixture
def trained_before(own_artifacts):
    """What an earlier training left: the file that the next one of this name would replace."""
    path = own_artifacts / "checkpoints" / "fashion-mnist-cnn-small.pt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"an earlier result")
    return path


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=lambda options: " ".join(options)[:40])
def test_the_command_refuses_in_words_and_leaves_the_earlier_checkpoint(options, trained_before):
    result = CliRunner().invoke(
        cli.app, ["train", "--model", "cnn-small", "--limit", "400", *options]
    )
    assert isinstance(result.exception, LabError)  # which `labkit` prints, and ends with 2
    assert trained_before.read_bytes() == b"an earlier result"


@pytest.mark.parametrize("setting", ["seed", "epochs", "learning_rate", "model", "name", "augment"])
@pytest.mark.parametrize(
    "number", [HUGE, "1" + 5000 * "0", "-" + "9" * 400], ids=["hexadecimal", "decimal", "negative"]
)
def test_a_settings_file_with_an_endless_number_is_refused_in_words(
    setting, number, tmp_path, trained_before
):
    (tmp_path / "r.toml").write_text(f"{setting} = {number}")
    result = CliRunner().invoke(
        cli.app, ["train", "--limit", "400", "--recipe", str(tmp_path / "r.toml")]
    )
    # `labkit` says all of these in words, and ends with 2; the second is typer's own refusal, the
    # third a name too long
    assert isinstance(result.exception, LabError | SystemExit | OSError)
    assert result.exit_code
    assert trained_before.exists()


@pytest.mark.parametrize("field", ["epochs", "first_size", "warmup_epochs"])
def test_a_dry_run_takes_the_first_step_of_a_training_of_many_epochs(field, monkeypatch):
    from labkit.train.by_name import Training

    sides = []
    model = network()
    model.register_forward_pre_hook(lambda _, given: sides.append(given[0].shape[-1]))
    settings = {
        "epochs": {},
        "first_size": {"first_size": 12},
        "warmup_epochs": {"schedule": "cosine", "warmup": "gradual", "warmup_epochs": 3},
    }[field]
    images = shapes(40, side=28)
    work = Training(
        name="x",
        network=model,
        train=images,
        test=images,
        config=TrainConfig(epochs=5, batch=20, **settings),
        device=torch.device("cpu"),
    )
    assert work.dry_run().steps == 1
    assert sides == [12 if field == "first_size" else 28]


def test_the_bounds_are_read_without_torch():
    import subprocess
    import sys

    code = (
        "import sys, labkit.train.bounds; sys.exit('torch' in sys.modules or 'numpy' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_whole_numbers_for_rates_and_numbers_of_numpy_are_taken_as_pythons_own():
    numpy = pytest.importorskip("numpy")
    config = TrainConfig(
        seed=numpy.int64(7), learning_rate=numpy.float32(0.5), momentum=0, schedule="constant"
    )
    assert (config.seed, config.learning_rate, config.momentum) == (7, 0.5, 0.0)
    assert {type(value) for value in (config.seed, config.learning_rate, config.momentum)} == {
        int,
        float,
    }
    assert (
        fit(network(), shapes(20), dataclasses.replace(config, batch=20), device="cpu").steps == 1
    )


def test_the_types_of_fields_are_types():
    """The check asks them whether they take whole numbers."""
    assert all(
        isinstance(field.type, type | types.UnionType) for field in dataclasses.fields(TrainConfig)
    )
