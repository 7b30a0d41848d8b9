"""The loss of each step, and the end of a training that has gone wrong."""

import math

from labkit.device import event_maker
from labkit.errors import LabError


class NotFinite(LabError):
    """The loss is no longer a number: training on would only spoil the weights."""


class Losses:
    """Collects the losses and raises `NotFinite` within one step of one that is not a finite number.

    A GPU is never waited for: the loss is copied in the background and read one step later, when the next step is
    already in its queue. Elsewhere it is read at once, before the weights are touched.

    values  the list to append to
    """

    def __init__(self, values, config, *, device):
        self.values, self.config, self.waiting = values, config, []
        self.mark = event_maker(device)

    def add(self, loss):
        """Take the loss of one step, a 0-dimensional tensor on the device."""
        copy, event = loss.to("cpu", non_blocking=self.mark is not None), None
        if self.mark:
            event = self.mark()
            event.record()
        self.waiting.append((copy, event))
        self.read(all_but=1 if self.mark else 0)

    def read(self, all_but=0):
        """Look at the losses that wait, except the newest `all_but`."""
        while len(self.waiting) > all_but:
            copy, event = self.waiting.pop(0)
            if event:
                event.synchronize()
            if not math.isfinite(copy):
                raise self.trouble(float(copy))
            self.values.append(float(copy))

    def trouble(self, value):
        before = f"{self.values[-1]:.4g} in the step before" if self.values else "it is the first step"
        return NotFinite(
            f"The loss became {value} in step {len(self.values) + 1}; training has stopped.",
            expected="a finite loss in every step",
            found=f"{value}; {before}, with a peak learning rate of {self.config.learning_rate:g}",
            fix=advice(self.config),
        )


def advice(config):
    """What to change, the most likely cause first."""
    tips = [f"try a learning rate of {config.learning_rate / 10:g}"]
    tips += ["amp='bf16', whose range is that of fp32"] if config.amp == "fp16" else []
    tips += ["clip=1.0"] if config.clip is None else []
    tips += ["warmup='gradual'"] if config.schedule != "onecycle" and config.warmup == "none" else []
    return ", then ".join(tips) + "; look for infinite or missing values in the images"
