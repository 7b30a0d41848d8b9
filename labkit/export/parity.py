"""Does the exported graph still compute what the network computed?"""

from dataclasses import dataclass

from labkit.errors import LabError
from labkit.export.runtime import as_written
from labkit.ledger.shown import Shown


@dataclass(frozen=True)
class Parity(Shown):
    """How alike two models answer.

    cosine     of all outputs as one vector, 1 when they point the same way
    max_error  largest difference, relative to the largest output
    top1       share of the items whose largest output stands at the same place, 0 to 1
    items      how many were compared, over all batches
    """

    cosine: float
    max_error: float
    top1: float
    items: int

    def facts(self):
        return [
            ("cosine", f"{self.cosine:.7g}"),
            ("largest error", f"{self.max_error:.2g} of the largest output"),
            ("same answer", f"{self.top1:.2%} of {self.items}"),
        ]

    def require(self, *, cosine=0.999, top1=0.99, max_error=1.0):
        """Itself when it is at least this much, and off by at most `max_error`; else a LabError."""
        if self.cosine >= cosine and self.top1 >= top1 and self.max_error <= max_error:
            return self
        raise LabError(
            "The exported model does not compute what the network computes.",
            expected=f"cosine at least {cosine:g}, same answer for at least {top1:.0%}, error at most {max_error:g}",
            found=self.summary(),
            fix="was it exported in eval mode, and does its Python code branch on the values or the batch size?",
        )


def parity(model, onnx_path, batches):
    """Compare a torch module with an ONNX file, run by ONNX Runtime on the CPU: a `Parity`.

    model    a torch module; compared in eval mode
    batches  tensors of several batch sizes, or tuples of them, one per input; random ones find what is always wrong,
             real ones what matters
    """
    import torch

    exported = as_written(onnx_path, level="all")
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    try:
        with torch.inference_mode():
            inputs = [batch if isinstance(batch, tuple) else (batch,) for batch in batches]
            return agreement([(model(*(each.to(device) for each in batch)), exported(*batch)) for batch in inputs])
    finally:
        model.train(was_training)


def agreement(pairs):
    """A `Parity` of [(wanted, found)]: tensors (N, classes), or (N, ..., classes)."""
    import torch

    for wanted, found in pairs:
        if wanted.shape != found.shape:
            raise LabError(
                "The exported model answers in another shape.",
                expected=tuple(wanted.shape),
                found=tuple(found.shape),
                fix="export it with a dynamic batch dimension",
            )
    a, b = (torch.cat([pair[i].double().cpu().reshape(-1, pair[i].shape[-1]) for pair in pairs]) for i in (0, 1))
    top1 = (a.argmax(-1) == b.argmax(-1)).double().mean()
    cosine = torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0)
    error = (a - b).abs().max() / a.abs().max().clamp_min(1e-30)
    return Parity(float(cosine), float(error), float(top1), len(a))
