"""Channel pruning by batch-norm scale ("network slimming"): removes whole channels of a network.

What     the channels with the smallest scales of batch norm are removed, with every weight that
         writes or reads them. Then the network is fine-tuned. (In the paper an L1 term first draws
         the scales towards 0 during the training)
When     latency, memory and multiply-adds shall fall with ordinary dense kernels, on any machine
Cost     an epoch or more of fine-tuning. Where the outputs of several layers are added, a channel
         is removed from all of these layers or from none
Not when a file shall be as small as possible: single weights can be removed in far larger numbers
         than channels. Nor for grouped convolutions, which are refused unless they are depthwise
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

    model     a network with batch norms. Channels without a batch norm, such as those of the head,
              stay
    example   a batch of inputs, to trace which layers depend on which channels
    share     share of the channels with a batch norm that is removed, 0 to 1
    scope     "global": remove the channels with the smallest scales of all layers; "layer": remove
              the same share in each layer
    multiple  the number of remaining channels of a layer is rounded up to a multiple of this
              number, because engines compute in blocks of channels. So at least this many channels
              remain, or all if there are fewer
    Raises    LabError: a share or scope out of range; no batch norm; a grouped convolution that is
              not depthwise
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
