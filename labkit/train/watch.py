"""Watch a training: the time of its phases, its losses, its memory, and its progress."""

import math
import os
import sys
from contextlib import contextmanager
from itertools import pairwise

from labkit import device as devices
from labkit.errors import LabError
from labkit.format import shown
from labkit.measure import clock_of

PHASES = ("data", "forward", "backward", "optimizer")


class NotFinite(LabError):
    """The loss is no longer a number: more training would only spoil the weights."""


class OutOfMemory(LabError):
    """The device has too little memory for this training."""


class Laps:
    """A stopwatch for the phases of a training, on a device that computes in the background.

    `lap("forward")` adds the time since the call before to the phase "forward".

    device  a device, or a `measure.Clock`
    mode    None: nothing is timed. "synchronize": each call waits for the device, which slows the
            training down. "events": each call puts an event into the device's queue, and the times
            are read at the end of the epoch, without slowing the training down. A device without
            events is waited for at each call
    """

    def __init__(self, device, mode):
        self.mode = mode
        self.clock = clock_of(device)
        self.marks = []  # (phase that ended, moment of its end)
        self.event = self.clock.event if mode == "events" else None

    def start(self):
        """Begin an epoch. Time before this call belongs to no phase."""
        self.clock.synchronize()
        self.marks = [(None, self._mark())] if self.mode else []

    def __call__(self, phase):
        """Count the time since the call before, or since `start`, as time of this phase."""
        if self.mode:
            self.marks.append((phase, self._mark()))

    def _mark(self):
        """Return the present moment: an event on the device, or a time in seconds."""
        if self.event:
            mark = self.event()
            mark.record()
            return mark
        self.clock.synchronize()
        return self.clock.now()

    def stop(self):
        """End an epoch, and return {phase: seconds}; {} where nothing is timed."""
        self.clock.synchronize()
        seconds = dict.fromkeys(PHASES, 0.0) if self.mode else {}
        for (_, before), (phase, after) in pairwise(self.marks):
            seconds[phase] += before.elapsed_time(after) / 1e3 if self.event else after - before
        return seconds


class Losses:
    """Collect the losses; raise `NotFinite` at most one step after a loss that is not finite.

    A training on a GPU does not wait for the loss. The loss is copied in the background, and read
    one step later, when the next step is already in the GPU's queue. On a device without events,
    such as a CPU, the loss is read at once, before the weights change.

    values  the list to append to
    config  a `TrainConfig`, for the advice in the error
    """

    def __init__(self, values, config, *, device):
        self.values = values
        self.config = config
        self.waiting = None  # of the step before: (copy of its loss, event after the copy)
        self.mark = devices.event_maker(device)

    def add(self, loss):
        """Add the loss of one step, a 0-dimensional tensor on the device."""
        if self.mark is None:
            self._append(float(loss))
            return
        copy = loss.to("cpu", non_blocking=True)
        event = self.mark()
        event.record()
        self.read()
        self.waiting = copy, event

    def read(self):
        """Read the loss of the step before, where its copy has not been read yet.

        Raises `NotFinite` where this loss is not finite.
        """
        if self.waiting:
            copy, event = self.waiting
            self.waiting = None
            event.synchronize()
            self._append(float(copy))

    def _append(self, value):
        """Append a loss, a float; raise `NotFinite` where it is not finite."""
        if not math.isfinite(value):
            rate = self.config.learning_rate
            before = (
                f"{self.values[-1]:.4g} in the step before"
                if self.values
                else "it is the first step"
            )
            raise NotFinite(
                f"The loss became {value} in step {len(self.values) + 1}; training has stopped.",
                expected="a finite loss in every step",
                found=f"{value}; {before}, with a peak learning rate of {rate:g}",
                fix=f"try a learning rate of {rate / 10:g}, then clip 1.0, then amp bf16 in place "
                "of fp16, then a "
                "gradual warmup; look for infinite or missing values in the images",
            )
        self.values.append(value)


@contextmanager
def out_of_memory_explained(config, device):
    """Raise `OutOfMemory` in place of torch's error, within the `with` block.

    The error says the batch, the peak of the memory and what to try.

    config  a `TrainConfig`
    """
    devices.reset_peak_memory(device)
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not devices.is_out_of_memory(error):
            raise
        images = config.batch // config.accumulate
        peak = devices.peak_memory_bytes(device)
        peak_text = f"a peak of {shown(peak, 'B')}" if peak else "no counter of the peak here"
        raise OutOfMemory(
            f"There is not enough memory on {device} to train with batches of {images}.",
            expected=f"room for a pass over {images} images, forwards and backwards",
            found=f"{peak_text}, {shown(devices.free_bytes(device), 'B')} free now",
            fix=f"accumulate {2 * config.accumulate} (the same step in parts; batch norm sees one "
            "part at a time), "
            f"then amp bf16, then a batch of {max(config.batch // 2, 1)}",
        ) from None  # the traceback would keep the tensors alive


class _NotebookLine:
    """The file into which tqdm writes its bar in a notebook: one output, empty at the end.

    Each write replaces the text of the output. tqdm's own bar is a widget, which needs a running
    kernel: a saved notebook could not show it.
    """

    def __init__(self):
        from IPython.display import display

        self._output = display({"text/plain": ""}, raw=True, display_id=True)

    def write(self, text):
        """Show this text in place of the last one."""
        self._output.update({"text/plain": text.strip()}, raw=True)

    def flush(self):
        """Do nothing; tqdm calls this."""


@contextmanager
def progress_bar(total, done, unit="step"):
    """Yield a tqdm bar of `total` steps, shown where there is a notebook or a terminal.

    An interrupt by the user becomes a KeyboardInterrupt with one sentence for a message.

    done  number of steps that were done before, such as in a training that is continued
    unit  name of a step, in the singular
    """
    from tqdm import tqdm

    in_notebook = "ipykernel" in sys.modules
    silent = os.environ.get("LABKIT_HEADLESS") == "1" or not (in_notebook or sys.stderr.isatty())
    settings = {}
    if in_notebook and not silent:
        settings = {"file": _NotebookLine(), "ncols": 90, "ascii": False}
    with tqdm(
        total=total, initial=done, disable=silent, leave=False, unit=unit, position=0, **settings
    ) as bar:
        try:
            yield bar
        except KeyboardInterrupt:
            message = (
                f"You stopped it, {bar.n} of {total} {unit}s done. Nothing is broken: run the "
                "cell again."
            )
            raise KeyboardInterrupt(message) from None
