"""aotinductor: a network that torch.compile's compiler made ready ahead of time, as a file of machine code.

Another process loads it in milliseconds and compiles nothing. A file is loaded only where `_trusted` vouches for it.
"""

import hashlib
import io
import json

import torch

from labkit import device as devices
from labkit.engines import _trusted, inductor
from labkit.engines.served import Served
from labkit.files import artifacts, short_digest

RUNS, PRECISIONS, check = "torch", ("fp32",), inductor.check  # an export leaves autocast out


def load(model, example, *, precision, threads):
    """See `labkit.engines.load`. The first time this exports and compiles, which takes from seconds to minutes."""
    devices.require_compiler(example.device)
    rows = torch.cat([example] * (2 if len(example) == 1 else 1))  # from one row the export would make a fixed size
    with torch.no_grad():
        exported = torch.export.export(model, (rows,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    package = io.BytesIO(_obtain(exported, example))  # the very bytes that were vouched for
    compiled = torch._inductor.aoti_load_package(package)

    def run(*batch):
        with devices.using_threads(threads):
            return compiled(*batch)

    return Served(device=str(example.device), threads=threads, run=run)


def _obtain(exported, example):
    """The bytes of the package."""
    machine = devices.describe()
    given = {"shape": list(example.shape[1:]), "dtype": str(example.dtype), "device": str(example.device)}
    about = {
        "onnx_sha256": _digest(exported),
        "settings": json.dumps({**given, "cpu": machine.cpu, "isa": machine.cpu_isa}),
        **_trusted.facts("aotinductor", machine.torch),
    }
    name = short_digest(about["onnx_sha256"] + about["settings"])
    path = artifacts() / "engines" / f"{name}.pt2"
    package = io.BytesIO()

    def build():
        torch._inductor.aoti_compile_and_package(exported, package_path=package)
        return package.getvalue()

    return _trusted.obtain(path, build, **about)[0]


def _digest(exported):
    """sha256 of the operators and of all weights."""
    found = hashlib.sha256(exported.graph_module.code.encode())
    for name, value in sorted({**exported.state_dict, **exported.constants}.items()):
        found.update(name.encode() + value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
