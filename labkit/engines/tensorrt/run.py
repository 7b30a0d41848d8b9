"""Run an engine on torch tensors on the GPU: TensorRT reads and writes their memory directly."""

import torch

from labkit.engines.tensorrt.libraries import recorder, require_gpu
from labkit.errors import LabError

# {TensorRT's name: torch's}, where they differ
TYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}


class Session:
    """A loaded engine. A call queues the work on the current CUDA stream and returns at once.

    An execution context can serve one stream at a time. So each stream has a context of its own;
    the contexts share the weights.
    """

    def __init__(self, tensorrt, plan):
        """Load an engine on the GPU.

        tensorrt  the `libraries.Library` that built the engine
        plan      the bytes of the engine: `plan` of the `Engine` that `engine_file.obtain` returned
        Raises    Unavailable without a GPU; LabError for a plan that TensorRT refuses
        """
        require_gpu(tensorrt)
        self.log = recorder(tensorrt.trt)()
        self.runtime = tensorrt.trt.Runtime(self.log)
        self.engine = self.runtime.deserialize_cuda_engine(plan)
        self._check(self.engine is not None, "this engine (delete its file, and it is built again)")
        self.inputs = {}  # {name: dtype}
        self.outputs = {}
        for index in range(self.engine.num_io_tensors):
            name = self.engine.get_tensor_name(index)
            kind = self.engine.get_tensor_dtype(name).name
            dtype = getattr(torch, TYPES.get(kind, kind.lower()))
            if self.engine.get_tensor_mode(name) == tensorrt.trt.TensorIOMode.INPUT:
                self.inputs[name] = dtype
            else:
                self.outputs[name] = dtype
        self.contexts = {}

    def __call__(self, *batch):
        """Run the engine on (N, ...) tensors on the GPU, one for each input.

        Returns the first output, (N, ...).
        """
        return next(iter(self.run_whole(*batch).values()))

    def run_whole(self, *batch):
        """Run the engine on one batch. Returns {name: (N, ...) tensor} of all outputs.

        batch  (N, ...) tensors on the GPU, one for each input
        """
        context = self._context()

        # Tell TensorRT where the inputs lie; they must live until the call is made.
        inputs = [
            tensor.to(dtype).contiguous()
            for tensor, dtype in zip(batch, self.inputs.values(), strict=True)
        ]
        for tensor, name in zip(inputs, self.inputs, strict=True):
            self._check(
                context.set_input_shape(name, tuple(tensor.shape)),
                f"the shape {tuple(tensor.shape)}",
            )
            context.set_tensor_address(name, tensor.data_ptr())

        # Make room for the outputs, whose shapes follow from those of the inputs.
        results = {}
        for name, dtype in self.outputs.items():
            shape = tuple(context.get_tensor_shape(name))
            results[name] = torch.empty(shape, dtype=dtype, device=inputs[0].device)
            context.set_tensor_address(name, results[name].data_ptr())
        self._check(context.execute_async_v3(_stream_handle()), "the call")
        return results

    def _context(self):
        """Return the execution context of the current CUDA stream, which is made on first use."""
        stream = _stream_handle()
        if stream not in self.contexts:
            context = self.engine.create_execution_context()
            self._check(context is not None, "an execution context")
            self._check(
                context.set_optimization_profile_async(0, stream), "the optimization profile"
            )
            self.contexts[stream] = context
        return self.contexts[stream]

    def _check(self, accepted, subject):
        """Raise a LabError with TensorRT's last error message, unless `accepted` is true.

        accepted  whether TensorRT accepted the request
        subject   a text that names the request, such as "the call"
        """
        if not accepted:
            messages = self.log.texts("INTERNAL_ERROR", "ERROR") or ["?"]
            raise LabError(f"TensorRT refuses {subject}.", found=messages[-1])


def _stream_handle():
    """Return the handle of the current CUDA stream, an integer that TensorRT takes."""
    return torch.cuda.current_stream().cuda_stream
