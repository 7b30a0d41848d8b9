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

from torch import nn

from labkit import device
from labkit.device import packages
from labkit.errors import LabError, Unavailable
from labkit.methods.fastswish import operator
from labkit.methods.fastswish.formula import BOTTOM, K, naive, rewrite, slope
from labkit.methods.fastswish.function import function_form, output_form
from labkit.methods.fastswish.recompute import Recomputed, with_recompute

__all__ = ["BOTTOM", "FORMS", "FROM_OUTPUT", "FastSwish", "K", "Recomputed", "form", "naive", "onnx_translations"]
__all__ += ["rewrite", "slope", "with_recompute"]
FORMS = ("naive", "rewrite", "function", "operator", "triton")  # they agree within 1e-6 in fp32
FROM_OUTPUT = "output and a bit"  # the sixth: keeps least, but is less exact near BOTTOM


class FastSwish(nn.Module):
    """The activation as a layer, in one of the forms."""

    def __init__(self, name="function"):
        super().__init__()
        self.name, self.function = name, form(name)

    def forward(self, x):
        return self.function(x)

    def extra_repr(self):
        return self.name


def form(name):
    """A form as a function from a tensor to one like it.

    name    one of `FORMS`, or `FROM_OUTPUT`
    Raises  Unavailable for "triton" without Triton, or without a GPU unless TRITON_INTERPRET=1
    """
    match name:
        case "naive":
            return naive
        case "rewrite":
            return rewrite
        case "function":
            return function_form
        case "operator":
            return operator.operator_form
        case "triton":
            return _triton_form()
        case "output and a bit":
            return output_form
    known = " or ".join((*FORMS, FROM_OUTPUT))
    raise LabError(f"FastSwish has no form {name!r}.", expected=known, found=name, fix="choose one of these")


def _triton_form():
    problem, fix = "Triton kernels cannot run here.", "on Linux with an NVIDIA GPU: pip install triton"
    triton = packages.imported("triton", what=problem, fix=fix)
    if not (device.runs_triton() or triton.knobs.runtime.interpret):
        raise Unavailable(
            problem,
            expected="a GPU that Triton compiles for",
            found="none",
            fix="set TRITON_INTERPRET=1 before starting Python: the kernels then run, slowly, as Python",
        )
    from labkit.methods.fastswish.kernels import triton_form

    return triton_form


def onnx_translations():
    """{operator of torch: function of onnxscript}, for `torch.onnx.export(custom_translation_table=...)`."""
    import torch

    ours = [torch.ops.labkit.fastswish]
    ours += [torch.ops.labkit.fastswish_triton] if hasattr(torch.ops.labkit, "fastswish_triton") else []
    return {each.default: operator.to_onnx for each in ours}
