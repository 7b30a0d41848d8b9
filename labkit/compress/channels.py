"""Channel pruning by batch-norm scale, "network slimming": whole channels go, and the network is a smaller plain one.

What     the channels with the smallest scales of batch norm are removed, with every weight that writes or reads them;
         then fine-tuning. (In the paper an L1 term first draws the scales towards 0 while the network trains)
When     latency, memory and multiply-adds shall fall with ordinary dense kernels, on any machine
Cost     an epoch or more of fine-tuning
Not when a file shall be as small as possible (single weights can go in far larger numbers); where channels of several
         layers are added up they must go together; grouped convolutions are refused
Source   Liu et al. 2017, arXiv:1708.06519; what depends on a channel: DepGraph, Fang et al. 2023, arXiv:2301.12900,
         by torch-pruning
"""

import copy
import math

import torch
from torch import nn

from labkit.compress.magnitude import top_masks
from labkit.errors import LabError

_NORMS = nn.modules.batchnorm._BatchNorm


def without_channels(
    model: nn.Module, example: torch.Tensor, share: float, *, scope: str = "global", multiple: int = 8
) -> nn.Module:
    """A copy in eval mode without the share of channels whose batch-norm scales are smallest.

    model     with batch norms; channels that no norm scales, such as the head's, stay
    example   a batch of inputs, to trace what depends on what
    share     of these channels that goes, 0 to 1
    scope     "global": the smallest of all layers; "layer": the same share of each
    multiple  the channels left in a layer are rounded up to a multiple of it, because engines compute in blocks of
              channels; at least one multiple stays
    Raises    LabError: a share or scope out of range, no batch norm, or a convolution in groups
    """
    layers = list(model.modules())
    if not any(isinstance(layer, _NORMS) for layer in layers):
        raise LabError("No batch norm ranks the channels of this network.", fix="choose a network with batch norms")
    if any(isinstance(layer, nn.Conv2d) and 1 < layer.groups < layer.in_channels for layer in layers):
        raise LabError("Channels of a convolution in groups cannot go one by one.", fix="choose another network")
    import torch_pruning

    smaller = copy.deepcopy(model).eval()
    graph = torch_pruning.DependencyGraph().build_dependency(smaller, example_inputs=example)
    score = torch_pruning.importance.BNScaleImportance(normalizer=None)  # of channels added up, the mean
    groups = [(group, score(group)) for group in graph.get_all_groups(root_module_types=[nn.Conv2d, nn.Linear])]
    groups = [(group, scores) for group, scores in groups if scores is not None]
    masks = top_masks({place: scores for place, (_, scores) in enumerate(groups)}, share, scope=scope)
    for mask, (group, scores) in zip(masks.values(), groups, strict=True):
        kept = math.ceil(max(int(mask.sum()), 1) / multiple) * multiple
        root, going = group[0].dep, scores.argsort()[: max(len(scores) - kept, 0)].tolist()
        if going:
            graph.get_pruning_group(root.layer, root.pruning_fn, going).prune()
    return smaller
