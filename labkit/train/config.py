"""How to train: every switch of the loop is one field."""

import importlib
from dataclasses import dataclass, field, fields

from labkit import device as devices
from labkit.errors import LabError, require_known

_CHOICES = {
    "update": (None, "loop", "foreach", "fused"),
    "schedule": ("onecycle", "cosine", "step", "constant"),
    "warmup": ("none", "constant", "gradual"),
    "amp": (None, "bf16", "fp16"),
    "phases": (None, "events", "synchronize"),
}
_AT_LEAST = {"epochs": 1, "batch": 1, "accumulate": 1, "workers": 0, "size": 8, "first_size": 8, "seed": 0}
_NO_GPU = {
    "pin_memory": "the images stay in this machine's memory: nothing is copied to a GPU",
    "cudnn_autotuner": "cuDNN, whose algorithms it times, runs on NVIDIA GPUs only",
}


def method(file):
    """A field that switches on the training method of `labkit/methods/<file>.py`; None: it is off."""
    return field(default=None, metadata={"method": file})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. Each of the defaults leaves a switch off.

    What is learned:
    epochs           passes over the data
    batch            images per step; what is left over at the end of an epoch is dropped
    learning_rate    the peak of the schedule
    weight_decay     of the optimizer
    momentum         of sgd and lars; the first beta of adamw, adam, lamb and muon; of schedule_free
                     the place between its two points
    seed             of the order of the images; `labkit train` draws the weights with it, too
    optimizer        adamw, adam, sgd, or a file of labkit/methods: lars (arXiv:1708.03888), lamb (arXiv:1904.00962),
                     muon, schedule_free (arXiv:2405.15682; it goes with a constant schedule)
    schedule         onecycle (arXiv:1708.07120), cosine, step or constant
    warmup           none, constant or gradual (arXiv:1706.02677), over the first `warmup_epochs`
    warmup_epochs    how long the warm-up takes
    clip             largest norm of the gradient of all weights together; None: any
    accumulate       compute the gradient of a batch in so many parts: less memory, the same step
    label_smoothing  share of the target that is spread over all classes, 0 to 1 (arXiv:1512.00567); not for networks
                     whose probabilities are used further, such as to distil them (arXiv:1906.02629)
    ghost_size       batch norm over groups of so many images (arXiv:1705.08741); None: over the batch
    norm_momentum    of batch norm's running averages (arXiv:1502.03167); None: as the network has it, mostly 0.1
    ema              decay of a running average of the weights, such as 0.999; None: none
    augment          crop and mirror the training images at random
    size             pixels a side; None: as the network takes them
    first_size       pixels a side in the first epoch; they grow evenly to `size` in the last (arXiv:2104.00298). Not
                     with torch's DataLoader. None: all epochs alike
    pretrained       `labkit train` begins with published weights: efficientnet-lite0 has some, from ImageNet
    head_only        train the last linear layer; the rest stays as it is and computes as it does when it is used

    How fast:
    compile          torch.compile
    torchscript      torch.jit.script, its predecessor
    amp              autocast to "bf16", or to "fp16" with a gradient scaler (arXiv:1710.03740)
    channels_last    NHWC in memory
    cudnn_autotuner  time the convolution algorithms first, then keep the best
    update           the optimizer's arithmetic as a "loop" over tensors, "foreach" or "fused"; None: torch chooses
    workers          None: whole batches are made at once where the set lies; a number: torch's DataLoader makes
                     them image by image, in so many processes (0: in this one)
    pin_memory       page-locked memory for the DataLoader's batches, which a GPU can fetch by itself
    phases           time data, forward, backward and optimizer: by the device's "events", or wait after each
                     ("synchronize", which slows training down)
    """

    epochs: int = 1
    batch: int = 128
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    momentum: float = 0.9
    seed: int = 0
    optimizer: str = "adamw"
    schedule: str = "onecycle"
    warmup: str = "none"
    warmup_epochs: float = 0.0
    clip: float | None = None
    accumulate: int = 1
    label_smoothing: float = 0.0
    ghost_size: int | None = method("ghost_batch_norm")
    norm_momentum: float | None = method("norm_momentum")
    ema: float | None = method("ema")
    augment: bool = False
    size: int | None = None
    first_size: int | None = None
    pretrained: bool = False
    head_only: bool = False

    compile: bool = False
    torchscript: bool = False
    amp: str | None = None
    channels_last: bool = False
    cudnn_autotuner: bool = False
    update: str | None = None
    workers: int | None = None
    pin_memory: bool = False
    phases: str | None = None

    def __post_init__(self):
        from labkit.train import optimizers  # imports torch, for which `labkit --help` cannot wait

        require_known(self.optimizer, optimizers.names(), "optimizer")
        for name, known in _CHOICES.items():
            require_known(getattr(self, name), known, name)
        for name, least in _AT_LEAST.items():
            if (value := getattr(self, name)) is not None and value < least:
                raise refusal(f"{name} is {value}.", f"at least {least}")
        if self.batch % self.accumulate:
            raise refusal(f"A batch of {self.batch} has no {self.accumulate} equal parts.", "parts of equal size")
        if self.update in ("loop", "fused") and self.optimizer not in optimizers.OF_TORCH:
            raise refusal(f"{self.optimizer} has no {self.update} form.", "update foreach or None")
        if self.first_size and self.epochs == 1:
            raise refusal("Images cannot grow within one epoch.", "two epochs or more, or no first_size")
        if self.first_size and (self.workers is not None or self.pin_memory):
            raise refusal("The DataLoader's processes know one size of image.", "first_size or the DataLoader")
        if self.torchscript and self.compile:
            raise refusal("TorchScript and torch.compile exclude each other.", "one of the two")

    def methods(self):
        """{field: `labkit.methods.Hooks`} of the training methods that are switched on."""
        found = {}
        for each in fields(self):
            if "method" in each.metadata and (value := getattr(self, each.name)) is not None:
                file = importlib.import_module(f"labkit.methods.{each.metadata['method']}")
                found[each.name] = file.Method(value)
        return found

    def idle(self, device):
        """{switch that is on: why it does nothing on this device}."""
        reasons = _NO_GPU if devices.kind(device) == "cpu" else {}
        return {name: reason for name, reason in reasons.items() if getattr(self, name)}


def refusal(what, expected):
    """The error of a setting that does not work."""
    return LabError(what, expected=expected, fix="choose another value")
