"""The engine of an ONNX file: the one that was built before, if `_trusted` vouches for it, else a new one.

All of this is checked before TensorRT sees a byte, so it holds on a machine without a GPU too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.engines import _trusted
from labkit.engines.tensorrt.builder import Built, Settings, Source, build
from labkit.engines.tensorrt.libraries import library
from labkit.files import artifacts, short_digest
from labkit.ledger.rows import EngineFile


@dataclass(frozen=True)
class Engine:
    """An engine file that may be loaded: its bytes, where it lies, its row, and how it came about.

    how    "reused", "built", or "built again: " and why the file that lay there was refused
    built  what the builder told; None when it was reused
    """

    plan: bytes
    path: Path
    row: EngineFile
    how: str
    built: Built | None = None


def obtain(onnx: Any, settings: Settings | None = None, *, folder: str | Path | None = None) -> Engine:
    """The `Engine` of an ONNX file: the one that was built before, if it can be trusted, else a new one.

    onnx    a path, or a `Source`
    folder  where engine files lie; None: artifacts/engines
    """
    source = Source.read(onnx)
    settings = settings or Settings()
    found = library()
    about = {"onnx_sha256": source.sha256, "settings": settings.as_json(), **_trusted.facts(found.name, found.version)}
    choice = short_digest(settings.as_json())[:6]
    path = Path(folder or artifacts() / "engines") / f"{Path(source.name).stem}-{source.sha256[:10]}-{choice}.engine"
    new = []

    def built():
        new.append(build(source, settings))
        return new[0].plan

    plan, row, how = _trusted.obtain(path, built, **about)
    return Engine(plan, path, row, how, *new)
