"""Answers to the exercises of lesson 11: wrong ones that must be rejected, right ones written
differently.
"""

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

NORMS = nn.BatchNorm1d, nn.BatchNorm2d


# --- recounted ---


def with_update_bn(network, batches):
    network = copy.deepcopy(network)
    update_bn(batches, network)
    return network.eval()


def with_hooks(network, batches):
    """Means of what each norm is given, in order, counted by hand."""
    network = copy.deepcopy(network).train()
    norms = [layer for layer in network.modules() if isinstance(layer, NORMS)]
    seen = {layer: [] for layer in norms}
    hooks = [
        layer.register_forward_pre_hook(lambda layer, given: seen[layer].append(given[0]))
        for layer in norms
    ]
    with torch.no_grad():
        for images in batches:
            network(images)
    for hook in hooks:
        hook.remove()
    for layer in norms:
        sides = [side for side in range(seen[layer][0].dim()) if side != 1]
        layer.running_mean.copy_(torch.stack([x.mean(sides) for x in seen[layer]]).mean(0))
        layer.running_var.copy_(torch.stack([x.var(sides) for x in seen[layer]]).mean(0))
    return network.eval()


def recount(
    network, batches, *, copied=True, kinds=NORMS, reset=True, momentum=None, train=True, end="eval"
):
    if copied:
        network = copy.deepcopy(network)
    network.train(train)
    for layer in network.modules():
        if isinstance(layer, kinds):
            if reset:
                layer.reset_running_stats()
            layer.momentum = momentum
    with torch.no_grad():
        for images in batches:
            network(images)
    return network.eval() if end == "eval" else network


def changes_the_network(network, batches):
    return recount(network, batches, copied=False)


def forgets_norms_of_vectors(network, batches):
    return recount(network, batches, kinds=nn.BatchNorm2d)


def forgets_norms_of_pictures(network, batches):
    return recount(network, batches, kinds=nn.BatchNorm1d)


def keeps_the_momentum(network, batches):
    return recount(network, batches, momentum=0.1)


def keeps_the_old_statistics(network, batches):
    return recount(network, batches, reset=False, momentum=0.5)


def counts_in_eval_mode(network, batches):
    return recount(network, batches, train=False)


def stays_in_training_mode(network, batches):
    return recount(network, batches, end="train")


def counts_the_first_batch_only(network, batches):
    return recount(network, batches[:1])


def trains_on(network, batches):
    network = recount(network, batches)
    with torch.no_grad():
        for weight in network.parameters():
            weight *= 0.99
    return network


def returns_nothing(network, batches):
    recount(network, batches)


# --- EMA ---


class OfTorch:
    def __init__(self, network, decay):
        self.averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))
        self.averaged.update_parameters(network)  # the first one copies

    @property
    def network(self):
        return self.averaged.module

    def update(self, network):
        self.averaged.update_parameters(network)


class ByStateDict:
    def __init__(self, network, decay):
        self.network, self.decay = copy.deepcopy(network), decay

    def update(self, network):
        names = {name for name, _ in network.named_parameters()}
        old, new = self.network.state_dict(), network.state_dict()
        for name, value in new.items():
            if name in names:
                old[name] = self.decay * old[name] + (1 - self.decay) * value
            else:
                old[name] = value.clone()
        self.network.load_state_dict(old)


class Average:
    """The reference with one thing that a subclass changes."""

    def __init__(self, network, decay):
        self.network, self.decay = copy.deepcopy(network), decay

    def share(self):
        return 1 - self.decay

    @torch.no_grad()
    def update(self, network):
        for average, weight in zip(self.network.parameters(), network.parameters(), strict=True):
            average += self.share() * (weight - average)
        self.buffers(network)

    def buffers(self, network):
        for kept, last in zip(self.network.buffers(), network.buffers(), strict=True):
            kept.copy_(last)


class TheWrongShare(Average):
    def share(self):
        return self.decay


class ForgetsBuffers(Average):
    def buffers(self, network):
        pass


class AveragesBuffers(Average):
    def buffers(self, network):
        for kept, last in zip(self.network.buffers(), network.buffers(), strict=True):
            if kept.is_floating_point():
                kept += self.share() * (last - kept)


class NoCopy(Average):
    def __init__(self, network, decay):
        self.network, self.decay = network, decay


class ChangesTheTrained(Average):
    @torch.no_grad()
    def update(self, network):
        super().update(network)
        for average, weight in zip(self.network.parameters(), network.parameters(), strict=True):
            weight.copy_(average)


class PlainMean(Average):
    count = 1

    def share(self):
        return 1 / self.count

    def update(self, network):
        self.count += 1
        super().update(network)


class StartsAtZero(Average):
    def __init__(self, network, decay):
        super().__init__(network, decay)
        with torch.no_grad():
            for weight in self.network.parameters():
                weight.zero_()


# --- safe length ---


def safe(
    lengths, accuracies, target, trainings, *, times=1.645, free=2, log=np.log2, root=math.sqrt
):
    slope, level = np.polyfit(log(lengths), accuracies, 1)
    rests = accuracies - (level + slope * log(lengths))
    spread = math.sqrt((rests**2).sum() / (len(lengths) - free))
    return 2 ** ((target + times * spread / root(trainings) - level) / slope)


def by_least_squares(lengths, accuracies, target, trainings):
    columns = np.stack([np.ones(len(lengths)), np.log2(lengths)], axis=1)
    (level, slope), squares, *_ = np.linalg.lstsq(columns, accuracies, rcond=None)
    squares = ((columns @ [level, slope] - accuracies) ** 2).sum()
    error = math.sqrt(squares / (len(lengths) - 2) / trainings)
    return float(np.exp2((target - level + 1.645 * error) / slope))


