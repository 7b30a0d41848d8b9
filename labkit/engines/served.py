"""The result of loading a model into an engine: ready to answer, with the device and threads
that it really uses.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
    run_whole  (tensors of a call) -> {name: tensor} of all outputs that are tensors, in their
               order; None: the engine gives the first
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
        return self._tried(lambda: self.run(*batch).to(batch[0].device, torch.float32), batch)

    def all_outputs(self, *batch):
        """Run the model as a call does. Returns {name: tensor} of all its outputs, in their own
        types.
        """
        return self._tried(lambda: self.run_whole(*batch), batch)

    def _tried(self, call, batch):
        try:
            with torch.inference_mode():
                return call()
        except LabError:
            raise
        except Exception as error:  # each engine has its own
            raise refused(self.engine, batch, error) from error


def first_tensor(answer: Any) -> torch.Tensor:
    """Return the first tensor of what a torch module answers."""
    if isinstance(answer, torch.Tensor):
        return answer
    return next(iter(named_tensors(answer).values()))


def named_tensors(answer: Any) -> dict[str, torch.Tensor]:
    """Return {name: tensor} of what a torch module answers: a tensor, or a list, tuple or dict of
    them. The names are keys and numbers.
    """
    # torch has no public name for its functions of nested values
    from torch.utils._pytree import tree_flatten_with_path

    leaves, _ = tree_flatten_with_path(answer)
    return {
        "/".join(map(_key, path)) or "output": leaf
        for path, leaf in leaves
        if isinstance(leaf, torch.Tensor)
    }


def _key(entry):
    """Return the key, number or name of an attribute, of one step into a nested value."""
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
