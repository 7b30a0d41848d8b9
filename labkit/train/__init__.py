"""Training: one plain loop, and the accuracy of what came out.

The loop is as short as it can be; the lessons on training add their switches here, one field and one line each.
"""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train.

    epochs         passes over the data
    batch          images per step
    learning_rate  the peak of the one-cycle schedule
    weight_decay   of AdamW
    seed           of the order of the images
    """

    epochs: int = 1
    batch: int = 128
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    seed: int = 0


def fit(model, data, config=None, *, device, step_done=None):
    """Train `model` in place on `data`; returns the loss of each step as a list of floats.

    data       a `labkit.data.ImageSet`; its `batches(...)` yields (images, labels) on the device
    step_done  called as step_done(step, steps, loss) after each step
    """
    config = config or TrainConfig()
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    steps = config.epochs * (len(data) // config.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.learning_rate, total_steps=steps)
    losses = []
    for epoch in range(config.epochs):
        for images, labels in data.batches(config.batch, device=device, seed=config.seed + epoch, drop_last=True):
            loss = train_step(model, optimizer, images, labels)
            schedule.step()
            losses.append(loss)
            if step_done:
                step_done(len(losses), steps, loss)
    return [float(loss) for loss in losses]


def train_step(model, optimizer, images, labels):
    """Forward, backward, update. Returns the loss, a 0-dimensional tensor still on the device."""
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.inference_mode()
def accuracy(model, data, *, device, batch=500):
    """Fraction of `data` (an ImageSet) the model gets right, 0 to 1; the model is left in eval mode."""
    model.to(device).eval()
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in data.batches(batch, device=device))
    return right / len(data)