def in_natural_logarithms(lengths, accuracies, target, trainings):
    slope, level = np.polyfit(np.log(lengths), accuracies, 1)
    spread = np.std(accuracies - level - slope * np.log(lengths), ddof=2)
    return math.exp((target + 1.645 * spread / trainings**0.5 - level) / slope)


def no_margin(lengths, accuracies, target, trainings):
    return safe(lengths, accuracies, target, trainings, times=0)


def margin_downwards(lengths, accuracies, target, trainings):
    return safe(lengths, accuracies, target, trainings, times=-1.645)


def two_sided(lengths, accuracies, target, trainings):
    return safe(lengths, accuracies, target, trainings, times=1.96)


def of_one_training(lengths, accuracies, target, trainings):
    return safe(lengths, accuracies, target, 1)


def divides_by_the_trainings(lengths, accuracies, target, trainings):
    return safe(lengths, accuracies, target, trainings, root=float)


def divides_by_n(lengths, accuracies, target, trainings):
    return safe(lengths, accuracies, target, trainings, free=0)


def over_images_not_doublings(lengths, accuracies, target, trainings):
    slope, level = np.polyfit(lengths, accuracies, 1)
    spread = np.std(accuracies - level - slope * np.asarray(lengths), ddof=2)
    return (target + 1.645 * spread / math.sqrt(trainings) - level) / slope


def spread_of_all_dots(lengths, accuracies, target, trainings):
    slope, level = np.polyfit(np.log2(lengths), accuracies, 1)
    return 2 ** (
        (target + 1.645 * np.std(accuracies, ddof=2) / math.sqrt(trainings) - level) / slope
    )


def in_doublings(lengths, accuracies, target, trainings):
    return math.log2(safe(lengths, accuracies, target, trainings))


def changes_its_lengths(lengths, accuracies, target, trainings):
    images = safe(lengths, accuracies, target, trainings)
    lengths *= 2
    return images


# --- recipes ---

FAST = {
    "images": 3_200,
    "batch": 64,
    "optimizer": "adamw",
    "learning_rate": 0.01,
    "schedule": "onecycle",
    "size": 16,
}
FAST |= {"network": "vgg-small"}

WRONG = {
    "first-recipe": {
        "a list": [FAST],
        "a field that there is not": FAST | {"threads": 2},
        "images too small for the network": FAST | {"size": 8},
        "fewer images than a batch": FAST | {"images": 32},
        "a rate of a billion": FAST | {"learning_rate": 1e30, "optimizer": "sgd"},
    },
    "recounted": {
        "changes the network": changes_the_network,
        "forgets norms of vectors": forgets_norms_of_vectors,
        "forgets norms of pictures": forgets_norms_of_pictures,
        "keeps the momentum": keeps_the_momentum,
        "keeps the old statistics": keeps_the_old_statistics,
        "counts in eval mode": counts_in_eval_mode,
        "stays in training mode": stays_in_training_mode,
        "counts the first batch only": counts_the_first_batch_only,
        "trains on": trains_on,
        "returns nothing": returns_nothing,
    },
    "EMA": {
        "takes the wrong share": TheWrongShare,
        "forgets buffers": ForgetsBuffers,
        "averages buffers": AveragesBuffers,
        "keeps no copy": NoCopy,
        "changes the network that is trained": ChangesTheTrained,
        "is a plain mean": PlainMean,
        "starts at zero": StartsAtZero,
    },
    "safe-length": {
        "no margin": no_margin,
        "the margin downwards": margin_downwards,
        "1.96 in place of 1.645": two_sided,
        "a judge of one training": of_one_training,
        "divides by the trainings, not their root": divides_by_the_trainings,
        "divides by n": divides_by_n,
        "a line over images, not doublings": over_images_not_doublings,
        "the spread of all dots, not around the line": spread_of_all_dots,
        "returns doublings": in_doublings,
        "changes its lengths": changes_its_lengths,
    },
    "fast-recipe": {
        "the reference itself": {
            "network": "vgg-small",
            "images": 5_120,
            "optimizer": "sgd",
            "learning_rate": 0.05,
        },
        "two fifths of its images, and all else alike": FAST
        | {
            "images": 2_048,
            "batch": 128,
            "optimizer": "sgd",
            "learning_rate": 0.05,
            "schedule": "constant",
            "size": 28,
        },
        "too few images": FAST | {"images": 640},
        "too few steps": FAST | {"batch": 800},
        "a rate of a billion": FAST | {"learning_rate": 1e9},
        "a rate that teaches nothing": FAST | {"learning_rate": 1e-5},
        "a field that there is not": FAST | {"threads": 2},
        "images too small for the network": FAST | {"size": 8},
        "a list": [FAST],
    },
}

RIGHT = {
    "first-recipe": {
        "small pictures": FAST,
        "the reference, shorter": {
            "network": "vgg-small",
            "images": 2_560,
            "optimizer": "sgd",
            "schedule": "constant",
        },
        "two passes of a small network": {
            "network": "cnn-small",
            "images": 1_024,
            "epochs": 2,
            "batch": 64,
        },
    },
    "recounted": {"with update_bn": with_update_bn, "with hooks": with_hooks},
    "EMA": {"torch's own": OfTorch, "by the state dict": ByStateDict},
    "safe-length": {
        "by least squares": by_least_squares,
        "in natural logarithms": in_natural_logarithms,
    },
    "fast-recipe": {
        "with more images": FAST,
        "with averages that follow fast": FAST | {"images": 2_560, "norm_momentum": 0.4},
        "with a small batch and sgd": FAST
        | {"optimizer": "sgd", "learning_rate": 0.05, "batch": 32, "size": 20, "images": 3_072},
    },
}
