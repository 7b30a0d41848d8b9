"""The published ConvNeXt experiment: training with compile and AMP, inference with activations.

AMP is automatic mixed precision, and compile is torch.compile.
"""

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

from labkit.gpu.arms import Arm
from labkit.gpu.bench import Bench
from labkit.gpu.measuring import measure
from labkit.methods.fastswish import FastSwish
from labkit.models import build
from labkit.models.convnext import convnext

IMAGES = 100_000  # size of Tiny-ImageNet's training set
CLASSES = 200
BATCH = 128
ACTIVATIONS = {
    "GELU": nn.GELU,
    "HardSwish": nn.Hardswish,
    "ReLU": nn.ReLU,
    "FastSwish": functools.partial(FastSwish, "naive"),
}
NETWORK = "convnext-homebrew"


def network_of(bench: Bench, activation: Callable = nn.GELU) -> nn.Module:
    """Return the ConvNeXt with 18,166,472 parameters, on the device.

    With tiny sizes a small network is returned. The random weights are always the same.

    activation  function () -> an activation module
    """
    torch.manual_seed(0)
    if bench.tiny:
        network = convnext((8,), (1,), classes=CLASSES, activation=activation, stem=4)
    else:
        network, _ = build(NETWORK, classes=CLASSES, activation=activation)
    return network.to(bench.device)


def images_of(bench: Bench, batch: int, side: int) -> torch.Tensor:
    """Return random images (batch, 3, side, side) on the device; they are always the same."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, 3, side, side, generator=generator).to(bench.device)


def training_step(
    bench: Bench, batch: int, side: int, *, activation=nn.GELU, compiled=False, amp=False
) -> Callable:
    """Return a function () that does one training step and returns the loss.

    A step is forward, backward and AdamW. The images are on the device already.

    activation  class of the network's activations
    compiled    True: the network is compiled
    amp         True: mixed precision, on a GPU fp16 with a scaled loss, on a CPU bf16
    """
    network = network_of(bench, activation).train()
    forward = bench.compiled(network) if compiled else network
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, fused=bench.on_gpu)
    scaler = torch.amp.GradScaler(bench.device.type, enabled=amp and bench.on_gpu)
    images = images_of(bench, batch, side)
    labels = torch.arange(batch, device=bench.device) % CLASSES
    amp_dtype = torch.float16 if bench.on_gpu else torch.bfloat16

    # Without AMP the scaler does nothing.
    def step():
        optimizer.zero_grad()
        with torch.autocast(bench.device.type, amp_dtype) if amp else nullcontext():
            loss = F.cross_entropy(forward(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def training(bench: Bench, side: int) -> None:
    """Measure the training table: the time of a step for each variant.

    The time of an epoch is computed from it.

    side  pixels a side
    """
    batch, side = bench.size((BATCH, side), (4, 16))
    common = {
        "experiment": "convnext-training",
        "batch": batch,
        "image_size": side,
        "network": NETWORK,
    }
    amp_precision = "amp-fp16" if bench.on_gpu else "amp-bf16"
    group = {}
    for variant, compiled, amp in (
        ("vanilla", False, False),
        ("AMP", False, True),
        ("compile", True, False),
        ("compile + AMP", True, True),
    ):
        precision = amp_precision if amp else "fp32"
        arm = Arm(variant=variant, compiled=compiled, precision=precision, **common)
        group[arm] = functools.partial(
            training_step, bench, batch, side, compiled=compiled, amp=amp
        )
    measure(bench, [group], "step", also=write_epoch, seconds=1.0)


def write_epoch(bench, arm, timing, fields):
    """Write the row of an epoch: the median step times the number of steps for 100,000 images.

    Loading data is not included.

    arm     the `Arm`
    timing  the `Timing` of a step in ms
    fields  further fields of the row, {name: value}
    """
    steps = math.ceil(IMAGES / arm.batch)

    def epoch_seconds(step_ms):
        return None if step_ms is None else step_ms * steps / 1e3

    description = (
        f"random images of {arm.image_size} x {arm.image_size} pixels on the device, no loading; "
    )
    description += (
        f"extrapolated from {timing.samples} samples of single steps to {IMAGES:,} images"
    )
    bench.row(
        arm,
        "epoch",
        epoch_seconds(timing.median),
        "s",
        low=epoch_seconds(timing.low),
        high=epoch_seconds(timing.high),
        samples=timing.samples,
        images=IMAGES,
        how=description,
        **fields,
    )


def inference(bench: Bench, side: int) -> None:
    """Measure the inference table: four activations, each compiled or not, at batch 64 and batch 1.

    side  pixels a side
    """
    side = bench.size(side, 16)

    @functools.cache
    def network(activation):
        return network_of(bench, ACTIVATIONS[activation]).eval()

    def make(activation, batch, compiled):
        forward = bench.compiled(network(activation)) if compiled else network(activation)
        images = images_of(bench, batch, side)

        def run():
            with torch.inference_mode():
                return forward(images)

        return run

    # A group for each batch: first the activations as they are, then compiled.
    groups = []
    for batch in bench.size((64, 1), (2, 1)):
        common = {
            "experiment": "activations",
            "batch": batch,
            "image_size": side,
            "network": NETWORK,
        }
        group = {}
        for compiled in (False, True):
            for name in bench.size(tuple(ACTIVATIONS), ("GELU", "FastSwish")):
                arm = Arm(variant=name, compiled=compiled, **common)
                group[arm] = functools.partial(make, name, batch, compiled)
        groups.append(group)
    measure(bench, groups, "forward", against=lambda arm: compared_with(arm, groups))


def compared_with(arm, groups):
    """Return the baseline of an arm, an `Arm`.

    For a compiled arm it is the same arm, not compiled. For any other arm it is the first arm of
    its group.

    groups  a list of {arm: ...}
    """
    if arm.compiled:
        return replace(arm, compiled=False)
    for group in groups:
        if arm in group:
            return next(iter(group))
    raise KeyError(arm)
