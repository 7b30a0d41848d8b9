"""Keep the compiled files of this machine (TensorRT, AOTInductor) in artifacts/engines.

A compiled file is a program: loading it runs what is in it. And it is right only for the model, the
settings, the versions and the processor that it was built for. So the name of the file holds a hash
of all of these, files are looked up by that name only, and nothing that was built elsewhere is ever
loaded.
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
    """A file of the cache.

    path     where it lies
    content  its bytes
    reused   True when it was built before, False when it was built just now
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
    """Return the compiled file of a model from the cache; build and store it if it is missing.

    model_name    the name of the file begins with it, for the people who look into the folder
    model_sha256  stands for the operators and all weights, those in external files included
    build         returns the bytes of a new compiled file; it is called only where the cache has
                  none
    settings      {name: value} of what the build is asked for; values that JSON can hold
    versions      {library: version} of the libraries that build and run the file
    suffix        ending of the file's name, such as ".engine"
    Raises        the errors of `build`; OSError where the file cannot be written
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
    """Return 16 hex digits that stand for everything that a compiled file depends on.

    A difference in any of this gives another key, also another driver or instruction set. The
    arguments are those of `find_or_build`.
    """
    dependencies = {
        "model": model_sha256,
        "settings": dict(settings),
        "versions": dict(versions),
        "processor": processor(),
    }
    return short_digest(json.dumps(dependencies, sort_keys=True))


def processor() -> dict:
    """Return the properties of the CPU and of the first GPU that machine code depends on.

    Returns {name: value}; a value is None where there is no GPU, or where it is unknown.
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
    """Raise LabError where a compiled file is given in place of the model that it was built from.

    path  path of any file; only its suffix is looked at, and the file is not opened
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
