"""Does the exported graph still compute what the network computed?"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import LabError
from labkit.export.runtime import as_written
from labkit.ledger.shown import Shown

if TYPE_CHECKING:
    from torch import nn


COSINE, TOP1 = 0.999, 0.99  # what an export must at least reach


@dataclass(frozen=True)
class Parity(Shown):
    """How alike two models answer; of several outputs the one that differs most counts.

    cosine     of an output as one vector, 1 when both point the same way
    max_error  largest difference, relative to the largest value of the output
    top1       share of the items whose largest value stands at the same place, 0 to 1: only of outputs (N, classes);
               None where there is none, for then no axis is known to hold classes
    items      how many were compared, over all batches
    outputs    how many the models have
    """

    cosine: float
    max_error: float
    top1: float | None
    items: int
    outputs: int = 1

    def facts(self):
        return [
            ("cosine", f"{self.cosine:.7g}"),
            ("largest error", f"{self.max_error:.2g} of the largest output"),
            *([] if self.top1 is None else [("same answer", f"{self.top1:.2%} of {self.items}")]),
            *([("outputs", str(self.outputs))] if self.outputs > 1 else []),
        ]

    def require(self, *, max_error=1.0):
        """Itself when it is alike, and off by at most `max_error`; else a LabError."""
        if self.cosine >= COSINE and (self.top1 is None or self.top1 >= TOP1) and self.max_error <= max_error:
            return self
        raise LabError(
            "The exported model does not compute what the network computes.",
            expected=f"cosine at least {COSINE}, same answer for at least {TOP1:.0%}, error at most {max_error:g}",
            found=self.summary(),
            fix="was it exported in eval mode, and does its Python code branch on the values or the batch size?",
        )


def parity(model: "nn.Module", onnx_path: str | Path, batches: Iterable) -> Parity:
    """Compare a torch module with an ONNX file, run by ONNX Runtime on the CPU: a `Parity`.

    model    a torch module; a copy of it is compared, in eval mode on the CPU
    batches  tensors of several batch sizes, or tuples of them, one per input; random ones find what is always wrong,
             real ones what matters
    """
    import torch

    network, exported = copy.deepcopy(model).cpu().eval(), as_written(onnx_path, level="all", whole=True)
    with torch.inference_mode():
        inputs = [batch if isinstance(batch, tuple) else (batch,) for batch in batches]
        return agreement([(network(*batch), exported(*batch)) for batch in inputs])


def agreement(pairs: Iterable[tuple]) -> Parity:
    """A `Parity` of [(wanted, found)]: tensors (N, ...), or lists, tuples or dicts of them where there are several."""
    from torch.utils._pytree import tree_leaves

    answers = [[[each for each in tree_leaves(answer) if each is not None] for answer in pair] for pair in pairs]
    for pair in answers:
        wanted, found = ([tuple(each.shape) for each in answer] for answer in pair)
        if wanted != found:
            raise LabError(
                "The exported model answers in another shape.",
                expected=", ".join(map(str, wanted)),
                found=", ".join(map(str, found)),
                fix="export it with a dynamic batch dimension",
            )
    each = [_agreement_of(output) for output in zip(*(zip(*pair, strict=True) for pair in answers), strict=True)]
    known = [one.top1 for one in each if one.top1 is not None]
    cosine, error = min(one.cosine for one in each), max(one.max_error for one in each)
    return Parity(cosine, error, min(known, default=None), each[0].items, len(each))


def _agreement_of(pairs):
    """The `Parity` of one output: [(wanted, found)]."""
    import torch

    a, b = (torch.cat([pair[i].double().cpu().flatten() for pair in pairs]) for i in (0, 1))
    cosine = torch.nn.functional.cosine_similarity(a, b, dim=0)
    error = (a - b).abs().max() / a.abs().max().clamp_min(1e-30)
    items, top1 = sum(len(wanted) for wanted, _ in pairs), None
    if pairs[0][0].ndim == 2:
        same = [(wanted.cpu().argmax(-1) == found.cpu().argmax(-1)) for wanted, found in pairs]
        top1 = float(torch.cat(same).double().mean())
    return Parity(float(cosine), float(error), top1, items)
