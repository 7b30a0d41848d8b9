"""onnxruntime: ONNX Runtime, the reference runtime of the ONNX format."""

import numpy as np
import torch

from labkit import device as devices
from labkit import export
from labkit.device import packages
from labkit.engines.served import Served

RUNS, PRECISIONS = "onnx", ("fp32", "fp16", "int8")  # it has no bf16 kernels for the CPU
PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
TYPES = {
    "tensor(float)": (torch.float32, np.float32),
    "tensor(float16)": (torch.float16, np.float16),
    "tensor(int64)": (torch.int64, np.int64),
}


def check():
    """See `labkit.engines`."""
    yield packages.check("onnxruntime", needed=True)


def load(path, example, *, precision, threads):
    """See `labkit.engines.load`. It runs on the GPU where its GPU package is installed, else on the CPU."""
    wanted = PROVIDERS.get(example.device.type)
    session = export.session(path, threads=threads, providers=[wanted, PROVIDERS["cpu"]])
    made = session.get_providers()[0]  # the best of those that were really made
    device = example.device if made == wanted else torch.device("cpu")
    kind, index = device.type, device.index or 0
    inputs = [(node.name, *TYPES[node.type]) for node in session.get_inputs()]
    first = session.get_outputs()[0].name

    def run(*batch):  # the memory of inputs and output is bound, not copied, wherever it lies
        binding = session.io_binding()
        given = [tensor.to(device, dtype).contiguous() for tensor, (_, dtype, _) in zip(batch, inputs, strict=True)]
        for tensor, (name, _, stored_as) in zip(given, inputs, strict=True):
            binding.bind_input(name, kind, index, stored_as, tuple(tensor.shape), tensor.data_ptr())
        binding.bind_output(first, kind, index)
        devices.synchronize(device)  # the session has a stream of its own: what it reads must be there
        session.run_with_iobinding(binding)
        return torch.from_dlpack(binding.get_outputs()[0])

    return Served(device=str(device), threads=threads, run=run)
