"""The record of a training: its losses, accuracies, and times."""

from dataclasses import dataclass, field

import torch


@dataclass(kw_only=True)
class History:
    """The record of a training.

    losses          loss of each step, in nats
    accuracy        accuracy on the test set after each epoch, 0 to 1; empty without a test set
    epoch_seconds   time of each epoch, without the test; the first includes compiling
    epoch_phases    for each epoch {"data", "forward", "backward", "optimizer": seconds}; {} where
                    `TrainConfig.phases` is None
    result_seconds  time to make `model` after the last epoch, where a method makes one: mostly, to
                    recompute the statistics of batch norm
    restored        number of epochs that came from a checkpoint
    lengthened      the earlier values of `TrainConfig.epochs`, where a checkpoint was continued
                    with more or fewer epochs
    compiled        number of epochs that torch.compile ran from end to end, without those from a
                    checkpoint
    graph_breaks    number of graph breaks of torch.compile, at which Python runs in between
    peak_bytes      most memory that the GPU's allocator held; None without a GPU
    model           None, or the model that a method leaves in place of the trained one, such as an
                    average. It is a copy with other weights, and with batch norm's statistics
                    recomputed for them
    """

    losses: list = field(default_factory=list)
    accuracy: list = field(default_factory=list)
    epoch_seconds: list = field(default_factory=list)
    epoch_phases: list = field(default_factory=list)
    result_seconds: float = 0.0
    restored: int = 0
    lengthened: list = field(default_factory=list)
    compiled: int = 0
    graph_breaks: int = 0
    peak_bytes: int | None = None
    model: torch.nn.Module | None = None

    @property
    def seconds(self):
        """Return the time of the training in seconds, without the tests."""
        return sum(self.epoch_seconds) + self.result_seconds

    @property
    def steps(self):
        """Return the number of steps."""
        return len(self.losses)
