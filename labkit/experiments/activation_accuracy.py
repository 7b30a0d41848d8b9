"""The accuracy of each activation, trained plainly and compiled, and of GELU's approximations, with
several seeds.

A ConvNeXt of one block (48 channels, patches of 7 x 7 pixels) learns 10,000 small pictures of
clothes for five epochs. Each activation is trained plainly, and the published ones also compiled;
each such training is repeated with six seeds, and each repetition is a row. The same seed gives all
of them the same first weights and the same order of images.

It takes a quarter of an hour on one core, whatever `--minutes` says. `quick`: 640 images, one
epoch, one seed, ReLU and FastSwish.

Source  the accuracies of the published table "activations" of `labkit.ledger.published`, one
        training each
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

from labkit import device as devices
from labkit import train as training
from labkit.data import load
from labkit.errors import LabError
from labkit.ledger.rows import Training
from labkit.methods.fastswish import FastSwish
from labkit.models.convnext import convnext

MINUTES = 15
STUDY = "activation-accuracy"
BATCH = 64
LEARNING_RATE = 0.01


class QuickGELU(nn.Module):
    """x times the sigmoid of 1.702 x: GELU's approximation by one exponential."""

    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


def gelu_by_tanh():
    """Return PyTorch's own approximation of GELU by the hyperbolic tangent."""
    return nn.GELU(approximate="tanh")


ACTIVATIONS = {
    "GELU": nn.GELU,
    "HardSwish": nn.Hardswish,
    "ReLU": nn.ReLU,
    "FastSwish": FastSwish,
    "GELU by tanh": gelu_by_tanh,
    "GELU by sigmoid": QuickGELU,
}
PUBLISHED = ("GELU", "HardSwish", "ReLU", "FastSwish")  # these are trained compiled, too


def measure(scale):
    """Yield a `Training` for each activation, plain or compiled, and each seed."""
    train_images, test_images, seeds, epochs = 10_000, None, 6, 5
    if scale.quick:
        train_images, test_images, seeds, epochs = 640, 500, 1, 1
    train = load("fashion-mnist", "train", limit=train_images)
    test = load("fashion-mnist", "test", limit=test_images)
    for name, compiled in _plan(scale):
        for seed in range(seeds):
            settings = {
                "epochs": epochs,
                "seed": seed,
                "compiled": compiled,
                "device": scale.device,
            }
            yield _row(name, train, test, settings)


def _plan(scale):
    """Return the trainings to repeat: [(activation, True if it is trained compiled)]."""
    plain = [(name, False) for name in (("ReLU", "FastSwish") if scale.quick else ACTIVATIONS)]
    return plain + [(name, True) for name, _ in plain if name in PUBLISHED]


def _row(name, train, test, settings):
    """Train one network. Returns a `Training` with its accuracy, or with a reason why it has none.

    name      one of `ACTIVATIONS`
    train     the training images
    test      the test images
    settings  arguments of `trained`: epochs, seed, compiled and device
    """
    compiled, seed, device = settings["compiled"], settings["seed"], settings["device"]
    fields = {
        "study": STUDY,
        "variant": f"{name}{', compiled' if compiled else ''}, seed {seed}",
        "model": "a ConvNeXt of one block",
        "dataset": f"fashion-mnist, {len(train):,} images",
        "device": str(device),
    }
    start = time.perf_counter()
    try:
        network = trained(name, train, **settings)
    except LabError as error:  # no compiler here
        return Training(**fields, reason=error.what)
    seconds = time.perf_counter() - start
    images = settings["epochs"] * (len(train) // BATCH) * BATCH
    right = training.accuracy(network, test, device=device)
    return Training(**fields, images=images, total_s=seconds, accuracy=right)


def trained(name, data, *, epochs, seed, compiled, device):
    """Train the network with one activation. Returns the network, not compiled, in eval mode.

    name      one of `ACTIVATIONS`
    data      the training images
    compiled  True: torch.compile compiles the network for the training
    Raises    LabError where `compiled` is True and there is no compiler
    """
    if compiled:
        devices.require_compiler(device)
        # beyond eight networks of one class torch would run it eagerly, without a word
        torch.compiler.reset()
    torch.manual_seed(seed)
    network = convnext(
        (48,), (1,), channels=1, classes=10, stem=7, activation=ACTIVATIONS[name]
    ).to(device)
    forward = torch.compile(network, dynamic=False) if compiled else network
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE)
    steps = epochs * (len(data) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for epoch in range(epochs):
        for images, labels in data.batches(
            BATCH, device=device, seed=1000 * seed + epoch, drop_last=True
        ):
            optimizer.zero_grad()
            F.cross_entropy(forward(images), labels).backward()
            optimizer.step()
            schedule.step()
    return network.eval()
