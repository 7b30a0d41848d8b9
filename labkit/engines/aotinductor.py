"""aotinductor: the compiler of torch.compile, run ahead of time; a file stores its machine code.

Another process loads the file in milliseconds and compiles nothing. `labkit.engines.cache` keeps
the file.
"""

import hashlib
import io

import torch

from labkit import device as devices
from labkit.engines import cache, inductor
from labkit.engines.served import Served, first_tensor, named_tensors

RUNS = "torch"
PRECISIONS = ("fp32",)  # an export leaves autocast out
check = inductor.check


def load(model, example, *, precision, threads):
    """Load a torch module; the arguments and the result are those of `labkit.engines.load`.

    The first load of a network exports and compiles it, which takes from seconds to minutes.
    """
    devices.require_compiler(example.device)
    if len(example) == 1:  # from one row the export would make a fixed size
        batch = torch.cat([example, example])
    else:
        batch = example
    with torch.no_grad():
        exported = torch.export.export(
            model, (batch,), dynamic_shapes=({0: torch.export.Dim.AUTO},)
        )
    package = _package(type(model).__name__, exported, example)
    # torch documents ahead-of-time compilation under this name only
    compiled = torch._inductor.aoti_load_package(io.BytesIO(package))

    def answer(*batch):
        with devices.using_threads(threads):
            return compiled(*batch)

    return Served(
        device=str(example.device),
        threads=threads,
        run=lambda *batch: first_tensor(answer(*batch)),
        run_whole=lambda *batch: named_tensors(answer(*batch)),
    )


def _package(name, exported, example):
    """Return the bytes of the compiled package. It is compiled only if the cache does not have it.

    name      beginning of the name of the package's file
    exported  the `torch.export.ExportedProgram`
    example   a batch
    """

    def build():
        package = io.BytesIO()
        torch._inductor.aoti_compile_and_package(exported, package_path=package)
        return package.getvalue()

    compiled = cache.find_or_build(
        name,
        _digest(exported),
        build,
        settings={
            "shape": list(example.shape[1:]),
            "dtype": str(example.dtype),
            "device": str(example.device),
        },
        versions={"torch": str(torch.__version__)},
        suffix=".pt2",
    )
    return compiled.content


def _digest(exported):
    """Return the sha256 of the operators and all weights of an exported network."""
    digest = hashlib.sha256(exported.graph_module.code.encode())
    tensors = {**exported.state_dict, **exported.constants}
    for name in sorted(tensors):
        flat = tensors[name].detach().cpu().contiguous().view(-1)
        digest.update(name.encode())
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
