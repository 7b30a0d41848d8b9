"""Define `TrainConfig`: how to train, one field per switch of the loop."""

import importlib
from dataclasses import dataclass, field, fields

from labkit import device as devices
from labkit.errors import LabError, require_known
from labkit.train.bounds import numbers_of

_CHOICES = {
    "update": (None, "loop", "foreach", "fused"),
    "schedule": ("onecycle", "cosine", "step", "constant"),
    "warmup": ("none", "constant", "gradual"),
    "amp": (None, "bf16", "fp16"),
    "phases": (None, "events", "synchronize"),
}
_NO_GPU = {
    "pin_memory": "the images stay in this machine's memory: nothing is copied to a GPU",
    "cudnn_autotuner": "cuDNN, whose algorithms it times, runs on NVIDIA GPUs only",
}

_HEAD_ONLY = (
    "where the head alone is trained, batch norm computes as in use, and keeps its statistics"
)


def setting(default, help):
    """Return a field of `TrainConfig` with a default and the text for `labkit train --help`."""
    return field(default=default, metadata={"help": help})


def method(file, help):
    """Return a field of `TrainConfig` that switches a training method on; None switches it off.

    file  name of the file of the method, `labkit/methods/FILE.py`
    help  the text that `labkit train --help` shows
    """
    return field(default=None, metadata={"help": help, "method": file})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. By default every switch is off.

    `labkit train --help` shows the meaning of each field. `labkit.train.bounds.BOUNDS` has the
    range of each number.

    Raises  LabError for an unknown name, a number out of range, and switches that exclude each
            other
    """

    # What is learned
    epochs: int = setting(1, "passes over the data")
    batch: int = setting(
        128, "images per step; what is left over at the end of an epoch is dropped"
    )
    learning_rate: float = setting(1e-2, "the peak of the schedule")
    weight_decay: float = setting(1e-2, "of the optimizer")
    momentum: float = setting(
        0.9,
        "of sgd and lars; the first beta of adamw, adam, lamb and muon; of schedule_free the "
        "place between its two points. The schedule onecycle moves it by itself, from 0.95 to "
        "0.85 and back",
    )
    seed: int = setting(
        0, "of the order of the images; `labkit train` draws the weights with it, too"
    )
    optimizer: str = setting(
        "adamw",
        "adamw, adam, sgd, or a file of labkit/methods: lars (arXiv:1708.03888), lamb "
        "(arXiv:1904.00962), muon, schedule_free (arXiv:2405.15682; it goes with a constant "
        "schedule)",
    )
    schedule: str = setting("onecycle", "onecycle (arXiv:1708.07120), cosine, step or constant")
    warmup: str = setting(
        "none",
        "none, constant or gradual (arXiv:1706.02677), over the first `warmup_epochs`; not "
        "with onecycle, which has one of its own",
    )
    warmup_epochs: float = setting(0.0, "how long the warm-up takes")
    clip: float | None = setting(
        None, "largest norm of the gradient of all weights together; None: any"
    )
    accumulate: int = setting(
        1,
        "compute the gradient of a batch in so many parts: less memory. The step stays the "
        "same where no layer mixes the images of a batch; batch norm does, and sees one part "
        "at a time, as with a `ghost_size` of batch / accumulate",
    )
    label_smoothing: float = setting(
        0.0,
        "share of the target that is spread over all classes, below 1 (arXiv:1512.00567); not "
        "for networks whose probabilities are used further, such as to distil them "
        "(arXiv:1906.02629)",
    )
    ghost_size: int | None = method(
        "ghost_batch_norm",
        "batch norm over groups of so many images (arXiv:1705.08741); None: over the batch",
    )
    norm_momentum: float | None = method(
        "norm_momentum",
        "of batch norm's running averages (arXiv:1502.03167); None: as the network "
        "has it, mostly 0.1",
    )
    ema: float | None = method(
        "ema",
        "decay of a running average of the weights, such as 0.999, which is tested and left "
        "behind; None: none. Not with schedule_free, which leaves an average already",
    )
    augment: bool = setting(False, "crop and mirror the training images at random")
    size: int | None = setting(None, "pixels a side; None: as the network takes them")
    first_size: int | None = setting(
        None,
        "pixels a side in the first epoch; they grow evenly to `size` in the last "
        "(arXiv:2104.00298). Not with torch's DataLoader. None: all epochs alike",
    )
    pretrained: bool = setting(
        False,
        "`labkit train` begins with weights from ImageNet: those of efficientnet-lite0 are "
        "installed, those of "
        "resnet50 are fetched",
    )
    head_only: bool = setting(
        False,
        "train the last linear layer; the rest stays as it is and computes as it "
        "does when it is used",
    )

    # How fast
    compile: bool = setting(False, "torch.compile")
    torchscript: bool = setting(False, "torch.jit.script, its predecessor")
    amp: str | None = setting(
        None, 'autocast to "bf16", or to "fp16" with a gradient scaler (arXiv:1710.03740)'
    )
    channels_last: bool = setting(
        False,
        "NHWC in memory: mostly faster, but convolutions in groups have been slower on CPUs in "
        "some versions of torch, so time both",
    )
    cudnn_autotuner: bool = setting(
        False, "time the convolution algorithms first, then keep the best"
    )
    update: str | None = setting(
        None,
        'the optimizer\'s arithmetic as a "loop" over tensors, "foreach" or '
        '"fused"; None: torch chooses',
    )
    workers: int | None = setting(
        None,
        "None: whole batches are made at once where the set lies; a number: torch's "
        "DataLoader makes them image by image, in so many processes (0: in this one)",
    )
    pin_memory: bool = setting(
        False, "page-locked memory for the DataLoader's batches, which a GPU can fetch by itself"
    )
    phases: str | None = setting(
        None,
        'time data, forward, backward and optimizer: by the device\'s "events", or wait after '
        'each ("synchronize", which slows training down)',
    )

    def __post_init__(self):
        from labkit.train import optimizers  # imports torch, for which `labkit --help` cannot wait

        require_known(self.optimizer, optimizers.names(), "optimizer")
        for name, choices in _CHOICES.items():
            require_known(getattr(self, name), choices, name)
        for name, number in numbers_of(self).items():
            object.__setattr__(self, name, number)
        if self.batch % self.accumulate:
            raise refusal(
                f"A batch of {self.batch} has no {self.accumulate} equal parts.",
                "parts of equal size",
            )
        if self.update in ("loop", "fused") and self.optimizer not in optimizers.OF_TORCH:
            raise refusal(f"{self.optimizer} has no {self.update} form.", "update foreach or None")
        if self.first_size and self.epochs == 1:
            raise refusal(
                "Images cannot grow within one epoch.", "two epochs or more, or no first_size"
            )
        if self.first_size and (self.workers is not None or self.pin_memory):
            raise refusal(
                "The DataLoader's processes know one size of image.", "first_size or the DataLoader"
            )
        if self.ema is not None and self.optimizer == "schedule_free":
            raise refusal(
                "ema averages weights that schedule_free averages already.", "one of the two"
            )
        if self.torchscript and self.compile:
            raise refusal("TorchScript and torch.compile exclude each other.", "one of the two")
        images_at_once = self.batch // self.accumulate
        if self.ghost_size and images_at_once % self.ghost_size:
            raise refusal(
                f"{images_at_once} images at once have no groups of "
                f"{self.ghost_size}, the ghost size.",
                "a ghost size that divides them",
            )
        _require_schedule(self)
        _require_used_momentum(self)

    def methods(self):
        """Return the training methods that are switched on: {field: `labkit.methods.Hooks`}."""
        hooks = {}
        for switch in fields(self):
            if "method" not in switch.metadata:
                continue
            value = getattr(self, switch.name)
            if value is not None:
                file = importlib.import_module(f"labkit.methods.{switch.metadata['method']}")
                hooks[switch.name] = file.Method(value)
        return hooks

    def idle(self, device):
        """Return {switch: reason} of the switches that are on and have no effect on this device."""
        reasons = dict(_NO_GPU) if devices.kind(device) == "cpu" else {}
        if self.head_only:
            reasons |= dict.fromkeys(("ghost_size", "norm_momentum"), _HEAD_ONLY)
        return {name: reason for name, reason in reasons.items() if getattr(self, name)}


def _require_schedule(config):
    """Raise LabError for a schedule that the optimizer cannot have, and for a wrong warm-up.

    A warm-up is wrong with the schedule onecycle, which has its own. It needs more than 0 epochs,
    and at most those of the training. Without a warm-up, `warmup_epochs` has to be 0.
    """
    from labkit.train import optimizers

    # The schedule has to be one of the optimizer's.
    schedules = optimizers.schedules(config.optimizer)
    if schedules and config.schedule not in schedules:
        problem = f"The optimizer {config.optimizer} has no schedule {config.schedule}."
        raise refusal(problem, f"the schedule {' or '.join(schedules)}")

    # A warm-up needs a schedule that has none of its own, and epochs.
    if config.warmup == "none" and config.warmup_epochs:
        problem = f"warmup_epochs is {config.warmup_epochs:g}, and there is no warm-up."
        raise refusal(problem, "a warm-up, gradual or constant, or 0 epochs of it")
    if config.warmup == "none":
        return
    if config.schedule == "onecycle":
        problem = (
            f"The schedule onecycle has a warm-up of its own; it leaves none to be {config.warmup}."
        )
        raise refusal(problem, "the schedule cosine, step or constant, or no warm-up")
    if not 0 < config.warmup_epochs <= config.epochs:
        problem = (
            f"A {config.warmup} warm-up of {config.warmup_epochs:g} epochs does not fit a "
            f"training of {config.epochs}."
        )
        raise refusal(problem, "warmup_epochs above 0 and at most the epochs of the training")


def _require_used_momentum(config):
    """Raise LabError where the user set a momentum that has no effect.

    It has no effect with the schedule onecycle, which sets the momentum itself, and with an
    optimizer without momentum. A momentum that equals the default counts as not set.
    """
    from labkit.train import optimizers

    if config.momentum == TrainConfig.momentum:
        return
    if config.schedule == "onecycle":
        problem = (
            f"momentum is {config.momentum:g}, and the schedule onecycle moves the "
            "momentum by itself."
        )
        raise refusal(problem, "the schedule cosine, step or constant, or no momentum given")
    if not optimizers.has_momentum(config):
        raise refusal(
            f"momentum is {config.momentum:g}, and {config.optimizer} has none.",
            "no momentum given",
        )


def refusal(problem, expected):
    """Return the LabError for a setting that does not work."""
    return LabError(problem, expected=expected, fix="choose another value")
