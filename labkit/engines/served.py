"""Define `Served`: a model that an engine has loaded, with the device and threads that it uses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from labkit.errors import LabError
from labkit.export.runtime import refused


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model that an engine has loaded. Call it with a batch to get its first output in float32.

    The output is on the device of the batch.

    engine     name of the engine; `engines.load` fills it in
    precision  one of `engines.PRECISIONS`; `engines.load` fills it in
    device     where the model really runs, such as "cpu" or "cuda:0"; the batch may be elsewhere
    threads    CPU threads that the model may use
    run        function (tensors of a call) -> the first output as a tensor
    run_whole  function (tensors of a call) -> {name: tensor} of all outputs that are tensors, in
               their order; None if the engine gives the first output only
    """

    engine: str = ""
    precision: str = ""
    device: str
    threads: int
    run: Callable = field(repr=False)
    run_whole: Callable | None = field(default=None, repr=False)

    def __call__(self, *batch):
        """Run the model on one batch. Returns its first output, (N, ...) float32.

        batch   (N, ...) tensors, one for each input of the model in order
        Raises  LabError when the model does not take the tensors, or fails
        """
        return self._tried(lambda: self.run(*batch).to(batch[0].device, torch.float32), batch)

    def all_outputs(self, *batch):
        """Run the model on one batch. Returns all outputs, {name: tensor}, in their own types.

        It must not be called if `run_whole` is None.

        batch   as in a plain call
        Raises  LabError: the model does not take the tensors, or fails
        """
        return self._tried(lambda: self.run_whole(*batch), batch)

    def _tried(self, call, batch):
        """Return the result of `call()`, computed without gradients.

        Any error of the engine becomes a LabError.

        batch  the tensors of the call, for the error message
        """
        try:
            with torch.inference_mode():
                return call()
        except LabError:
            raise
        except Exception as error:  # each engine has errors of its own
            raise refused(self.engine, batch, error) from error


def first_tensor(answer: Any) -> torch.Tensor:
    """Return the first tensor in the answer of a torch module."""
    if isinstance(answer, torch.Tensor):
        return answer
    return next(iter(named_tensors(answer).values()))


def named_tensors(answer: Any) -> dict[str, torch.Tensor]:
    """Return the tensors in the answer of a torch module: {name: tensor}.

    A name is made of the keys and indices that lead to the tensor: "0/logits" is the entry "logits"
    of the first item. A single tensor has the name "output".

    answer  a tensor; or lists, tuples and dictionaries of tensors, nested or not
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
    """Return one step of a path into a nested value as a text, such as a key or an index."""
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
