"""An epoch of a ConvNeXt on Tiny-ImageNet, trained in four ways: as it is, with torch.compile, with
AMP, with both.

A ConvNeXt of the published size (18 million weights) takes training steps at batch 128, at 64 x 64
pixels and, as published, at 224 x 224. The four ways take turns: each trains on a batch before the
next batch comes, so that other work on the machine slows all of them alike.

Steps are timed, not whole epochs. An epoch of 100,000 images has 781 steps, so its time is 781
times the median step. The first two steps of each way are left out, because they compile. AMP
computes in bfloat16. No accuracy is measured, because it needs whole epochs:
`benchmarks/training.py --only tiny` trains them.

Images are those of Tiny-ImageNet where `labkit data get tiny-imagenet` has brought them here, else
random ones of their shape; the row says which.

By default it measures for twenty minutes, but at least five steps of each way. A CPU without
instructions for bfloat16 computes AMP so slowly that these steps take longer. `quick`:
convnext-mini at 32 x 32, batch 16.

Source  the published table "compile-amp" of `labkit.ledger.published`
"""

import copy
import time
from functools import partial

import numpy as np
import torch
from torch.nn import functional as F

from labkit import data, models
from labkit import device as devices
from labkit.errors import DataError, Unavailable
from labkit.ledger.rows import Training
from labkit.measure import saved_for_backward

MINUTES = 20
VARIANTS = {  # {name: arguments of `training_arm`}
    "vanilla": {},
    "compile": {"compiled": True},
    "AMP": {"amp": True},
    "compile + AMP": {"compiled": True, "amp": True},
}
IMAGES = 100_000  # of Tiny-ImageNet
CLASSES = 200
# {pixels: study}; the published table has 224
STUDIES = {64: "convnext-training-64", 224: "compile-amp"}
WARM_UP_STEPS = 2  # of each variant: they compile, and are not counted
MIN_STEPS = 3  # of each variant that are counted


def measure(scale):
    """Yield a `Training` for each variant, at each size of the images."""
    if scale.quick:
        network = "convnext-mini"
        batch = 16
        sizes = (32,)
    else:
        network = "convnext-homebrew"
        batch = 128
        sizes = (64, 224)
    for pixels in sizes:
        model = models.build(network, classes=CLASSES, like=(3, pixels, pixels))[0].to(scale.device)
        batches, dataset = _batches(batch, pixels, scale.device)
        row_fields = {
            "study": STUDIES.get(pixels, f"convnext-training-{pixels}"),
            "model": network,
            "network": network,
            "batch": batch,
            "device": str(scale.device),
            "threads": devices.threads(),
        }

        # Rows without a time, where memory or a compiler is missing.
        no_memory = _lacks_memory(model, batches[0][0])
        if no_memory:
            for variant in VARIANTS:
                yield Training(variant=variant, dataset=dataset, reason=no_memory, **row_fields)
            continue
        no_compiler = lacks_compiler(scale.device)
        variants = []
        for variant, arguments in VARIANTS.items():
            if no_compiler and arguments.get("compiled"):
                yield Training(variant=variant, dataset=dataset, reason=no_compiler, **row_fields)
            else:
                variants.append(variant)

        # The others take their steps in turn.
        seconds = seconds_of_steps(
            model, batches, variants=variants, seconds=scale.seconds / len(sizes)
        )
        for variant, step_seconds in seconds.items():
            yield _row(variant, step_seconds, dataset=dataset, row_fields=row_fields)


def _row(variant, step_seconds, *, dataset, row_fields):
    """Return the `Training` of an epoch: its time is the number of its steps times the median step.

    variant       one of `VARIANTS`
    step_seconds  seconds of each step that was timed
    dataset       the data set in words
    row_fields    {field: value} of further fields, with "batch"
    """
    steps = IMAGES // row_fields["batch"]
    return Training(
        variant=variant,
        dataset=f"{dataset}; an epoch of {steps} steps from {len(step_seconds)} that were timed",
        images=steps * row_fields["batch"],
        total_s=steps * float(np.median(step_seconds)),
        **row_fields,
    )


