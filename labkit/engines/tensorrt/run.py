"""An engine on the GPU, fed with torch tensors: TensorRT reads and writes their memory, nothing is copied."""

import torch

from labkit.engines.tensorrt.libraries import recorder, require_gpu
from labkit.errors import LabError

TYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}  # which torch calls otherwise


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
        self.inputs, self.outputs = {}, {}  # {name: dtype}
        for name in map(self.engine.get_tensor_name, range(self.engine.num_io_tensors)):
            kind, mode = self.engine.get_tensor_dtype(name).name, self.engine.get_tensor_mode(name)
            side = self.inputs if mode == found.trt.TensorIOMode.INPUT else self.outputs
            side[name] = getattr(torch, TYPES.get(kind, kind.lower()))
        self.contexts = {}

    def __call__(self, *batch):
        """(N, ...) tensors on the GPU, one for each input -> the first output, (N, ...)."""
        context = self._context()
        given = [tensor.to(dtype).contiguous() for tensor, dtype in zip(batch, self.inputs.values(), strict=True)]
        for tensor, name in zip(given, self.inputs, strict=True):
            self._check(context.set_input_shape(name, tuple(tensor.shape)), f"the shape {tuple(tensor.shape)}")
            context.set_tensor_address(name, tensor.data_ptr())
        results = []
        for name, dtype in self.outputs.items():
            shape = tuple(context.get_tensor_shape(name))
            results.append(torch.empty(shape, dtype=dtype, device=given[0].device))
            context.set_tensor_address(name, results[-1].data_ptr())
        self._check(context.execute_async_v3(_stream_handle()), "the call")
        return results[0]

    def _context(self):
        """The execution context of the current stream."""
        stream = _stream_handle()
        if stream not in self.contexts:
            context = self.engine.create_execution_context()
            self._check(context is not None, "an execution context")
            self._check(context.set_optimization_profile_async(0, stream), "the optimisation profile")
            self.contexts[stream] = context
        return self.contexts[stream]

    def _check(self, fine, what):
        """Turn a refusal of TensorRT into an error with its own words."""
        if not fine:
            raise LabError(f"TensorRT refuses {what}.", found=(self.log.said("INTERNAL_ERROR", "ERROR") or ["?"])[-1])


def _stream_handle():
    """The current CUDA stream, as the number TensorRT wants."""
    return torch.cuda.current_stream().cuda_stream
