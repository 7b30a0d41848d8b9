"""Train a network: one plain loop.

A `TrainConfig` decides what is switched on; methods take part through hooks.
"""

import copy
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from labkit import device as devices
from labkit.train.checkpoint import Checkpoint
from labkit.train.compiled import Watched, compiled_throughout
from labkit.train.config import TrainConfig
from labkit.train.feed import Feed
from labkit.train.history import History
from labkit.train.optimizers import make_optimizer, set_rate
from labkit.train.statistics import count_anew, moved_by_parts
from labkit.train.testing import accuracy
from labkit.train.torchscript import scripted
from labkit.train.watch import Laps, Losses, out_of_memory_explained, progress_bar

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def fit(
    model: nn.Module,
    data: Any,
    config: TrainConfig | None = None,
    *,
    device: torch.device | str,
    checkpoint: str | Path | None = None,
    hooks: dict | None = None,
) -> History:
    """Train `model` in place on `data`. Returns a `History`.

    data        a `labkit.data.ImageSet` to train on, or a pair: one to train on and one to test on
                after each epoch
    config      a `TrainConfig`; None: its defaults
    checkpoint  path of a .pt file that is written after each epoch. If the file exists, the
                training in it is continued. Its config may differ from `config` in `epochs`, and in
                settings that do not change what is learned, such as `workers`
    hooks       {name: `labkit.methods.Hooks`} of methods that take part besides those of the config
    Raises      NotFinite at most one step after a loss that is NaN or infinite; OutOfMemory;
                CheckpointError when the checkpoint is damaged or of another training; Unavailable
                when torch.compile cannot compile every step
    """
    config = config or TrainConfig()
    device = torch.device(device)
    train, test = data if isinstance(data, tuple) else (data, None)
    feed = Feed(train, config, device=device)
    run = _Run(model, config, hooks or {}, device)

    # continue the training of the checkpoint, if there is one
    saved = Checkpoint(checkpoint, run.components, config, train, device)
    history = History()
    saved.restore(history)
    losses = Losses(history.losses, config, device=device)

    with (
        torch.backends.cudnn.flags(enabled=True, benchmark=config.cudnn_autotuner),
        out_of_memory_explained(config, device),
        compiled_throughout(config, feed),
        progress_bar(config.epochs * len(feed), history.steps) as bar,
    ):
        tested = None
        for epoch in range(history.restored, config.epochs):
            begin = time.perf_counter()
            history.epoch_phases.append(run.epoch(epoch, feed, losses=losses, bar=bar))
            history.epoch_seconds.append(time.perf_counter() - begin)
            if run.watched is not None:
                run.watched.require_compiled()
                history.graph_breaks = run.watched.graph_breaks
                history.compiled += 1
            if test is not None or checkpoint:
                tested = _model_to_test(run, feed, epoch, history)
            if test is not None:
                history.accuracy.append(accuracy(tested, test, device=device, size=config.size))
            saved.save(history, tested)
        if tested is None:
            tested = _model_to_test(run, feed, config.epochs - 1, history)

    history.peak_bytes = devices.peak_memory_bytes(device)
    history.model = None if tested is run.model else tested
    model.train(run.model.training)  # `run.model` may be a copy that shares the weights
    return history


def _model_to_test(run, feed, epoch, history):
    """Return the module that is tested after an epoch; write the time to make it into the history.

    run    the `_Run`
    feed   the `Feed`. If a method leaves an average, the statistics of its batch norm are
           recomputed on images of this feed
    epoch  number of the epoch, from 0
    """
    begin = time.perf_counter()
    tested = run.result(feed.epoch(epoch))
    run.lap.clock.synchronize()
    history.result_seconds = time.perf_counter() - begin
    return tested


