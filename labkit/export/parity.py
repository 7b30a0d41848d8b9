"""Check whether an exported graph still computes what the network computed."""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labkit.errors import LabError
from labkit.export.runtime import as_written
from labkit.export.variation import decibels, likeness
from labkit.format import Shown

if TYPE_CHECKING:
    from torch import nn


# The least that an export must reach.
COSINE = 0.999
TOP1 = 0.99
VARYING_DB = 20.0


@dataclass(frozen=True)
class Parity(Shown):
    """How alike two models answer. Of several outputs, each figure is that of the worst output.

    cosine      cosine of the angle between the two answers, each taken as one vector; 1 if they
                point the same way
    max_error   largest difference, relative to the largest value of the output
    top1        share of the items, 0 to 1, for which both models have the largest value at the same
                index. It is computed for outputs (N, classes) with two classes or more; None if
                there is no such output
    items       number of items that were compared, over all batches
    outputs     number of outputs of each model
    varying_db  SQNR in dB of what varies, in the weakest channel (`labkit.export.variation`). It
                finds errors that the cosine cannot show: for a network that always answers about
                300, the cosine is always 1
    """

    cosine: float
    max_error: float
    top1: float | None
    items: int
    outputs: int = 1
    varying_db: float = math.inf

    def facts(self):
        return [
            ("cosine", f"{self.cosine:.7g}"),
            ("largest error", f"{self.max_error:.2g} of the largest output"),
            *([] if self.top1 is None else [("same answer", f"{self.top1:.2%} of {self.items}")]),
            *(
                [("of what varies", decibels(self.varying_db))]
                if math.isfinite(self.varying_db)
                else []
            ),
            *([("outputs", str(self.outputs))] if self.outputs > 1 else []),
        ]

    def require(self, *, max_error=1.0):
        """Return this `Parity` if the models answer alike enough; raise LabError otherwise.

        max_error  the largest `max_error` that is allowed
        """
        same = self.top1 is None or self.top1 >= TOP1
        alike = self.cosine >= COSINE and self.varying_db >= VARYING_DB
        if alike and same and self.max_error <= max_error:
            return self
        raise LabError(
            "The exported model does not compute what the network computes.",
            expected=f"cosine at least {COSINE}, same answer for at least {TOP1:.0%}, error at "
            f"most {max_error:g}, "
            f"{VARYING_DB:g} dB of what varies",
            found=self.summary(),
            fix="was it exported in eval mode, and does its Python code branch on the values or "
            "the batch size?",
        )


def parity(model: "nn.Module", onnx_path: str | Path, batches: Iterable) -> Parity:
    """Compare a torch module with an ONNX file, run by ONNX Runtime on the CPU. Returns a `Parity`.

    model    a torch module; a copy of it is compared, in eval mode on the CPU
    batches  tensors of several batch sizes; for several inputs, tuples with a tensor for each.
             Random batches show errors that occur with any input; real data show errors that matter
             in use
    """
    import torch

    network = copy.deepcopy(model).cpu().eval()
    exported = as_written(onnx_path, level="all", all_outputs=True)
    with torch.inference_mode():
        inputs = [batch if isinstance(batch, tuple) else (batch,) for batch in batches]
        return agreement([(network(*batch), exported(*batch)) for batch in inputs])


def agreement(pairs: Iterable[tuple]) -> Parity:
    """Return the `Parity` of two models from pairs of their answers, one pair for each batch.

    pairs   (answer of the network, answer of the exported model); an answer is a tensor (N, ...),
            or a list, tuple or dict of tensors where there are several outputs
    Raises  LabError where the shapes differ
    """
    # torch has no public name for its functions of nested values
    from torch.utils._pytree import tree_leaves

    # {number of the output: its (reference, exported) of each batch}
    pairs_by_output: dict[int, list] = {}
    for reference_answer, exported_answer in pairs:
        references = [leaf for leaf in tree_leaves(reference_answer) if leaf is not None]
        outputs = [leaf for leaf in tree_leaves(exported_answer) if leaf is not None]
        expected_shapes = [tuple(tensor.shape) for tensor in references]
        shapes = [tuple(tensor.shape) for tensor in outputs]
        if expected_shapes != shapes:
            raise LabError(
                "The exported model answers in another shape.",
                expected=", ".join(map(str, expected_shapes)),
                found=", ".join(map(str, shapes)),
                fix="export it with a dynamic batch dimension",
            )
        for number, pair in enumerate(zip(references, outputs, strict=True)):
            pairs_by_output.setdefault(number, []).append(pair)

    # The output that differs most counts.
    parities = [_agreement_of(output_pairs) for output_pairs in pairs_by_output.values()]
    shares = [output.top1 for output in parities if output.top1 is not None]
    return Parity(
        cosine=min(output.cosine for output in parities),
        max_error=max(output.max_error for output in parities),
        top1=min(shares, default=None),
        items=parities[0].items,
        outputs=len(parities),
        varying_db=min(output.varying_db for output in parities),
    )


def _agreement_of(pairs):
    """Return the `Parity` of one output.

    pairs  (answer of the network, answer of the exported model) for each batch, both tensors
    """
    import torch

    references = torch.cat([reference.double().cpu().flatten() for reference, _ in pairs])
    outputs = torch.cat([output.double().cpu().flatten() for _, output in pairs])
    if references.equal(outputs):  # zeros, too, which point nowhere
        cosine = 1.0
    else:
        cosine = torch.nn.functional.cosine_similarity(references, outputs, dim=0)
    error = (references - outputs).abs().max() / references.abs().max().clamp_min(1e-30)
    items = sum(len(reference) for reference, _ in pairs)
    top1 = None
    if pairs[0][0].ndim == 2 and pairs[0][0].shape[1] > 1:
        same = [
            (reference.cpu().argmax(-1) == output.cpu().argmax(-1)) for reference, output in pairs
        ]
        top1 = float(torch.cat(same).double().mean())
    return Parity(float(cosine), float(error), top1, items, varying_db=_varying_db(pairs))


def _varying_db(pairs):
    """Return the SQNR of what varies, in dB, for the weakest channel of one output.

    All batches are compared as one. If their items differ in shape, each batch is compared by
    itself, and the lowest SQNR is returned.

    pairs  (answer of the network, answer of the exported model) for each batch, both tensors
    """
    references = [reference.detach().cpu().double().numpy() for reference, _ in pairs]
    outputs = [output.detach().cpu().double().numpy() for _, output in pairs]
    item_shapes = {array.shape[1:] for array in references}
    if len(item_shapes) == 1 and references[0].ndim:
        return likeness(np.concatenate(references), np.concatenate(outputs)).lowest_db
    return min(likeness(*pair).lowest_db for pair in zip(references, outputs, strict=True))
