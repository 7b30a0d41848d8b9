"""Look up the engine of an ONNX file among those that this machine built before, or build it.

The name of an engine file stands for its model, settings, GPU and versions
(`labkit.engines.cache`), so this works on a machine without a GPU too.
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

    plan     the bytes of the engine
    path     where the file lies
    library  the `Library` that built the engine and that runs it
    built    the `Built` of the builder; None for an engine that was built before
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
    """Return the `Engine` of an ONNX file: the one that was built before, or else a new one.

    onnx      the path of the file, or its `Source`
    settings  what the engine is built for; None: the defaults of `Settings`
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
