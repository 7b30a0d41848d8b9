"""What does a call need beside time? Its peak memory, and what it keeps for the backward pass."""

import contextlib
import gc
import weakref
from collections import Counter
from pathlib import Path

from labkit.ledger.rows import Memory
from labkit.measure.clock import as_calls, clock_of, provenance


def memory(fn, *, device=None, inputs=None, batch=1, name=""):
    """Memory of one call of `fn` (the first of `inputs`): a `rows.Memory`.

    peak_bytes        GPU: most bytes its allocator held, with what was there before
    rss_growth_bytes  CPU: how much the process grew at its peak (Linux); freed memory that is used again does not count
    tensor_bytes      most bytes of tensors made by the call that were alive at once; without scratch space inside
                      operators
    saved_bytes       most bytes autograd kept at once for the backward pass; each storage once, parameters not
    """
    clock, call = clock_of(device), as_calls(inputs)[0]
    fn(*call)  # what is made once and kept is not the call's
    clock.synchronize()
    gc.collect()
    clock.reset_peak()
    resident = rss_peak_window()
    fn(*call)
    clock.synchronize()
    peak, grown = clock.peak_bytes(), resident()
    with count_tensors() as tensors:
        fn(*call)
    with count_saved() as saved:
        output = fn(*call)
    del output
    on_gpu = peak is not None
    return Memory(
        **{key: value for key, value in provenance(clock).items() if key != "threads"},
        name=name,
        batch=batch,
        peak_bytes=peak,
        rss_growth_bytes=None if on_gpu else grown,
        tensor_bytes=tensors.peak,
        saved_bytes=saved.peak,
        reason=None if on_gpu or grown is not None else "the system does not tell a process's peak memory",
    )


def saved_for_backward(fn, *args):
    """Most bytes autograd keeps at once for the backward pass of `fn(*args)`; each storage once, parameters not."""
    with count_saved() as saved:
        output = fn(*args)
    del output
    return saved.peak


def rss_peak_window():
    """Start a window; the function returned gives the process's growth at its peak since, or None."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the present size
    except OSError:
        return lambda: None
    start = status_bytes("VmRSS")
    return lambda: max(status_bytes("VmHWM") - start, 0)


def status_bytes(field):
    """A size in bytes from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


class Tally:
    """Bytes alive now, and at most."""

    def __init__(self):
        self.now = self.peak = 0

    def add(self, size):
        self.now += size
        self.peak = max(self.peak, self.now)

    def remove(self, size):
        self.now -= size


@contextlib.contextmanager
def count_tensors():
    """Count the storages that operators make while the block runs: a `Tally`, by the life of each storage."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    tally, seen = Tally(), weakref.WeakSet()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            given = {t.untyped_storage() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
            output = func(*args, **(kwargs or {}))
            for tensor in tree_leaves(output):
                if isinstance(tensor, torch.Tensor):
                    note(tensor.untyped_storage(), given)
            return output

    def note(storage, given):
        if storage in seen or storage in given:
            return
        seen.add(storage)
        size = storage.nbytes()
        tally.add(size)
        weakref.finalize(storage, tally.remove, size)

    with Watch():
        yield tally


@contextlib.contextmanager
def count_saved():
    """Count the bytes autograd saves while the block runs: a `Tally`, by the life of each saved tensor.

    What an operator saves whose result leads nowhere (into a comparison, say) is freed with that result.
    """
    import torch

    tally, holders = Tally(), Counter()  # address of a storage: how many saved tensors hold it

    def pack(tensor):
        saved, storage = Saved(tensor), tensor.untyped_storage()
        if not belongs_to_parameter(tensor):
            address, size = storage.data_ptr(), storage.nbytes()
            if not holders[address]:
                tally.add(size)
            holders[address] += 1
            weakref.finalize(saved, release, address, size)
        return saved

    def release(address, size):
        holders[address] -= 1
        if not holders[address]:
            tally.remove(size)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        yield tally


class Saved:
    """A saved tensor, and nothing else: it lives as long as autograd wants it."""

    def __init__(self, tensor):
        self.tensor = tensor


def belongs_to_parameter(tensor):
    """Whether it is a leaf that learns, or a view of one: those exist anyway."""
    owner = tensor if tensor._base is None else tensor._base
    return owner.is_leaf and owner.requires_grad
