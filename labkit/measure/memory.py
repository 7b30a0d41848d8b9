"""The memory of a call: its peak, and the bytes that it keeps for the backward pass."""

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
    """Memory of one call of `fn`: a `rows.Memory`.

    peak_bytes    GPU: most bytes its allocator held, with what was there before
    tensor_bytes  most bytes of tensors made by the call that were alive at once; without scratch
                  space in operators
    saved_bytes   most bytes autograd kept at once for the backward pass; each storage once,
                  parameters not
    """
    clock = clock_of(device)
    fn()  # what is made once and kept is not the call's
    clock.synchronize()
    # garbage counts there; to look for it takes up to half a second
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
    """Return the most bytes that autograd keeps at once for the backward pass of `fn(*args)`.

    Each storage counts once, parameters do not count.

    What an operator saves whose result leads nowhere (into a comparison, say) is freed with that
    result.
    """
    import torch

    tally = _Tally()

    def pack(tensor):
        def saved():
            return tensor

        # only `_base` tells of which tensor another one is a view
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
    """Bytes of the storages that are held now, and at most."""

    def __init__(self):
        self.now = 0
        self.peak = 0
        self.holders = Counter()  # by the address of a storage

    def hold(self, storage, holder):
        """Count a storage, once, as long as the holder lives."""
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
    """Return the most bytes at once of the storages that operators make in `fn()`, each as long
    as it lives.
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
