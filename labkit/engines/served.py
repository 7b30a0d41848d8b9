"""The result of loading a model into an engine: ready to answer, with the device and threads
that it really uses.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from labkit.errors import LabError
from labkit.export.runtime import refused


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model ready to serve: call it with a batch, get float32 outputs on the batch's device.

    engine, precision  its name and one of `engines.PRECISIONS`; `engines.load` fills them in
    device     where it really runs, such as "cpu" or "cuda:0": it may differ from where the batch
               lies
    threads    CPU threads it may use
    run        (tensors of a call) -> the first output as a tensor
    run_whole  (tensors of a call) -> {name: tensor} of all outputs that are tensors; None: the
               engine gives the first
    """

    engine: str = ""
    precision: str = ""
    device: str
    threads: int
    run: Callable = field(repr=False)
    run_whole: Callable | None = field(default=None, repr=False)

    def __call__(self, *batch):
        """Run the model on (N, ...) tensors, one for each of its inputs in order. Returns (N, ...)
        float32.

        Raises  LabError when the model does not take them, or fails
        """
        try:
            with torch.inference_mode():
                return self.run(*batch).to(batch[0].device, torch.float32)
        except LabError:
            raise
        except Exception as error:  # each engine has its own
            raise refused(self.engine, batch, error) from error
