"""Measure the memory of a call: its peak, and the bytes kept for the backward pass."""

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.ledger.rows import Memory
from labkit.measure.clock import clock_of, provenance

if TYPE_CHECKING:
    import torch


def memory(fn: Callable, *, device: "torch.device | None" = None, batch: int = 1) -> Memory:
    """Measure the memory of one call of `fn`. Returns a `rows.Memory`.

    device  where `fn` computes, or a `Clock`; None: the best device here
    batch   number of items that a call works on

    Three fields of the row are measured, each as the largest number of bytes at one moment of the
    call:

    peak_bytes    bytes that the allocator of a GPU had given out. Bytes that were in use before the
                  call are included. None on a CPU
    tensor_bytes  bytes of the tensors that the call made. Scratch memory inside an operator is not
                  included
    saved_bytes   bytes kept for the backward pass, as `saved_for_backward` returns them

    `fn` is called four times.
    """
    clock = clock_of(device)
    fn()  # what a first call makes and keeps does not count
    clock.synchronize()
    # A GPU's allocator counts garbage as well. Collecting it takes up to half a second.
    if clock.peak_bytes() is not None:
        gc.collect()
    clock.reset_peak()
    fn()
    clock.synchronize()
    peak = clock.peak_bytes()
    tensor_bytes = _tensor_bytes(fn)
    saved_bytes = saved_for_backward(fn)
    return Memory(
        **provenance(clock),
        batch=batch,
        peak_bytes=peak,
        tensor_bytes=tensor_bytes,
        saved_bytes=saved_bytes,
    )


def saved_for_backward(fn: Callable, *args: Any) -> int:
    """Return the bytes that autograd keeps for the backward pass of `fn(*args)`, at their peak.

    Tensors that share memory count once. Parameters do not count. An operator may save tensors
    although its result is not used for the output of `fn`; they count only until the result is
    freed.
    """
    import torch

    tally = _Tally()

    def pack(tensor):
        def saved():
            return tensor

        # only `_base` names the tensor that another tensor is a view of
        owner = tensor if tensor._base is None else tensor._base
        # a parameter, or a view of one, exists anyway
        if not (owner.is_leaf and owner.requires_grad):
            tally.hold(tensor.untyped_storage(), saved)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved()):
        output = fn(*args)
    del output
    return tally.peak


class _Tally:
    """Add up the bytes of storages: `now` is the present sum, `peak` the largest sum so far."""

    def __init__(self):
        self.now = 0
        self.peak = 0
        self.holders = Counter()  # by the address of a storage

    def hold(self, storage, holder):
        """Count the bytes of a storage as long as the object `holder` lives.

        A storage with several holders counts once, until the last holder is gone.
        """
        address = storage.data_ptr()
        size = storage.nbytes()
        if not self.holders[address]:
            self.now += size
            self.peak = max(self.peak, self.now)
        self.holders[address] += 1
        weakref.finalize(holder, self._release, address, size)

    def _release(self, address, size):
        self.holders[address] -= 1
        if not self.holders[address]:
            self.now -= size


def _tensor_bytes(fn):
    """Return the bytes of the storages that the operators of `fn()` make, at their peak.

    A storage counts from the operator that makes it until it is freed. Storages of the inputs of an
    operator do not count again for its output.
    """
    import torch

    # torch documents both, and has no public names for them
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    tally = _Tally()

    def storages_of(tree):
        return {
            leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)
        }

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            # what an operator returns, without its inputs and views of them
            input_storages = storages_of((args, kwargs))
            output = func(*args, **(kwargs or {}))
            for storage in storages_of(output) - input_storages:
                tally.hold(storage, storage)
            return output

    with Watch():
        fn()
    return tally.peak
