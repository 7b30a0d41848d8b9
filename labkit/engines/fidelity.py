"""Does a file in small integers still answer like the network, and does an engine answer what the file means?

A file with Q/DQ nodes says where every value is rounded. An engine may compute it in another way: on a CPU without VNNI
instructions, products of 8 bits are added in 16, which can overflow. Then it answers something else, at full speed and
without a word. So the first answers of an INT8 engine are compared with the file run as it is written, which has no
integer kernels and cannot overflow.

Unit    SQNR in dB: power of the right answers over the power of the difference; 6 dB is a factor of 2
Limits  an engine rounds some sums in another order, which costs little: 25 dB and more were seen. After an overflow
        it was below 5 dB
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit import engines, export
from labkit.errors import LabError, Unavailable
from labkit.quantize import logits
from labkit.quantize.numbers import sqnr_db

ENGINE_DB = 20.0  # below it, an engine does not answer what the file means


@dataclass(frozen=True)
class Fidelity:
    """The likeness of the answers of two models.

    db    SQNR, infinite where nothing differs
    same  share of the items whose largest output stands at the same place, 0 to 1
    """

    db: float
    same: float

    def __str__(self):
        return f"{self.db:.1f} dB, same answer for {self.same:.1%}"


def between(right, found):
    """The `Fidelity` of arrays (N, classes) or (N, ..., classes)."""
    same = np.argmax(right, -1) == np.argmax(found, -1)
    return Fidelity(sqnr_db(right, found), float(same.mean()))


def of_engine(served, path, inputs):
    """The `Fidelity` of an engine's answers to what the file means.

    served  what `engines.load` made of the file
    inputs  a batch: one tensor per input of the network
    """
    return between(export.as_written(path)(*inputs).numpy(), served(*inputs).cpu().numpy())


def quantized(src, dst, images):
    """Compare a quantized file and its engines with `src`: yields (who, `Fidelity` to `src`, another one or a reason).

    The first is the file itself. Then comes each engine for such files: with its `Fidelity` to the file, or None and
    the reason why it does not run here.

    src     the ONNX file in fp32
    images  (N, C, H, W) float32 that were not used to quantize
    """
    import torch

    right, meant, batch = logits(src, images), logits(dst, images), torch.from_numpy(images)
    precision = export.precision_of(export.checked(dst))
    yield "the file as written", between(right, meant), None
    for name in engines.names(runs="onnx", precision=precision):
        try:
            served = engines.load(name, dst, batch[:1], precision=precision)
            found = np.concatenate([served(part).cpu().numpy() for part in batch.split(32)])
        except (Unavailable, LabError) as error:
            yield name, None, error.what
        else:
            yield name, between(right, found), between(meant, found)


def require(found, path, min_sqnr):
    """The path of a file with at least `min_sqnr` dB; else a LabError, and the file stays under another name."""
    if found.db >= min_sqnr:
        return path
    aside = Path(path).with_suffix(f".rejected{Path(path).suffix}")
    Path(path).replace(aside)
    raise LabError(
        "The quantized network does not answer like the original.",
        expected=f"at least {min_sqnr:g} dB",
        found=f"{found}; the file is kept as {aside.name}",
        fix="leave the layers in float that lose most: --keep auto finds them; try --method percentile, or --precision "
        "fp16. --min-sqnr sets what you accept",
    )
