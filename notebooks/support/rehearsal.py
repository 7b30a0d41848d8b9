"""Stand in for the GPU side of a script without torch, where there is no GPU.

The rehearsal is pycuda's memory and an execution context, with ONNX Runtime doing the sums. It
answers what the engine of the same ONNX file would answer, and is as strict as the real thing:
addresses and sizes must be right, shapes must be set, and results are there only after the stream
was waited for. It is no measure of speed.
"""

import ctypes
import itertools
import weakref
from functools import partial

import numpy as np

from labkit import export
from labkit.errors import LabError

# fresh GPU memory holds anything: here bytes that are a huge negative number as float32
UNWRITTEN = 0xCB
PROFILE = (1, 8, 64)  # smallest, usual and largest batch
DEFAULT_STREAM = 0  # of calls that name no stream


class Misuse(LabError):
    """A call that would crash a GPU program, or silently give wrong numbers."""


class Rehearsal:
    """A device with memory and a queue.

    Its methods have the names and arguments of `pycuda.driver`.
    """

    pagelocked_zeros = staticmethod(np.zeros)  # host memory that the system does not move

    def __init__(self):
        # {address: Allocation}; what nobody holds any more is free
        self.memory = weakref.WeakValueDictionary()
        self.queue = []
        self.steps = []  # names of the calls, in order

    def mem_alloc(self, size):
        """Return `size` bytes of device memory: an allocation whose int() is its address."""
        self.steps.append("mem_alloc")
        return Allocation(self, int(size))

    def to_device(self, array):
        """Return device memory that holds a copy of an array."""
        target = self.mem_alloc(_contiguous(array).nbytes)
        self.memcpy_htod(target, array)
        return target

    def memcpy_htod(self, target, array):
        """Copy an array from the host (CPU) to the device (GPU)."""
        self.steps.append("memcpy_htod")
        self._to_device(target, _contiguous(array))

    def memcpy_dtoh(self, array, source):
        """Copy from the device into an array of the host, without waiting for any stream."""
        self.steps.append("memcpy_dtoh")
        self._to_host(_contiguous(array), source)

    def memcpy_htod_async(self, target, array, stream=None):
        """Put a copy to the device into a stream, and return at once."""
        self.steps.append("memcpy_htod_async")
        self.queue.append(
            (_handle(stream), partial(self._to_device, int(target), _contiguous(array)))
        )

    def memcpy_dtoh_async(self, array, source, stream=None):
        """Put a copy to the host into a stream, and return at once."""
        self.steps.append("memcpy_dtoh_async")
        self.queue.append(
            (_handle(stream), partial(self._to_host, _contiguous(array), int(source)))
        )

    def Stream(self):
        """Return a queue of work: `.handle` for TensorRT, `.synchronize()` to wait."""
        return Stream(self)

    def _to_device(self, target, array):
        ctypes.memmove(self.checked_address(target, array.nbytes), array.ctypes.data, array.nbytes)

    def _to_host(self, array, source):
        ctypes.memmove(array.ctypes.data, self.checked_address(source, array.nbytes), array.nbytes)

    def checked_address(self, address, size):
        """Return a device address unchanged if it has room for `size` bytes.

        An address of the device is one of the host here. Raises Misuse for any other address, and
        for too little room.
        """
        allocation = self.memory.get(int(address))
        if allocation is None:
            raise Misuse(
                "An address that is no device memory (an illegal memory access).",
                expected="what mem_alloc returned, not yet freed",
                found=int(address),
            )
        if allocation.size < size:
            raise Misuse(
                "More bytes than the device memory has.",
                expected=f"{allocation.size} bytes or fewer",
                found=size,
            )
        return int(address)


class Allocation:
    """Memory of a `Rehearsal`, until it is freed or nobody holds it any more."""

    def __init__(self, device, size):
        self.device = device
        self.size = size
        self.buffer = np.full(size, UNWRITTEN, np.uint8)
        device.memory[int(self)] = self

    def __int__(self):
        return self.buffer.ctypes.data

    def free(self):
        if self.device.memory.pop(int(self), None) is not self:
            raise Misuse("Memory that is freed twice.", found=int(self))


class Stream:
    """A queue of work, which is done when somebody waits for the stream."""

    numbers = itertools.count(1)

    def __init__(self, device):
        self.device = device
        self.handle = next(self.numbers)

    def synchronize(self):
        """Do the waiting work of this stream, and that of the default stream in the same order.

        Work of the default stream never overtakes work of another stream.
        """
        self.device.steps.append("synchronize")
        streams = (self.handle, DEFAULT_STREAM)
        waiting = self.device.queue
        self.device.queue = [(handle, call) for handle, call in waiting if handle not in streams]
        for handle, call in waiting:
            if handle in streams:
                call()


