"""Time a training step with ghost batch norm and with plain batch norm, compiled or not.

Ghost batch norm computes the statistics over parts of the batch.
"""

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
    """Measure a training step with ghost and with plain batch norm, each compiled or not.

    The baseline of ghost batch norm is plain batch norm: the compiled one for a compiled arm, the
    other one for an arm that is not compiled.
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
    """Return a function () that does one training step and returns the loss.

    A step is forward, backward and SGD. The images are on the device already.

    variant   `PLAIN` or `GHOST`
    compiled  True: the network is compiled
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
