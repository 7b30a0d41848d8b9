"""Channel pruning by batch-norm scale ("network slimming"): removes whole channels of a network.

What     the channels with the smallest scales of batch norm are removed, with every weight that
         writes or reads them; then the network is fine-tuned. (In the paper an L1 term first draws
         the scales towards 0 during the training)
When     latency, memory and multiply-adds shall fall with ordinary dense kernels, on any machine
Cost     an epoch or more of fine-tuning
Not when a file shall be as small as possible, because single weights can be removed in far larger
         numbers. Where the channels of several layers are added up, they must be removed together;
         grouped convolutions are refused
Source   Liu et al. 2017, arXiv:1708.06519; which weights depend on a channel: DepGraph, Fang et al.
         2023, arXiv:2301.12900, by torch-pruning
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
    """Return a copy of a network without the channels whose batch-norm scales are smallest.

    The copy is in eval mode.

    model     a network with batch norms; channels that no batch norm scales, such as the head's,
              stay
    example   a batch of inputs, to trace which layers depend on which channels
    share     share of the channels with a batch norm that is removed, 0 to 1
    scope     "global": the channels with the smallest scales of all layers; "layer": the same share
              of each layer
    multiple  the number of channels left in a layer is rounded up to a multiple of this number,
              because engines compute in blocks of channels; at least one multiple stays
    Raises    LabError: a share or scope out of range, no batch norm, or a grouped convolution
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
    # where channels are added up, the score is the mean of theirs
    score = torch_pruning.importance.BNScaleImportance(normalizer=None)
    # A group holds the channels that must be removed together: those that the layers write and
    # read, and the norms that scale them.
    groups: list = []
    scores_of: dict[int, torch.Tensor] = {}
    for group in graph.get_all_groups(root_module_types=[nn.Conv2d, nn.Linear]):
        scores = score(group)
        if scores is not None:
            scores_of[len(groups)] = scores
            groups.append(group)
    masks = top_masks(scores_of, share, scope=scope)
    # Remove the channels with the lowest scores; the number of those left is rounded up.
    for number, group in enumerate(groups):
        remaining = math.ceil(max(int(masks[number].sum()), 1) / multiple) * multiple
        scores = scores_of[number]
        lowest = scores.argsort()[: max(len(scores) - remaining, 0)].tolist()
        if lowest:
            root = group[0].dep
            graph.get_pruning_group(root.layer, root.pruning_fn, lowest).prune()
    return smaller
