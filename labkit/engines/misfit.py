"""Find reasons why an INT8 file may run wrongly or slowly in an engine on this machine.

Only the file is looked at; nothing is run.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.numpy_helper import to_array

from labkit import device as devices
from labkit import engines
from labkit.export.runtime import notes


def misfits(model: Any, engine: str) -> Iterator[str]:
    """Yield reasons, as texts, why an engine may run an INT8 file wrongly or slowly here.

    model   the file's ModelProto. None: there is no file, and nothing is yielded
    engine  one of `engines.names()`
    """
    module = engines.get(engine)
    # there is no file, or the engine runs none; an engine for GPUs takes INT8 files of any recipe
    if model is None or module.RUNS != "onnx" or hasattr(module, "NEEDS"):
        return
    if not devices.adds_int8() and _has_8_bit_weights(model):
        yield (
            "its weights have 8 bits, and this CPU has no VNNI: sums may overflow (--weight-bits "
            "7 prevents it)"
        )
    made_for = recipe_of(model)
    if made_for and made_for != engine:
        yield f"it was made for {made_for} (--recipe {engine} makes one for this engine)"
    slow_layers = depthwise(model) if made_for else None
    if slow_layers:
        yield f"{slow_layers}; race it against the file in float"


def recipe_of(model: Any) -> str | None:
    """Return the recipe of an INT8 file: the engine that it was made for. None if it does not say.

    model  the file's ModelProto
    """
    made_for = re.search(r"recipe (\w+)", notes(model).get("quantized", ""))
    return made_for[1] if made_for else None


def _has_8_bit_weights(model):
    """Return True if any INT8 weight needs 8 bits: it is below -64 or above 64."""
    for tensor in model.graph.initializer:
        if (
            tensor.data_type == TensorProto.INT8
            and np.abs(to_array(tensor).astype(int)).max(initial=0) > 64
        ):
            return True
    return False


def depthwise(model: Any) -> str | None:
    """Return a text if many convolutions are grouped, which may make INT8 slow on a CPU; else None.

    Depthwise convolutions are grouped convolutions. Many means: one convolution in eight, or more.

    model  a ModelProto
    """
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    grouped = sum(_groups_of(node) > 1 for node in convolutions)
    if not grouped or 8 * grouped < len(convolutions):
        return None
    return (
        f"{grouped} of its {len(convolutions)} convolutions are depthwise or in groups, "
        "which INT8 may slow down on a CPU"
    )


def _groups_of(convolution):
    """Return the number of groups of a convolution, a NodeProto."""
    for attribute in convolution.attribute:
        if attribute.name == "group":
            return attribute.i
    return 1
