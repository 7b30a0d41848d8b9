"""onnxruntime: ONNX Runtime, the reference runtime of the ONNX format."""

import numpy as np
import torch

from labkit import device as devices
from labkit import export
from labkit.device import packages
from labkit.engines.served import Served
from labkit.errors import Unavailable
from labkit.export.runtime import answers

RUNS = "onnx"
PRECISIONS = ("fp32", "fp16", "int8")  # it has no bf16 kernels for the CPU
PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TYPES = {
    "tensor(float)": (torch.float32, np.float32),
    "tensor(double)": (torch.float64, np.float64),
    "tensor(float16)": (torch.float16, np.float16),
    "tensor(bool)": (torch.bool, np.bool_),
    **{f"tensor({kind})": (getattr(torch, kind), np.dtype(kind).type) for kind in INTEGERS},
}


def check():
    """Yield what this engine needs, as `Check`s."""
    yield packages.check("onnxruntime", needed=True)


def load(path, example, *, precision, threads):
    """Load an ONNX file; the arguments and the result are those of `labkit.engines.load`.

    The model runs on the GPU if ONNX Runtime's GPU package is installed, else on the CPU.
    """
    # Open it; the first provider of the session is the one that really runs it.
    preferred = PROVIDERS.get(example.device.type)
    session = export.session(path, threads=threads, providers=[preferred, PROVIDERS["cpu"]])
    device = torch.device("cpu")
    if session.get_providers()[0] == preferred:
        device = example.device
    device_type = device.type
    device_index = device.index or 0

    inputs = [(port.name, *_types_of(port, "input")) for port in session.get_inputs()]
    first_output = session.get_outputs()[0]
    _types_of(first_output, "first output")

    def run(*batch):  # the memory of inputs and output is bound, not copied, wherever it lies
        binding = session.io_binding()
        tensors = []  # they must live until the session has run
        for tensor, (name, dtype, stored_as) in zip(batch, inputs, strict=True):
            bound = tensor.to(device, dtype).contiguous()
            tensors.append(bound)
            binding.bind_input(
                name, device_type, device_index, stored_as, tuple(bound.shape), bound.data_ptr()
            )
        binding.bind_output(first_output.name, device_type, device_index)
        # the session has a stream of its own: what it reads must be there
        devices.synchronize(device)
        session.run_with_iobinding(binding)
        return torch.from_dlpack(binding.get_outputs()[0])

    def run_whole(*batch):
        arrays = tuple(tensor.cpu().numpy() for tensor in batch)
        names = [node.name for node in session.get_outputs() if node.type in TYPES]
        return dict(
            zip(names, map(torch.from_numpy, answers(session, arrays, outputs=names)), strict=True)
        )

    return Served(device=str(device), threads=threads, run=run, run_whole=run_whole)


def _types_of(port, role):
    """Return the (torch dtype, NumPy type) of an input or output of a session.

    Raises Unavailable if the input or output is no tensor of numbers.

    port  ONNX Runtime's description of the input or output
    role  "input" or "first output", for the error message
    """
    if port.type in TYPES:
        return TYPES[port.type]
    raise Unavailable(
        f"The {role} {port.name!r} is no tensor of numbers.",
        expected=", ".join(TYPES),
        found=port.type,
        fix="export the model without the step that makes texts, sequences or maps (of "
        "scikit-learn: zipmap=False)",
    )
