"""Make the optimizer that a `TrainConfig` names, and set the learning rate of each step."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import torch

from labkit import methods
from labkit.methods.decay import decay_factor
from labkit.methods.warmup import warmup_factor

# torch's optimizers, which have every form of `TrainConfig.update`
OF_TORCH = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def names():
    """Return the names of all optimizers for a `TrainConfig`.

    They are adamw, adam and sgd of torch, and the name of each file of labkit/methods that has a
    function `make`.
    """
    files = [file.name for file in pkgutil.iter_modules(methods.__path__)]
    ours = [
        name for name in files if hasattr(importlib.import_module(f"labkit.methods.{name}"), "make")
    ]
    return (*OF_TORCH, *ours)


def make_optimizer(named_parameters, config):
    """Return the `torch.optim.Optimizer` that a `TrainConfig` describes.

    named_parameters  (name, weight) pairs, such as `model.named_parameters()` yields; an optimizer
                      may treat layers differently by their names
    """
    if config.optimizer not in OF_TORCH:
        return importlib.import_module(f"labkit.methods.{config.optimizer}").make(
            named_parameters, config
        )
    settings = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        settings["momentum"] = config.momentum
    else:
        settings["betas"] = (config.momentum, 0.999)
    if config.update:
        settings["foreach"] = config.update == "foreach"
        settings["fused"] = config.update == "fused"
    return OF_TORCH[config.optimizer](named_parameters, **settings)


def factory(name: str, **settings: Any) -> Callable:
    """Return a function optimizer(params, lr) that makes an optimizer, for a loop of one's own.

    name      one of `names()`, such as "lamb"
    settings  other fields of `TrainConfig`, such as `momentum`; `weight_decay` is 0 by default
    """
    from labkit.train.config import TrainConfig

    def make(params, lr):
        named = [(str(number), weight) for number, weight in enumerate(params)]
        defaults = {"weight_decay": 0.0, "schedule": "constant"}  # the loop has its own schedule
        return make_optimizer(
            named, TrainConfig(**{**defaults, **settings}, optimizer=name, learning_rate=lr)
        )

    return make


def schedules(name):
    """Return the names of the schedules that go with an optimizer, as a tuple; None: all go.

    A file of labkit/methods lists them in its constant SCHEDULES.
    """
    if name in OF_TORCH:
        return None
    return getattr(importlib.import_module(f"labkit.methods.{name}"), "SCHEDULES", None)


def has_momentum(config):
    """Return whether the optimizer of a `TrainConfig` has a momentum.

    An optimizer with a momentum has `momentum` or `betas` in its parameter groups.
    """
    weights = [(f"{number}.weight", torch.nn.Parameter(torch.zeros(2, 2))) for number in range(3)]
    group = make_optimizer(weights, config).param_groups[0]
    return "momentum" in group or "betas" in group


def set_rate(optimizer, config, *, step, steps):
    """Set the learning rate of a step; the schedule onecycle sets the momentum, too.

    step   number of the step, from 0
    steps  number of steps of the whole training
    """
    if config.schedule == "onecycle":
        rate, momentum = _one_cycle(step, steps)
    else:
        rate = _warmup_then_schedule(config, step, steps)
        momentum = None
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate * rate
        if momentum is not None and "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        elif momentum is not None and "momentum" in group:
            group["momentum"] = momentum


def _one_cycle(step, steps):
    """Return (fraction of the peak rate, momentum) of a step of the schedule onecycle.

    The rate rises for 30 % of the steps, then falls, both along a cosine.
    Source: Smith and Topin 2017, arXiv:1708.07120, with the numbers of
    `torch.optim.lr_scheduler.OneCycleLR`.
    """
    first_rate = 1 / 25
    last_rate = 1 / 25 / 1e4
    peak_step = 0.3 * steps - 1
    last_step = steps - 1
    if step <= peak_step:
        fraction = step / peak_step
        return _between(first_rate, 1, fraction), _between(0.95, 0.85, fraction)
    fraction = (step - peak_step) / (last_step - peak_step)
    return _between(1, last_rate, fraction), _between(0.85, 0.95, fraction)


def _between(first, last, fraction):
    """Interpolate along half a cosine: `first` at fraction 0, `last` at fraction 1."""
    return last + (first - last) * decay_factor(fraction, 1, "cosine")


def _warmup_then_schedule(config, step, steps):
    """Return the fraction of the peak rate: warm-up in the first epochs, then the schedule."""
    warmup_steps = 0
    if config.warmup != "none":
        warmup_steps = round(config.warmup_epochs * (steps // config.epochs))
    if step < warmup_steps:
        return warmup_factor(step, warmup_steps, config.warmup)
    return decay_factor(step - warmup_steps, steps - warmup_steps, config.schedule)
