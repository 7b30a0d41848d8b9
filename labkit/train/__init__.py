"""Training: one plain loop with its switches, and what surrounds it: phase times, checkpoints, clear errors.

    history = fit(model, train, TrainConfig(epochs=3, amp="bf16"), device=device, test=test)
    history.losses, history.accuracy, history.seconds

A switch is a field of `config.TrainConfig` and a line of `loop.fit`. A batch that does not fit, a loss that is no
number and a damaged checkpoint end in an error that says what to do.
"""

from labkit.train.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from labkit.train.config import TrainConfig
from labkit.train.forms import scripted
from labkit.train.loop import History, accuracy, fit, train_step
from labkit.train.losses import NotFinite
from labkit.train.memory import OutOfMemory
from labkit.train.optimizers import make_optimizer
from labkit.train.phases import PHASES, Laps
from labkit.train.restored import restored
from labkit.train.variants import Variants, run_variants

__all__ = [
    "PHASES",
    "CheckpointError",
    "History",
    "Laps",
    "NotFinite",
    "OutOfMemory",
    "TrainConfig",
    "Variants",
    "accuracy",
    "fit",
    "load_checkpoint",
    "make_optimizer",
    "restored",
    "run_variants",
    "save_checkpoint",
    "scripted",
    "train_step",
]
