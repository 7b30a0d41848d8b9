"""Does a file in small integers still answer like the network, and does an engine answer what the file means?

A file with Q/DQ nodes says where every value is rounded. An engine may compute it in another way: on a CPU without VNNI
instructions, products of 8 bits are added in 16, which can overflow. Then it answers something else, at full speed and
without a word. So the first answers of an INT8 engine are compared with the file run as it is written, which has no
integer kernels and cannot overflow.

Unit    SQNR in dB: power of the right answers over the power of the difference; 6 dB is a factor of 2
Limits  an engine rounds some sums in another order, which costs little: 25 dB and more were seen. After an overflow
        it was below 5 dB
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.numpy_helper import to_array

from labkit import device as devices
from labkit import engines, export
from labkit.errors import LabError
from labkit.export.runtime import notes
from labkit.quantize import all_outputs
from labkit.quantize.numbers import sqnr_db

ENGINE_DB = 20.0  # below it, an engine does not answer what the file means


@dataclass(frozen=True)
class Fidelity:
    """The likeness of the answers of two models in one output.

    db       SQNR, infinite where nothing differs
    same     share of the items whose largest value stands at the same place of the classes, 0 to 1; None where no
             axis is known to hold classes
    weakest  (number of the channel that lost most, how many there are, its SQNR) where each item is more than a row
    others   {name: `Fidelity`} of the further outputs
    """

    db: float
    same: float | None = None
    weakest: tuple | None = None
    others: dict = field(default_factory=dict)

    def __str__(self):
        said = f"{self.db:.1f} dB"
        if self.weakest:
            said += f" (channel {self.weakest[0]} of {self.weakest[1]}: {self.weakest[2]:.1f} dB)"
        if self.same is not None:
            said += f", same answer for {self.same:.1%}"
        return "; ".join([said, *(f"{name} {alike}" for name, alike in self.others.items())])


def between(right, found, *, axis=None):
    """The `Fidelity` of arrays (N, ...), or of {name: array} with the same names: the first output, and the others.

    axis  that holds the classes; None: 1 for (N, classes), and not known otherwise. Channels are counted along it, or
          along axis 1 of (N, C, H, W) and the last one of others
    """
    if isinstance(right, dict):
        first, *others = [between(right[name], found[name], axis=axis) for name in right]
        return replace(first, others=dict(zip(list(right)[1:], others, strict=True)))
    classes = 1 if axis is None and right.ndim == 2 else axis
    same = None
    if classes is not None and classes < right.ndim:
        same = float((right.argmax(classes) == found.argmax(classes)).mean())
    if right.ndim < 3:
        return Fidelity(sqnr_db(right, found), same)
    along = classes if classes is not None else 1 if right.ndim == 4 else right.ndim - 1
    channels = zip(np.moveaxis(right, along, 0), np.moveaxis(found, along, 0), strict=True)
    each = [sqnr_db(a, b) if a.any() else np.inf for a, b in channels]
    return Fidelity(sqnr_db(right, found), same, (int(np.argmin(each)), len(each), float(min(each))))


def of_engine(served, path, inputs):
    """The `Fidelity` of an engine's answers to what the file means.

    served  what `engines.load` made of the file
    inputs  a batch: one tensor per input of the network
    """
    return between(export.as_written(path)(*inputs).numpy(), served(*inputs).cpu().numpy())


def misfits(model: Any, engine: str) -> Iterator[str]:
    """Yield reasons why an INT8 file, a ModelProto (or None), may answer worse or more slowly in an engine here."""
    if model is None or hasattr(engines.get(engine), "NEEDS"):  # a GPU takes each file
        return
    wide = (
        np.abs(to_array(each).astype(int)).max(initial=0) > 64
        for each in model.graph.initializer
        if each.data_type == TensorProto.INT8
    )
    if any(wide) and not devices.adds_int8():
        yield "its weights have 8 bits, and this CPU has no VNNI: sums may overflow (--weight-bits 7 prevents it)"
    made_for = re.search(r"recipe (\w+)", notes(model).get("quantized", ""))
    if made_for and made_for[1] != engine:
        yield f"it was made for {made_for[1]} (--recipe {engine} makes one for this engine)"
    if made_for and (thin := depthwise(model)):
        yield f"{thin}; race it against the file in float"


def depthwise(model: Any) -> str | None:
    """Why a network (a ModelProto) may be slower in INT8 than in float on a CPU: depthwise convolutions; or None."""
    groups = [
        next((each.i for each in node.attribute if each.name == "group"), 1)
        for node in model.graph.node
        if node.op_type == "Conv"
    ]
    thin = sum(group > 1 for group in groups)
    if not thin or 8 * thin < len(groups):
        return None
    return f"{thin} of its {len(groups)} convolutions are depthwise or in groups, which INT8 may slow down on a CPU"


def quantized(src: str | Path, dst: str | Path, images: Any, *, axis: int | None = None) -> Iterator[tuple]:
    """Compare a quantized file and its engines with `src`: yields (who, `Fidelity` to `src`, another one or a reason).

    The first is the file itself. Then comes each engine for such files: with its `Fidelity` to the file, or None and
    the reason why it does not run here.

    src     the ONNX file in fp32
    images  (N, C, H, W) float32 that were not used to quantize
    axis    as in `between`
    Of the file all outputs are compared; an engine serves the first.
    """
    import torch

    right, meant, batch = all_outputs(src, images), all_outputs(dst, images), torch.from_numpy(images)
    first = next(iter(right))
    precision = export.precision_of(export.checked(dst))
    yield "the file as written", between(right, meant, axis=axis), None
    for name in engines.names(runs="onnx", precision=precision):
        try:
            served = engines.load(name, dst, batch[:1], precision=precision)
            found = np.concatenate([served(part).cpu().numpy() for part in batch.split(32)])
        except LabError as error:
            yield name, None, error.what
        else:
            yield name, between(right[first], found, axis=axis), between(meant[first], found, axis=axis)


def require(found: Any, path: str | Path, min_sqnr: float) -> Path:
    """The path of a file with at least `min_sqnr` dB in each output; else a LabError, and it gets another name."""
    if min(each.db for each in (found, *found.others.values())) >= min_sqnr:
        return Path(path)
    aside = Path(path).with_suffix(f".rejected{Path(path).suffix}")
    Path(path).replace(aside)
    raise LabError(
        "The quantized network does not answer like the original.",
        expected=f"at least {min_sqnr:g} dB",
        found=f"{found}; the file is kept as {aside.name}",
        fix="leave the layers in float that lose most: --keep auto finds them; try --method percentile, or --precision "
        "fp16. --min-sqnr sets what you accept",
    )
