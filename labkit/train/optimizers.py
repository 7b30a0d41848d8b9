"""The optimizer a config asks for, and the learning rate of each step."""

import importlib
import pkgutil

import torch

from labkit import methods
from labkit.methods.decay import decay_factor
from labkit.methods.warmup import warmup_factor

# these have every form of `TrainConfig.update`
OF_TORCH = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def names():
    """The optimizers that a `TrainConfig` can name: torch's, and each file of labkit/methods with a function `make`."""
    files = [file.name for file in pkgutil.iter_modules(methods.__path__)]
    ours = [name for name in files if hasattr(importlib.import_module(f"labkit.methods.{name}"), "make")]
    return (*OF_TORCH, *ours)


def make_optimizer(named_parameters, config):
    """The `torch.optim.Optimizer` of a `TrainConfig`.

    named_parameters  (name, weight) pairs, as of `model.named_parameters()`; an optimizer may treat layers differently
    """
    if config.optimizer not in OF_TORCH:
        return importlib.import_module(f"labkit.methods.{config.optimizer}").make(named_parameters, config)
    settings = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    settings |= {"momentum": config.momentum} if config.optimizer == "sgd" else {"betas": (config.momentum, 0.999)}
    if config.update:
        settings |= {"foreach": config.update == "foreach", "fused": config.update == "fused"}
    return OF_TORCH[config.optimizer](named_parameters, **settings)


def set_rate(optimizer, config, *, step, steps):
    """Put the learning rate of `step` (0-based, of `steps`) into the optimizer; one-cycle moves the momentum too."""
    rate, momentum = _one_cycle(step, steps) if config.schedule == "onecycle" else (_warmed(config, step, steps), None)
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate * rate
        if momentum is not None and "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        elif momentum is not None:
            group["momentum"] = momentum


def _one_cycle(step, steps):
    """(fraction of the peak rate, momentum): up for 30 % of the steps, down for the rest, both along a cosine.

    Source: Smith and Topin 2017, arXiv:1708.07120, with the numbers of `torch.optim.lr_scheduler.OneCycleLR`.
    """
    start, end = 1 / 25, 1 / 25 / 1e4
    peak, last = 0.3 * steps - 1, steps - 1
    if step <= peak:
        way = step / peak
        return _between(start, 1, way), _between(0.95, 0.85, way)
    way = (step - peak) / (last - peak)
    return _between(1, end, way), _between(0.85, 0.95, way)


def _between(first, last, way):
    """From `first` to `last` along half a cosine, `way` from 0 to 1."""
    return last + (first - last) * decay_factor(way, 1, "cosine")


def _warmed(config, step, steps):
    """Fraction of the peak rate: warm-up over the first epochs, then the schedule over the rest."""
    warm = round(config.warmup_epochs * steps / config.epochs) if config.warmup != "none" else 0
    if step < warm:
        return warmup_factor(step, warm, config.warmup)
    return decay_factor(step - warm, steps - warm, config.schedule)