class _Run:
    """A network in training, with its optimizer, gradient scaler, loss and methods.

    model       the network with the changes that methods make to its layers
    network     the form of `model` that computes, such as the compiled one
    watched     the `Watched` around the network under torch.compile, else None
    loss        function loss(logits, labels, images) that is minimised
    components  {name: object with a state_dict} that a checkpoint stores
    """

    def __init__(self, model, config, hooks, device):
        methods = {**config.methods(), **hooks}
        layout = torch.channels_last if config.channels_last else torch.preserve_format
        model = self.original = model.to(device, memory_format=layout)
        for method in methods.values():
            model = method.begin(model)
        model = self.model = moved_by_parts(model, config.accumulate)
        self.methods = methods
        self.config = config
        self.device = device
        if config.head_only:
            _freeze_all_but_the_head(model)
        model.train(not config.head_only)
        self.watched = Watched(model) if config.compile else None
        self.network = _faster_form(model, config, self.watched)
        learning = [
            (name, weight) for name, weight in model.named_parameters() if weight.requires_grad
        ]
        self.optimizer = make_optimizer(learning, config)
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.amp == "fp16")
        self.lap = Laps(device, config.phases)
        self.loss = next(
            (method.loss for method in methods.values() if method.loss), self._cross_entropy
        )
        # what a checkpoint has to hold
        self.components = {
            "model": model,
            "optimizer": self.optimizer,
            "scaler": self.scaler,
            **methods,
        }

    def epoch(self, number, feed, *, losses, bar):
        """Train on every batch of an epoch once. Returns {phase: seconds}; {} where none is timed.

        number  number of the epoch, from 0
        feed    a `Feed`
        losses  a `Losses`
        bar     the progress bar
        """
        first = number * len(feed)
        steps = self.config.epochs * len(feed)
        self.model.train(not self.config.head_only)  # a test leaves it in eval mode
        self.lap.start()
        for step, (images, labels) in enumerate(feed.epoch(number), start=first):
            self.lap("data")
            # the rate of this step, the gradient of its batch, then the weights
            set_rate(self.optimizer, self.config, step=step, steps=steps)
            losses.add(self.backward(images, labels))
            self.update()
            bar.update()
        losses.read()
        return self.lap.stop()

    def _cross_entropy(self, logits, labels, _images):
        """Return the cross-entropy, which is the loss unless a method has its own.

        _images  not used: every loss function gets (logits, labels, images)
        """
        return cross_entropy(logits, labels, label_smoothing=self.config.label_smoothing)

    def backward(self, images, labels):
        """Compute the gradient of a batch, in `accumulate` parts, into the weights' `grad`.

        images   (batch, C, H, W)
        labels   (batch,)
        returns  the loss of the batch, a 0-dimensional tensor
        """
        config = self.config
        # delete the gradients of the step before
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        # gradients of the parts add up to that of the batch, and need the memory of one part
        for x, y in zip(
            images.chunk(config.accumulate), labels.chunk(config.accumulate), strict=True
        ):
            with torch.autocast(
                self.device.type, _DTYPES.get(config.amp), enabled=config.amp is not None
            ):
                loss = self.loss(self.network(x), y, x) / config.accumulate
            self.lap("forward")
            # in fp16 the loss is scaled up, because small gradients would become 0
            self.scaler.scale(loss).backward()
            total += loss.detach()
            self.lap("backward")
        return total

    def update(self):
        """Change the weights by one step of the optimizer."""
        # bring the gradient back to its true size, then clip it
        self.scaler.unscale_(self.optimizer)
        if self.config.clip is not None:
            clip_grad_norm_(self.model.parameters(), self.config.clip)
        for method in self.methods.values():
            method.before_update(self.model)
        # step the optimizer; the scaler leaves out a step whose gradient is not finite
        self.scaler.step(self.optimizer)
        self.scaler.update()
        for method in self.methods.values():
            method.after_update(self.model)
        self.lap("optimizer")

    def result(self, batches):
        """Return the model to be tested and kept: the trained one, or a copy with other weights.

        Batch norm's running statistics belong to the weights of the trained model. For a copy with
        other weights they are recomputed over the images of an epoch.

        batches  (images, labels) of this epoch
        """
        model = self.model
        for component in (self.optimizer, *self.methods.values()):
            if hasattr(component, "result"):
                model = component.result(model)
        if model is self.model:
            return model
        # with `head_only` the statistics stay, because all layers before the head stay
        if not self.config.head_only:
            count_anew(model, self._chunks(images for images, _ in batches))
        tested = copy.deepcopy(self.original)
        tested.load_state_dict(model.state_dict())
        return tested

    def _chunks(self, tensors):
        """Cut each batch into `accumulate` parts, and yield the parts of all batches.

        tensors  the images of each batch
        """
        for tensor in tensors:
            yield from tensor.chunk(self.config.accumulate)


def _freeze_all_but_the_head(model):
    """Let only the last linear layer learn; the backward pass then ends at that layer."""
    *_, head = (layer for layer in model.modules() if isinstance(layer, torch.nn.Linear))
    model.requires_grad_(False)
    head.requires_grad_()


def _faster_form(model, config, watched):
    """Return the model compiled by TorchScript or torch.compile, as the config asks.

    A compiled form shares the weights of the model. Returns the model itself where the config asks
    for neither.

    watched  the `Watched` around the model, which torch.compile compiles; None: do not compile
    """
    if config.torchscript:
        return scripted(model)
    if watched is not None:
        devices.require_compiler(next(model.parameters()).device)
        return torch.compile(watched, dynamic=False)
    return model
