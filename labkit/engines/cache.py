"""Store the compiled files of this machine (TensorRT, AOTInductor) in artifacts/engines.

A compiled file is a program: loading it runs its code. And it is right only for the model, the
settings, the library versions and the processor for which it was built. So its name holds a hash of
all of these, and a file is looked up by this name only. A file from another machine is therefore
never loaded.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import device as devices
from labkit.errors import LabError
from labkit.files import artifacts, atomic, short_digest

# The suffix of a compiled file, and how it is built here. TensorRT's own programs write .plan and
# .trt.
BUILT_BY = {
    ".engine": "`labkit build MODEL.onnx`",
    ".plan": "`labkit build MODEL.onnx`",
    ".trt": "`labkit build MODEL.onnx`",
    ".pt2": "engines.load('aotinductor', module, example)",
}


@dataclass(frozen=True)
class CompiledFile:
    """A compiled file in the cache.

    path     path of the file
    content  its bytes
    reused   True if it was there already, False if it was built just now
    """

    path: Path
    content: bytes
    reused: bool


def find_or_build(
    model_name: str,
    model_sha256: str,
    build: Callable[[], bytes],
    *,
    settings: Mapping[str, Any],
    versions: Mapping[str, str],
    suffix: str,
) -> CompiledFile:
    """Return the `CompiledFile` of a model from the cache; build and store it if it is missing.

    model_name    beginning of the file's name, for people who look into the folder
    model_sha256  hash of the operators and of all weights, also of weights in external files
    build         function () -> bytes of a new compiled file; called only if the cache has none
    settings      {name: value} of the options of the build, as JSON can hold them
    versions      {library: version} of the libraries that build and run the file
    suffix        ending of the file's name, such as ".engine"
    Raises        the errors of `build`; OSError if the file cannot be written
    """
    key = cache_key(model_sha256, settings=settings, versions=versions)
    path = artifacts() / "engines" / f"{model_name}-{key}{suffix}"
    if path.is_file():
        return CompiledFile(path, path.read_bytes(), reused=True)
    content = build()
    with atomic(path) as temporary:
        temporary.write_bytes(content)
    return CompiledFile(path, content, reused=False)


def cache_key(
    model_sha256: str, *, settings: Mapping[str, Any], versions: Mapping[str, str]
) -> str:
    """Return a hash, 16 hex digits, of everything on which a compiled file depends.

    Besides the arguments, which are those of `find_or_build`, this is the processor: another GPU
    driver or instruction set gives another key.
    """
    dependencies = {
        "model": model_sha256,
        "settings": dict(settings),
        "versions": dict(versions),
        "processor": processor(),
    }
    return short_digest(json.dumps(dependencies, sort_keys=True))


def processor() -> dict:
    """Return the properties of the CPU and of the first GPU on which machine code depends.

    Returns {"cpu", "instruction_set", "gpu", "compute_capability", "driver": value}. A value is
    None if it is unknown, or if there is no GPU.
    """
    machine = devices.describe()
    return {
        "cpu": machine.cpu,
        "instruction_set": machine.cpu_isa,
        "gpu": machine.gpu,
        "compute_capability": devices.compute_capability(),
        "driver": machine.gpu_driver,
    }


def refuse_compiled_file(path: str | Path) -> None:
    """Raise LabError if a path is that of a compiled file, where a model is expected.

    path  path of any file. Only its suffix is looked at; the file is not opened
    """
    path = Path(path)
    build_here = BUILT_BY.get(path.suffix.lower())
    if build_here is None:
        return
    raise LabError(
        f"{path.name} is not loaded: it is a compiled file, and a compiled file is a program.",
        expected="the model that it was built from; its compiled file is looked up in "
        f"{artifacts() / 'engines'}",
        found=str(path),
        fix=f"build it on this machine by {build_here}, and give the model wherever "
        "the file was given",
    )
