"""Training: one plain loop. What is switched on is decided by a `TrainConfig`; methods take part through hooks."""

import time
import warnings
from dataclasses import dataclass, field

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from labkit import device as devices
from labkit.errors import Unavailable
from labkit.train.checkpoint import Checkpoint
from labkit.train.config import TrainConfig
from labkit.train.feed import Feed
from labkit.train.optimizers import make_optimizer, set_rate
from labkit.train.watch import Laps, Losses, out_of_memory_explained, progress_bar

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(kw_only=True)
class History:
    """What a training did.

    losses         of each step, in nats
    accuracy       on the test set after each epoch, 0 to 1; empty without a test set
    epoch_seconds  of each epoch, without the test; the first includes compiling
    epoch_phases   of each epoch, {"data", "forward", "backward", "optimizer": seconds} if `TrainConfig.phases`
    restored       epochs that a checkpoint brought
    peak_bytes     most memory the GPU's allocator held; None elsewhere
    model          where a method leaves another model than the one that was trained, such as an average; else None
    """

    losses: list = field(default_factory=list)
    accuracy: list = field(default_factory=list)
    epoch_seconds: list = field(default_factory=list)
    epoch_phases: list = field(default_factory=list)
    restored: int = 0
    peak_bytes: int | None = None
    model: torch.nn.Module | None = None

    @property
    def seconds(self):
        return sum(self.epoch_seconds)

    @property
    def steps(self):
        return len(self.losses)


def fit(model, data, config=None, *, device, test=None, checkpoint=None, hooks=None, loss=None):
    """Train `model` in place on `data`: a `History`.

    data        a `labkit.data.ImageSet`
    config      a `TrainConfig`
    test        an ImageSet to test on after each epoch
    checkpoint  path of a .pt, written after each epoch; where it exists, training goes on from there
    hooks       {name: `labkit.methods.Hooks`} that take part besides the methods of the config
    loss        loss(logits, labels, images) to minimise, a mean over the batch; None: cross-entropy
    Raises      NotFinite within one step of such a loss; OutOfMemory; CheckpointError when it is damaged or of another
    """
    config, device = config or TrainConfig(), torch.device(device)
    layout = torch.channels_last if config.channels_last else torch.preserve_format
    methods, model = {**config.methods(), **(hooks or {})}, model.to(device, memory_format=layout)
    loss_of = loss or (lambda logits, labels, _: cross_entropy(logits, labels, label_smoothing=config.label_smoothing))
    for method in methods.values():
        model = method.begin(model)
    feed, optimizer = Feed(data, config, device=device), make_optimizer(model.parameters(), config)
    scaler = torch.amp.GradScaler(device.type, enabled=config.amp == "fp16")
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler, **methods}
    kept, history = Checkpoint(checkpoint, parts, config, data, device), History()
    kept.restore(history)
    losses, lap = Losses(history.losses, config, device=device), Laps(device, config.phases)
    step, steps = history.steps, config.epochs * len(feed)
    with (
        devices.fast_math(cudnn_autotuner=config.cudnn_autotuner),
        out_of_memory_explained(config, device),
        progress_bar(steps, step) as bar,
    ):
        begin = time.perf_counter()
        network = _faster_form(model.train(), config)
        for epoch in range(history.restored, config.epochs):
            lap.start()
            for images, labels in feed.epoch(epoch):
                lap("data")
                optimizer.zero_grad(set_to_none=True)
                set_rate(optimizer, config, step=step, steps=steps)
                total = torch.zeros((), device=device)
                for x, y in zip(images.chunk(config.accumulate), labels.chunk(config.accumulate), strict=True):
                    with torch.autocast(device.type, _DTYPES.get(config.amp), enabled=config.amp is not None):
                        part = loss_of(network(x), y, x) / config.accumulate
                    lap("forward")
                    scaler.scale(part).backward()
                    total += part.detach()
                    lap("backward")
                losses.add(total)
                scaler.unscale_(optimizer)
                if config.clip is not None:
                    clip_grad_norm_(model.parameters(), config.clip)
                for method in methods.values():
                    method.before_update(model)
                scaler.step(optimizer)
                scaler.update()
                for method in methods.values():
                    method.after_update(model)
                lap("optimizer")
                bar.update()
                step += 1
            losses.read()
            history.epoch_phases.append(lap.stop())
            history.epoch_seconds.append(time.perf_counter() - begin)
            if test is not None:
                history.accuracy.append(accuracy(_result(model, methods), test, device=device, size=config.size))
                model.train()
            kept.save(history)
            begin = time.perf_counter()
    history.peak_bytes, left = devices.peak_memory_bytes(device), _result(model, methods)
    history.model = None if left is model else left
    return history


def _result(model, methods):
    for method in methods.values():
        model = method.result(model)
    return model


def _faster_form(model, config):
    """A form of the model that computes the same with fewer kernels, or less Python; it shares the weights."""
    if config.torchscript:
        return scripted(model)
    if config.compile:
        devices.require_compiler(next(model.parameters()).device)
        return torch.compile(model, dynamic=False)
    return model


def scripted(model):
    """The model as TorchScript. Raises Unavailable where torch has none, or cannot translate this network."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", (FutureWarning, DeprecationWarning))  # it is deprecated: the lesson says so
            return torch.jit.script(model)
    except Exception as error:  # whatever its compiler dislikes is the reason
        raise Unavailable(
            "TorchScript cannot run this network here.",
            expected="a network of plain layers, and a torch that still has torch.jit.script",
            found=f"torch {torch.__version__}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}",
            fix="use torch.compile, its successor",
        ) from None


def train_step(model, optimizer, images, labels):
    """The bare step: forward, backward, update. Returns the loss, a 0-dimensional tensor still on the device."""
    optimizer.zero_grad(set_to_none=True)
    loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def accuracy(model, data, *, device, batch=500, size=None):
    """Fraction of `data` (an ImageSet) the model gets right, 0 to 1; the model is left in eval mode.

    size  of the images, as in `ImageSet.batches`
    """
    return float(right_answers(model, data, device=device, batch=batch, size=size).mean())


@torch.inference_mode()
def right_answers(model, data, *, device="cpu", batch=500, size=None):
    """(N,) bool: which of `data` (an ImageSet) the model gets right; it is left on the device, in eval mode.

    size  of the images, as in `ImageSet.batches`
    """
    model.to(device).eval()
    batches = data.batches(batch, device=device, size=size)
    return torch.cat([model(images).argmax(1) == labels for images, labels in batches]).cpu().numpy()
