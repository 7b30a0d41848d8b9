"""The engine of an ONNX file: the one that this machine built before for the same GPU and versions,
or else a new one.

The name of the file says which it is (`labkit.engines.cache`), so this holds on a machine without a
GPU too.
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

    plan     its bytes
    path     where it lies
    library  the `Library` that built it and that runs it
    built    the builder's `Built`; None for an engine that was built before
    """

    plan: bytes
    path: Path
    library: Library
    built: Built | None = None

    @property
    def how(self) -> str:
        """Return "built" for an engine that was built just now, "reused" for one that was built
        before.
        """
        return "reused" if self.built is None else "built"


def obtain(onnx: Any, settings: Settings | None = None) -> Engine:
    """Return the `Engine` of an ONNX file: the one that was built before, or else a new one.

    onnx      a path, or a `Source`
    settings  `Settings`
    Raises    LabError for a file that is no sound ONNX file, or that TensorRT rejects; Unavailable
              without TensorRT
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
