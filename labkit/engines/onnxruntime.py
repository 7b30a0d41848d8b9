"""onnxruntime: ONNX Runtime, the reference runtime of the ONNX format."""

import numpy as np
import torch

from labkit import device as devices
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
    onnxruntime = packages.imported("onnxruntime")
    wanted = [PROVIDERS.get(example.device.type), PROVIDERS["cpu"]]
    providers = [name for name in dict.fromkeys(wanted) if name in onnxruntime.get_available_providers()]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that spin on after a call would slow what comes next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return _served(onnxruntime.InferenceSession(str(path), options, providers=providers), example, threads)


def _served(session, example, threads):
    """Serve a session. Input and output memory are bound, not copied, wherever they lie."""
    provider = session.get_providers()[0]  # the one that was really made, best first
    kind = next(kind for kind, name in PROVIDERS.items() if name == provider)
    device = example.device if kind == example.device.type else torch.device(kind)
    index = device.index or 0
    inputs = [(node.name, *TYPES[node.type]) for node in session.get_inputs()]
    first = session.get_outputs()[0].name

    def run(*batch):
        binding = session.io_binding()
        kept = [tensor.to(device, dtype).contiguous() for tensor, (_, dtype, _) in zip(batch, inputs, strict=True)]
        for tensor, (name, _, kept_as) in zip(kept, inputs, strict=True):
            binding.bind_input(name, kind, index, kept_as, tuple(tensor.shape), tensor.data_ptr())
        binding.bind_output(first, kind, index)
        devices.synchronize(device)  # the session has a stream of its own: what it reads must be there
        session.run_with_iobinding(binding)
        return torch.from_dlpack(binding.get_outputs()[0])

    return Served(device=str(device), threads=threads, details={"provider": provider}, run=run)
