"""FastSwish: HardSwish whose gradient does not die for very negative inputs, in five forms that agree.

What     x for x >= 3;  x (A x + B) for -3 <= x < 3;  -V / (1 - K (x + 3)) below, which nears 0 without reaching it;
         V = 0.1, K = 4.5, A = (3 - V) / 18, B = (3 + V) / 6: value and slope are continuous at -3
When     units fall into the flat part of HardSwish or ReLU and have to come back
Cost     computed in one pass over memory about that of ReLU; operator by operator several times as much
Not when few units die (count them first): the accuracy is then that of HardSwish
Why so   a smooth tail from HardSwish's 0 at -3 back to 0 would be level somewhere (Rolle), so the middle piece gives
         way by up to V; being level cannot be avoided altogether: it is so at BOTTOM, where the middle piece turns
Source   Howard et al. 2019, arXiv:1905.02244, for HardSwish
"""

import importlib

from torch import nn

from labkit import device
from labkit.errors import LabError, Unavailable
from labkit.methods.fastswish.formula import BOTTOM, A, B, K, V, naive, rewrite, slope, slope_from_value
from labkit.methods.fastswish.recompute import Recomputed, with_recompute

FORMS = ("naive", "rewrite", "function", "operator", "triton")  # they agree within 1e-6 in fp32
FROM_OUTPUT = "output and a bit"  # the sixth: keeps least, but is less exact near BOTTOM

__all__ = [
    "BOTTOM",
    "FORMS",
    "FROM_OUTPUT",
    "A",
    "B",
    "FastSwish",
    "K",
    "Recomputed",
    "V",
    "form",
    "naive",
    "onnx_translations",
    "rewrite",
    "slope",
    "slope_from_value",
    "with_recompute",
]


class FastSwish(nn.Module):
    """The activation as a layer, in one of the forms."""

    def __init__(self, form="function"):
        super().__init__()
        self.form, self.compute = form, globals()["form"](form)

    def forward(self, x):
        return self.compute(x)

    def extra_repr(self):
        return self.form


def form(name):
    """A form as a function from a tensor to one like it.

    name    one of `FORMS`, or `FROM_OUTPUT`
    Raises  Unavailable for "triton" without Triton, or without a GPU unless TRITON_INTERPRET=1
    """
    if name not in MAKERS:
        raise LabError(
            f"FastSwish has no form {name!r}.", expected=" or ".join(MAKERS), found=name, fix="choose one of these"
        )
    return MAKERS[name]()


def part(name):
    return importlib.import_module(f"labkit.methods.fastswish.{name}")


def triton_form():
    try:
        import triton
    except ImportError as error:
        raise Unavailable(
            "Triton kernels cannot run here.",
            expected="the package triton",
            found=str(error),
            fix="on Linux with an NVIDIA GPU: pip install triton",
        ) from None
    if not (device.runs_triton() or triton.knobs.runtime.interpret):
        raise Unavailable(
            "Triton kernels cannot run here.",
            expected="a GPU that Triton compiles for",
            found="none",
            fix="set TRITON_INTERPRET=1 before starting Python: the kernels then run, slowly, as Python",
        )
    return part("kernels").triton_form


MAKERS = {
    "naive": lambda: naive,
    "rewrite": lambda: rewrite,
    "function": lambda: part("function").function_form,
    "operator": lambda: part("operator").operator_form,
    "triton": triton_form,
    FROM_OUTPUT: lambda: part("function").output_form,
}


def onnx_translations():
    """{operator of torch: function of onnxscript}, for `torch.onnx.export(custom_translation_table=...)`."""
    import torch

    operator = part("operator")
    ours = [torch.ops.labkit.fastswish]
    ours += [torch.ops.labkit.fastswish_triton] if hasattr(torch.ops.labkit, "fastswish_triton") else []
    return {each.default: operator.to_onnx for each in ours}