def _batches(batch, pixels, device):
    """Return (list of batches to train on, the data set in words).

    A batch is (images, labels): float (batch, 3, pixels, pixels) and int64 (batch,).
    """
    try:
        train = data.load("tiny-imagenet", "train", limit=8 * batch)
    except DataError:  # it is not here
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(batch, 3, pixels, pixels, generator=generator)
        labels = torch.randint(CLASSES, (batch,), generator=generator)
        batches = [(images.to(device), labels.to(device))]
        return batches, f"random images of Tiny-ImageNet's shape at {pixels} x {pixels}"
    batches = list(train.batches(batch, device=device, seed=0, size=pixels, drop_last=True))
    return batches, f"Tiny-ImageNet at {pixels} x {pixels}"


def _lacks_memory(model, x):
    """Return why a network cannot be trained here in all variants at once; None if it can.

    The memory that the backward pass needs is measured with two images, and scaled to the batch. In
    addition, each variant holds weights, gradients and the two moments of AdamW.

    x  the images of a batch
    """
    activations = saved_for_backward(model, x[:2]) / 2 * len(x)
    weights = 4 * sum(weight.numel() for weight in model.parameters())
    needed = activations + len(VARIANTS) * 4 * weights
    free = devices.free_bytes(x.device)
    if needed <= free:
        return None
    return (
        f"training takes about {needed / 2**30:.1f} GiB at batch {len(x)}, and {free / 2**30:.1f} "
        "GiB are free"
    )


def lacks_compiler(device: torch.device) -> str | None:
    """Return the reason why torch.compile cannot be used on a device, in words; None if it can."""
    try:
        devices.require_compiler(device)
        return None
    except Unavailable as error:
        return f"{error.what} {error.found}"


def seconds_of_steps(model, batches, *, variants, seconds):
    """Time training steps of several variants. Returns {variant: [seconds of each timed step]}.

    In a turn, each variant trains one step on the same batch. Turns follow until the time is over,
    `MIN_STEPS` at least. The first `WARM_UP_STEPS` steps of each variant are not timed.

    model     the network, of which each variant trains a copy
    batches   list of (images, labels), used in turn
    variants  names in `VARIANTS`
    seconds   seconds for all variants together
    """
    # The first steps of a variant compile.
    train_steps = {}
    for variant in variants:
        _, train_steps[variant] = training_arm(model, **VARIANTS[variant])
    for _ in range(WARM_UP_STEPS):
        for train_step in train_steps.values():
            train_step(*batches[0])

    # In its turn, each variant takes the same batch.
    step_seconds = {variant: [] for variant in variants}
    turn = 0
    end = time.monotonic() + seconds
    while turn < MIN_STEPS or time.monotonic() < end:
        x, y = batches[turn % len(batches)]
        for variant in order_of_turn(variants, turn):
            step_seconds[variant].append(timed_step(train_steps[variant], x, y))
        turn += 1
    return step_seconds


def order_of_turn(variants, turn):
    """Return the variants in the order in which they train in one turn.

    From turn to turn, the first variant moves to the end.

    turn  number of the turn, from 0
    """
    first = turn % len(variants)
    return variants[first:] + variants[:first]


def timed_step(train_step, x, y):
    """Return the seconds from the start of one training step until the device has computed it.

    train_step  function (images, labels)
    """
    start = time.perf_counter()
    train_step(x, y)
    devices.synchronize(x.device)
    return time.perf_counter() - start


def training_arm(network, steps=None, *, compiled=False, amp=False):
    """Return (copy of a network, function (images, labels) that trains the copy on one batch).

    steps     number of steps of the whole training, for a one-cycle schedule; None: a constant
              learning rate
    compiled  True: torch.compile compiles the network for the training
    amp       True: compute in bfloat16 by autocast
    """
    trained = copy.deepcopy(network).train()
    forward = torch.compile(trained, dynamic=False) if compiled else trained
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    if steps is None:
        return trained, partial(one_step, forward, optimizer, amp=amp)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps)

    def train_step(x, y):
        one_step(forward, optimizer, x, y, amp=amp)
        schedule.step()

    return trained, train_step


def one_step(network, optimizer, x, y, *, amp):
    """Train a network on one batch. Returns the loss, a 0-dimensional tensor without a gradient.

    x    images
    y    labels
    amp  True: compute in bfloat16 by autocast
    """
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=amp):
        loss = F.cross_entropy(network(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()
