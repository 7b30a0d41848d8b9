"""onnxruntime: ONNX Runtime, the reference runtime of the ONNX format."""

import numpy as np
import torch

from labkit import device as devices
from labkit.engines.graphs import as_onnx
from labkit.engines.served import Served
from labkit.errors import Unavailable

PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
TYPES = {
    "tensor(float)": (torch.float32, np.float32),
    "tensor(float16)": (torch.float16, np.float16),
    "tensor(int64)": (torch.int64, np.int64),
}


def load(model_or_onnx, example, *, precision, threads=None):
    """See `labkit.engines.load`. It runs on the GPU where its GPU package is installed, else on the CPU."""
    onnxruntime = imported()
    if precision == "bf16":
        raise Unavailable(
            "ONNX Runtime has no bf16 kernels for the CPU.",
            expected="fp32, fp16 or int8",
            found="bf16",
            fix="choose another precision, or the engine openvino on a CPU with bf16 instructions",
        )
    where = (
        example.device.type if PROVIDERS.get(example.device.type) in onnxruntime.get_available_providers() else "cpu"
    )
    threads = threads or devices.threads()
    with as_onnx(model_or_onnx, example, precision) as path:
        providers = list(dict.fromkeys([PROVIDERS[where], PROVIDERS["cpu"]]))
        session = onnxruntime.InferenceSession(str(path), options(onnxruntime, threads), providers=providers)
    return served(session, example, precision, threads)


def imported():
    try:
        import onnxruntime
    except ImportError as error:
        raise Unavailable(
            "ONNX Runtime is not installed.",
            expected="the package onnxruntime",
            found=str(error),
            fix=".venv/bin/pip install onnxruntime",
        ) from error
    return onnxruntime


def options(onnxruntime, threads):
    """All optimisations, so many threads, and none that spins on after a call: it would slow what comes next."""
    found = onnxruntime.SessionOptions()
    found.intra_op_num_threads = threads
    found.inter_op_num_threads = 1
    found.log_severity_level = 3
    found.add_session_config_entry("session.force_spinning_stop", "1")
    return found


def served(session, example, precision, threads):
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

    return Served(
        engine="onnxruntime",
        precision=precision,
        device=str(device),
        threads=threads,
        inputs={node.name: tuple(node.shape) for node in session.get_inputs()},
        outputs={node.name: tuple(node.shape) for node in session.get_outputs()},
        details={"provider": provider},
        run=run,
    )
