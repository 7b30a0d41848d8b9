"""An engine on the GPU, fed with torch tensors: TensorRT reads and writes their memory, nothing is copied."""

from dataclasses import dataclass

import torch

from labkit.engines.tensorrt.libraries import recorder, require_gpu
from labkit.errors import LabError

TYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}  # which torch calls otherwise


@dataclass(frozen=True)
class Port:
    """An input or output of an engine."""

    name: str
    dtype: torch.dtype
    is_input: bool


class Session:
    """A loaded engine. Calling it puts the work on the current CUDA stream and returns at once, as torch does.

    One execution context serves one stream at a time, so each stream gets its own; they share the weights.
    """

    def __init__(self, found, plan):
        """found: `libraries.Library`; plan: bytes that `trust` vouched for. Raises Unavailable, LabError."""
        require_gpu(found)
        self.log = recorder(found.trt)()
        self.runtime = found.trt.Runtime(self.log)
        self.engine = self.runtime.deserialize_cuda_engine(plan)
        self._check(self.engine is not None, "this engine (delete its file, and it is built again)")
        names = [self.engine.get_tensor_name(index) for index in range(self.engine.num_io_tensors)]
        ports = [_port(found.trt, self.engine, name) for name in names]
        self.inputs = tuple(each for each in ports if each.is_input)
        self.outputs = tuple(each for each in ports if not each.is_input)
        self.contexts = {}

    def __call__(self, *batch):
        """(N, ...) tensors on the GPU, one for each input -> the first output, (N, ...)."""
        context = self._context(len(batch[0]))
        given = [tensor.to(each.dtype).contiguous() for tensor, each in zip(batch, self.inputs, strict=True)]
        for tensor, each in zip(given, self.inputs, strict=True):
            self._check(context.set_input_shape(each.name, tuple(tensor.shape)), f"the shape {tuple(tensor.shape)}")
            context.set_tensor_address(each.name, tensor.data_ptr())
        results = []
        for each in self.outputs:
            shape = tuple(context.get_tensor_shape(each.name))
            results.append(torch.empty(shape, dtype=each.dtype, device=given[0].device))
            context.set_tensor_address(each.name, results[-1].data_ptr())
        self._check(context.execute_async_v3(_stream_handle()), "the call")
        return results[0]

    def _context(self, batch):
        """The execution context of the current stream, for the optimisation profile that fits the batch size."""
        key = (_stream_handle(), self._profile(batch))
        if key not in self.contexts:
            context = self.engine.create_execution_context()
            self._check(context is not None, "an execution context")
            self._check(context.set_optimization_profile_async(key[1], key[0]), "the optimisation profile")
            self.contexts[key] = context
        return self.contexts[key]

    def _profile(self, batch):
        """The number of the profile whose range holds the batch size; of several, that of the nearest usual size."""
        name, engine = self.inputs[0].name, self.engine
        ranges = [
            [shape[0] for shape in engine.get_tensor_profile_shape(name, index)]
            for index in range(engine.num_optimization_profiles)
        ]
        fits = [index for index, (low, _, high) in enumerate(ranges) if low <= batch <= high]
        if not fits:
            raise LabError(
                f"The engine was not built for a batch of {batch}.",
                expected=" or ".join(f"{low} to {high}" for low, _, high in ranges),
                found=batch,
                fix="build it with a profile for this batch: Settings(batches=...)",
            )
        return min(fits, key=lambda index: abs(ranges[index][1] - batch))

    def _check(self, fine, what):
        """Turn a refusal of TensorRT into an error with its own words."""
        if not fine:
            raise LabError(f"TensorRT refuses {what}.", found=(self.log.said("INTERNAL_ERROR", "ERROR") or ["?"])[-1])


def _port(trt, engine, name):
    """The `Port` of one tensor of an engine."""
    kind = engine.get_tensor_dtype(name).name
    is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
    return Port(name, getattr(torch, TYPES.get(kind, kind.lower())), is_input)


def _stream_handle():
    """The current CUDA stream, as the number TensorRT wants."""
    return torch.cuda.current_stream().cuda_stream
