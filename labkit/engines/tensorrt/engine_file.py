"""Return the engine of an ONNX file from the cache of this machine; build it if it is not there.

An engine file is looked up by a hash of the model, settings, GPU and versions
(`labkit.engines.cache`). So the look-up also works on a machine without a GPU.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.engines import cache
from labkit.engines.tensorrt.builder import Built, Settings, Source, build
from labkit.engines.tensorrt.libraries import Library, library


@dataclass(frozen=True)
class Engine:
    """An engine file of this machine.

    plan     the bytes of the file
    path     path of the file
    library  the `Library` that built the engine, which must also run it
    built    the `Built`, if the engine was built just now; None if it was in the cache
    """

    plan: bytes
    path: Path
    library: Library
    built: Built | None = None

    @property
    def how(self) -> str:
        """Return "built" for an engine that was built just now, else "reused"."""
        return "reused" if self.built is None else "built"


def obtain(onnx: Any, settings: Settings | None = None) -> Engine:
    """Return the `Engine` of an ONNX file, from the cache if it was built before.

    onnx      the path of the file, or its `Source`
    settings  a `Settings`; None: its defaults
    Raises    LabError: the file is no sound ONNX file, or TensorRT rejects it; Unavailable: no
              TensorRT
    """
    source = Source.read(onnx)
    settings = settings or Settings()
    tensorrt = library()
    built = None

    def build_plan():
        nonlocal built
        built = build(source, settings)
        return built.plan

    compiled = cache.find_or_build(
        Path(source.name).stem,
        source.sha256,
        build_plan,
        settings=asdict(settings),
        versions={tensorrt.name: tensorrt.version},
        suffix=".engine",
    )
    return Engine(compiled.content, compiled.path, tensorrt, built)
