"""Channel pruning by batch-norm scale, "network slimming": whole channels go, and the network is a
smaller plain one.

What     the channels with the smallest scales of batch norm are removed, with every weight that
         writes or reads them; then fine-tuning. (In the paper an L1 term first draws the scales
         towards 0 while the network trains)
When     latency, memory and multiply-adds shall fall with ordinary dense kernels, on any machine
Cost     an epoch or more of fine-tuning
Not when a file shall be as small as possible (single weights can go in far larger numbers); where
channels of several
         layers are added up they must go together; grouped convolutions are refused
Source   Liu et al. 2017, arXiv:1708.06519; what depends on a channel: DepGraph, Fang et al. 2023,
         arXiv:2301.12900, by torch-pruning
"""

import copy
import math

import torch
from torch import nn

from labkit.compress.magnitude import top_masks
from labkit.device import packages
from labkit.errors import LabError

_NORMS = nn.modules.batchnorm._BatchNorm


def without_channels(
    model: nn.Module,
    example: torch.Tensor,
    share: float,
    *,
    scope: str = "global",
    multiple: int = 8,
) -> nn.Module:
    """Return a copy in eval mode without the share of channels whose batch-norm scales are
    smallest.

    model     with batch norms; channels that no norm scales, such as the head's, stay
    example   a batch of inputs, to trace what depends on what
    share     of these channels that goes, 0 to 1
    scope     "global": the smallest of all layers; "layer": the same share of each
    multiple  the channels left in a layer are rounded up to a multiple of it, because engines
              compute in blocks of channels; at least one multiple stays
    Raises    LabError: a share or scope out of range, no batch norm, or a convolution in groups
    """
    layers = list(model.modules())
    if not any(isinstance(layer, _NORMS) for layer in layers):
        raise LabError(
            "No batch norm ranks the channels of this network.",
            fix="choose a network with batch norms",
        )
    if any(
        isinstance(layer, nn.Conv2d) and 1 < layer.groups < layer.in_channels for layer in layers
    ):
        raise LabError(
            "Channels of a convolution in groups cannot go one by one.",
            fix="choose another network",
        )
    torch_pruning = packages.imported(
        "torch_pruning",
        problem="The package that knows which channels depend on each other is missing.",
        fix=packages.install("torch-pruning"),
    )

    smaller = copy.deepcopy(model).eval()
    graph = torch_pruning.DependencyGraph().build_dependency(smaller, example_inputs=example)
    # of channels added up, the mean
    score = torch_pruning.importance.BNScaleImportance(normalizer=None)
    # Channels that go together are a group: what writes them, what reads them, and the norm that
    # scales them.
    groups: list = []
    scores_of: dict[int, torch.Tensor] = {}
    for group in graph.get_all_groups(root_module_types=[nn.Conv2d, nn.Linear]):
        scores = score(group)
        if scores is not None:
            scores_of[len(groups)] = scores
            groups.append(group)
    masks = top_masks(scores_of, share, scope=scope)
    # The channels with the lowest scores go; what is left is rounded up.
    for number, group in enumerate(groups):
        remaining = math.ceil(max(int(masks[number].sum()), 1) / multiple) * multiple
        scores = scores_of[number]
        lowest = scores.argsort()[: max(len(scores) - remaining, 0)].tolist()
        if lowest:
            root = group[0].dep
            graph.get_pruning_group(root.layer, root.pruning_fn, lowest).prune()
    return smaller