class Context:
    """An execution context of an ONNX file, for the batches of a profile.

    Its methods have the names and arguments of TensorRT.
    """

    def __init__(self, device, onnx_path, profile=PROFILE):
        export.checked(onnx_path)
        self.device = device
        self.profile = profile
        self.addresses = {}
        self.shape = None
        self.refused = None  # the shape that last did not fit
        self.session = export.session(onnx_path)
        (self.input,) = self.session.get_inputs()
        self.output = self.session.get_outputs()[0]
        self.tensors = {self.input.name: self.input, self.output.name: self.output}

    @property
    def engine(self):
        """Return the object that knows the profile: here it is the context itself."""
        return self

    def get_tensor_profile_shape(self, name, profile_index):
        """Return [smallest, usual, largest shape] of the input in the only profile, number 0."""
        if name != self.input.name or profile_index != 0:
            raise Misuse(
                "No such profile.",
                expected=f"{self.input.name}, 0",
                found=f"{name}, {profile_index}",
            )
        return [(batch, *self.input.shape[1:]) for batch in self.profile]

    def set_input_shape(self, name, shape):
        """Set the shape of the input before a call; the shape of the output follows from it.

        Returns True when the shape fits the profile.
        """
        self.device.steps.append("set_input_shape")
        fits = name == self.input.name and tuple(shape[1:]) == tuple(self.input.shape[1:])
        fits = fits and self.profile[0] <= shape[0] <= self.profile[-1]
        if fits:
            self.shape = tuple(shape)
            self.refused = None
        else:
            self.refused = tuple(shape)
        return fits

    def get_tensor_shape(self, name):
        """Return the shape of an input or output.

        Its first side is -1 until the shape of the input is set.
        """
        batch = self.shape[0] if self.shape else -1
        if name not in self.tensors:
            raise Misuse("No such tensor.", expected=" or ".join(self.tensors), found=name)
        return (batch, *self.tensors[name].shape[1:])

    def set_tensor_address(self, name, address):
        """Set the address, an integer, at which TensorRT reads or writes a tensor.

        Returns True where the name is that of a tensor.
        """
        self.device.steps.append("set_tensor_address")
        if not isinstance(address, int):
            raise TypeError(
                f"set_tensor_address wants an int; found {type(address).__name__}: write "
                "int(memory)"
            )
        self.addresses[name] = address
        return name in self.tensors

    def execute_async_v3(self, stream_handle):
        """Put one inference into a stream, and return at once."""
        self.device.steps.append("execute_async_v3")
        self._require_complete()
        # the next call may set others
        compute = partial(self._compute, self.shape, dict(self.addresses))
        self.device.queue.append((stream_handle, compute))
        return True

    def execute_v2(self, bindings):
        """Run one inference on a list of addresses, inputs first, and wait for it.

        Older scripts call this.
        """
        self.device.steps.append("execute_v2")
        if not all(isinstance(address, int) for address in bindings) or len(bindings) != 2:
            raise TypeError(
                "execute_v2 wants [int(input), int(output)]: one address for each tensor, in order"
            )
        self.addresses = dict(zip(self.tensors, bindings, strict=True))
        self._require_complete()
        self._compute(self.shape, self.addresses)
        return True

    def _require_complete(self):
        """Raise Misuse where the shape of the input or an address is missing."""
        missing = set(self.tensors) - set(self.addresses)
        if self.shape is None or missing:
            found = f"no address for {', '.join(sorted(missing))}" if missing else "no input shape"
            raise Misuse(
                "The call is not complete.",
                expected="a shape for the input, an address for each tensor",
                found=found,
            )

    def _compute(self, shape, addresses):
        """Read the input's memory, run the model, write the output's memory."""
        batch = np.empty(shape, np.float32)
        self.device._to_host(batch, addresses[self.input.name])
        (result,) = self.session.run([self.output.name], {self.input.name: batch})
        self.device._to_device(addresses[self.output.name], np.ascontiguousarray(result))


def _contiguous(array):
    """Return an array unchanged if its bytes lie in one piece; raise Misuse otherwise.

    pycuda refuses other arrays too.
    """
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        found = (
            "a view that is not in one piece"
            if isinstance(array, np.ndarray)
            else type(array).__name__
        )
        raise Misuse(
            "Only a NumPy array in one piece can be copied.",
            expected="np.ascontiguousarray(...)",
            found=found,
        )
    return array


def _handle(stream):
    """Return the number of a stream; that of the default stream for None."""
    return DEFAULT_STREAM if stream is None else stream.handle
