"""List the items, the pieces of work that `labkit gpu` can measure, the most useful first."""

from collections.abc import Sequence
from typing import NamedTuple

from labkit.errors import require_known


class Item(NamedTuple):
    """A piece of work for the worker process, such as training a network in four variants.

    title       what the item measures
    experiment  key of the published experiment
    function    "module:function" in labkit.gpu. The function takes a `Bench` and the `settings`
    settings    keyword arguments of the function
    early       True: the item belongs to those that are measured in the first five minutes
    """

    title: str
    experiment: str
    function: str
    settings: dict
    early: bool = False


ITEMS = {
    "training": Item(
        "ConvNeXt, 64 px, batch 128: an epoch, plain, compiled, AMP and both",
        "convnext-training",
        "convnext:training",
        {"side": 64},
        early=True,
    ),
    "inference": Item(
        "ConvNeXt, 64 px: four activations, compiled or not, batch 64 and 1",
        "activations",
        "convnext:inference",
        {"side": 64},
        early=True,
    ),
    "fastswish": Item(
        "FastSwish in three forms: time and bandwidth alone, memory of training in the ConvNeXt",
        "fastswish",
        "swish:fastswish",
        {},
        early=True,
    ),
    "training-224": Item(
        "training at 224 px", "convnext-training", "convnext:training", {"side": 224}
    ),
    "inference-224": Item(
        "inference at 224 px", "activations", "convnext:inference", {"side": 224}
    ),
    "phases": Item(
        "ResNet-50, 32 px: forward, backward, optimizer and data; pinned memory, autotuner, "
        "TorchScript, AMP",
        "training-phases",
        "phases:phases",
        {},
    ),
    "bert": Item(
        "an encoder of BERT-base's size: fp32, fp16, compiled, batch 1 to 256",
        "bert-batches",
        "bert:bert",
        {},
    ),
    "ghost": Item(
        "ghost batch norm against batch norm, compiled or not",
        "ghost-batch-norm",
        "ghost:ghost",
        {},
    ),
    "graph": Item(
        "activations replayed as CUDA graphs, four sizes", "cuda-graph", "graphs:graphs", {}
    ),
    "tensorrt-1": Item(
        "ResNet-50 by TensorRT, FP16 and INT8, batch 1", "tensorrt", "engines:engines", {"batch": 1}
    ),
    "tensorrt-64": Item("the same, batch 64", "tensorrt", "engines:engines", {"batch": 64}),
}


def chosen(only: Sequence[str] | None) -> list[str]:
    """Return the names of the items to measure, in the order of `ITEMS`.

    only    names of items; None: all
    Raises  LabError for an unknown name
    """
    for name in only or ():
        require_known(name, ITEMS, "item")
    return [name for name in ITEMS if only is None or name in only]
