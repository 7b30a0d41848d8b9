"""Training: one plain loop in which every switch of `TrainConfig` is one visible line."""

import time
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from labkit import device as devices
from labkit.methods.ema import EMA
from labkit.methods.ghost_batch_norm import with_ghost_batch_norm
from labkit.train.config import TrainConfig
from labkit.train.feed import Feed
from labkit.train.forms import faster_form
from labkit.train.losses import Losses
from labkit.train.memory import explained
from labkit.train.optimizers import make_optimizer, set_rate
from labkit.train.phases import PHASES, Laps
from labkit.train.progress import progress_bar
from labkit.train.resume import Keeper

DTYPES = {None: None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(kw_only=True)
class History:
    """What a training did.

    losses         of each step, in nats
    accuracy       on the test set after each epoch, 0 to 1; empty without a test set
    epoch_seconds  of each epoch, without the test; the first includes compiling
    epoch_phases   of each epoch, {"data", "forward", "backward", "optimizer": seconds} if `TrainConfig.phases`
    peak_bytes     most memory the GPU's allocator held; None elsewhere
    average        the model with averaged weights, where `TrainConfig.ema` asks for one
    """

    losses: list = field(default_factory=list)
    accuracy: list = field(default_factory=list)
    epoch_seconds: list = field(default_factory=list)
    epoch_phases: list = field(default_factory=list)
    peak_bytes: int | None = None
    average: torch.nn.Module | None = None

    @property
    def seconds(self):
        return sum(self.epoch_seconds)

    @property
    def steps(self):
        return len(self.losses)

    @property
    def phases(self):
        """The phases of all epochs together; empty where they were not timed."""
        names = {name for epoch in self.epoch_phases for name in epoch}
        return {name: sum(epoch[name] for epoch in self.epoch_phases) for name in PHASES if name in names}


def fit(model, data, config=None, *, device, test=None, checkpoint=None):
    """Train `model` in place on `data`: a `History`.

    data        a `labkit.data.ImageSet`
    config      a `TrainConfig`
    test        an ImageSet to test on after each epoch
    checkpoint  path of a .json, written after each epoch; where it exists, training goes on from there
    Raises      NotFinite within one step of such a loss; OutOfMemory; CheckpointError when it is damaged or of another
    """
    config, device = config or TrainConfig(), torch.device(device)
    layout = torch.channels_last if config.channels_last else torch.preserve_format
    model = with_ghosts(model.to(device, memory_format=layout), config).train()
    feed, optimizer = Feed(data, config, device=device), make_optimizer(model.parameters(), config)
    scaler, average = torch.amp.GradScaler(device.type, enabled=config.amp == "fp16"), averaged(model, config)
    history, parts = History(average=average), {"model": model, "optimizer": optimizer, "scaler": scaler}
    keeper = Keeper(checkpoint, {**parts, **({"average": average} if average else {})}, config, data, device)
    keeper.restore(history)
    losses, lap = Losses(history.losses, config, device=device), Laps(device, config.phases)
    step, steps = history.steps, config.epochs * len(feed)
    with switches(config, device), progress_bar(steps, step) as bar:
        begin = time.perf_counter()
        network = faster_form(model, config, example=lambda: next(iter(feed.epoch(0)))[0])
        for epoch in range(len(history.epoch_seconds), config.epochs):
            lap.start()
            for images, labels in feed.epoch(epoch):
                lap("data")
                optimizer.zero_grad(set_to_none=True)
                set_rate(optimizer, config, step=step, steps=steps)
                total = torch.zeros((), device=device)
                for x, y in zip(images.chunk(config.accumulate), labels.chunk(config.accumulate), strict=True):
                    with torch.autocast(device.type, DTYPES[config.amp], enabled=config.amp is not None):
                        loss = cross_entropy(network(x), y, label_smoothing=config.label_smoothing) / config.accumulate
                    lap("forward")
                    scaler.scale(loss).backward()
                    total += loss.detach()
                    lap("backward")
                losses.add(total)
                if config.clip is not None:
                    scaler.unscale_(optimizer)
                    clip_grad_norm_(model.parameters(), config.clip)
                scaler.step(optimizer)
                scaler.update()
                if average:
                    average.update(model)
                lap("optimizer")
                bar.update()
                step += 1
            losses.read()
            history.epoch_phases.append(lap.stop())
            history.epoch_seconds.append(time.perf_counter() - begin)
            if test is not None:
                history.accuracy.append(accuracy(average or model, test, device=device, size=config.size))
                model.train()
            keeper.save(history)
            begin = time.perf_counter()
    history.peak_bytes = devices.peak_memory_bytes(device)
    return history


@contextmanager
def switches(config, device):
    """What holds for the whole training and is put back after it: TF32, the autotuner, a clear out-of-memory."""
    devices.reset_peak_memory(device)
    with devices.fast_math(tf32=config.tf32, cudnn_autotuner=config.cudnn_autotuner), explained(config, device):
        yield


def with_ghosts(model, config):
    """The model with batch norm over groups, where the config asks for it."""
    return model if config.ghost_size is None else with_ghost_batch_norm(model, config.ghost_size)


def averaged(model, config):
    """The running average of the weights, where the config asks for one, else None."""
    return None if config.ema is None else EMA(model, config.ema)


def train_step(model, optimizer, images, labels):
    """The bare step: forward, backward, update. Returns the loss, a 0-dimensional tensor still on the device."""
    optimizer.zero_grad(set_to_none=True)
    loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.inference_mode()
def accuracy(model, data, *, device, batch=500, size=None):
    """Fraction of `data` (an ImageSet) the model gets right, 0 to 1; the model is left in eval mode.

    size  of the images, as in `ImageSet.batches`
    """
    model.to(device).eval()
    batches = data.batches(batch, device=device, size=size)
    return sum(int((model(images).argmax(1) == labels).sum()) for images, labels in batches) / len(data)
