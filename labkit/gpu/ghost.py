"""Times a training step with ghost batch norm and with plain batch norm, compiled or not."""

import functools
from dataclasses import replace

import torch
from torch.nn import functional as F

from labkit.gpu.arms import Arm
from labkit.gpu.bench import Bench
from labkit.gpu.convnext import images_of
from labkit.gpu.measuring import measure
from labkit.methods.ghost_batch_norm import with_ghost_batch_norm
from labkit.models.cnn import cnn

BATCH = 1024
GHOST_BATCH = 32  # images that share their statistics
SIDE = 32  # pixels
CLASSES = 100
PLAIN = "batch norm"
GHOST = "ghost batch norm"


def ghost(bench: Bench) -> None:
    """Measure ghost and plain batch norm, compiled and not compiled.

    The baseline of ghost batch norm is plain batch norm, of compiled arms the compiled one.
    """
    group = {}
    for compiled in (False, True):
        for variant in (PLAIN, GHOST):
            arm = Arm(
                "ghost-batch-norm",
                variant,
                batch=bench.size(BATCH, 8),
                image_size=SIDE,
                compiled=compiled,
                network="cnn-large",
            )
            group[arm] = functools.partial(step_of, bench, variant, compiled)
    measure(bench, [group], "step", against=lambda arm: replace(arm, variant=PLAIN), seconds=1.0)


def step_of(bench, variant, compiled):
    """Return a function that does one training step and returns the loss.

    The step is forward, backward and SGD, on images that lie on the device.

    variant  `PLAIN` or `GHOST`
    """
    torch.manual_seed(0)
    network = cnn(bench.size(48, 4), channels=3, classes=CLASSES)
    if variant == GHOST:
        network = with_ghost_batch_norm(network, bench.size(GHOST_BATCH, 4))
    network = network.to(bench.device).train()
    forward = bench.compiled(network) if compiled else network
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)

    # All arms train on the same images.
    batch = bench.size(BATCH, 8)
    images = images_of(bench, batch, SIDE)
    labels = torch.arange(batch, device=bench.device) % CLASSES

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step
