"""What runs a model: one engine, one file, one name.

A new engine is a module here with `load(model, example, *, precision)`, and its name in `NAMES`.
"""

import importlib

from labkit.errors import LabError

NAMES = ("eager", "inductor")
PRECISIONS = ("fp32", "bf16", "fp16")


def load(name, model, example, *, precision="fp32"):
    """Make a model ready to serve batches like `example`.

    name       one of `NAMES`
    model      a torch module; put into eval mode, on the device of `example`
    example    (N, C, H, W) floats
    precision  one of `PRECISIONS`
    returns    a function from a batch to float32 outputs
    Raises     Unavailable, with the reason, where the engine or the precision cannot run
    """
    for what, given, known in (("engine", name, NAMES), ("precision", precision, PRECISIONS)):
        if given not in known:
            raise LabError(
                f"There is no {what} {given!r}.", expected=" or ".join(known), found=given, fix=f"choose one {what}"
            )
    return importlib.import_module(f"labkit.engines.{name}").load(model, example, precision=precision)
