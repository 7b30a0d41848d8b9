"""Engine files are programs: TensorRT runs what is in them. So only those are loaded that this machine built itself.

Beside each file lies a sidecar that says what it is; the ledger holds the same row. A file is loaded when its bytes
have the sha256 of both, and model, settings, library, GPU and driver are those of today. Else it is built again. All of
this is checked before TensorRT sees a byte, so it holds on a machine without a GPU too.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from labkit import ledger
from labkit.engines.tensorrt.builder import Built, Settings, Source, build
from labkit.engines.tensorrt.libraries import facts, library
from labkit.errors import LabError
from labkit.files import artifacts, atomic, write_json
from labkit.ledger.rows import EngineFile

LARGEST_SIDECAR = 100_000  # bytes
CACHE = "timing cache"  # stands for the model of the file that holds measured times


class Untrusted(LabError):
    """An engine file that must not be loaded: it is not what was built here, or not for this machine as it is now."""


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


def sidecar(path):
    """Where the sidecar of an engine file lies."""
    return Path(path).with_name(Path(path).name + ".json")


def keep(path, data, *, onnx_sha256, settings, facts):
    """Write a file that TensorRT made, its row and its sidecar; returns the `EngineFile` row.

    The sidecar is written last: a kill before it leaves a file that nobody loads.
    """
    path = Path(path)
    row = EngineFile(
        sha256=hashlib.sha256(data).hexdigest(),
        file=path.name,
        bytes=len(data),
        onnx_sha256=onnx_sha256,
        settings=settings,
        **facts.asdict(),
        built_utc=ledger.now(),
    )
    ledger.add(row)
    with atomic(path) as temporary:
        temporary.write_bytes(data)
    write_json(sidecar(path), asdict(row))
    return row


def vouched(path, *, onnx_sha256, settings, facts):
    """(bytes, row) of a file that may be loaded; raises `Untrusted` with everything that does not match.

    The bytes that were checked are the bytes that come back: the file is read once.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Untrusted(f"There is no engine file {path.name}.", found=str(error)) from error
    row, digest = told(path), hashlib.sha256(data).hexdigest()
    wanted = {"onnx_sha256": onnx_sha256, "settings": settings, **facts.asdict()}
    wrong = [] if row.sha256 == digest else [f"sha256: the file has {digest[:12]}, the sidecar says {row.sha256[:12]}"]
    wrong += [
        f"{name}: built for {getattr(row, name)}, here is {value}"
        for name, value in wanted.items()
        if getattr(row, name) != value
    ]
    if row not in ledger.find(EngineFile, sha256=row.sha256):
        wrong.append("the ledger knows no such file: it was not built here")
    if wrong:
        raise Untrusted(
            f"{path.name} is not loaded.",
            expected="a file built here, of this model, for this GPU, driver and library",
            found="; ".join(wrong),
            fix="nothing to do: it is built again",
        )
    return data, row


def told(path):
    """What the sidecar of a file says, as an `EngineFile`."""
    place = sidecar(path)
    try:
        if place.stat().st_size > LARGEST_SIDECAR:
            raise ValueError("it is far too large")
        row = EngineFile(**json.loads(place.read_text(encoding="utf-8")))
        ledger.check_types(row)
    except (OSError, ValueError, TypeError, LabError, RecursionError) as error:
        raise Untrusted(
            f"{path.name} is not loaded: nothing says what it is.",
            expected=f"a sidecar {place.name} with {', '.join(field.name for field in fields(EngineFile))}",
            found=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            fix="nothing to do: it is built again",
        ) from error
    return row


def obtain(onnx, settings=None, *, folder=None):
    """The `Engine` of an ONNX file: the one that was built before, if it can be trusted, else a new one.

    onnx    a path, or a `Source`
    folder  where engine files lie; None: artifacts/engines
    """
    source, settings, today = Source.read(onnx), settings or Settings(), facts(library())
    about = {"onnx_sha256": source.sha256, "settings": settings.as_json(), "facts": today}
    choice = hashlib.sha256(settings.as_json().encode()).hexdigest()[:6]
    path = Path(folder or artifacts() / "engines") / f"{Path(source.name).stem}-{source.sha256[:10]}-{choice}.engine"
    try:
        plan, row = vouched(path, **about)
        return Engine(plan, path, row, "reused")
    except Untrusted as error:
        how = f"built again: {error.found}" if path.exists() else "built"
    built = build_with_cache(source, settings, today, path.parent)
    return Engine(built.plan, path, keep(path, built.plan, **about), how, built)


def build_with_cache(source, settings, today, folder):
    """Build, with the times that earlier builds on this machine measured, where the library keeps such times."""
    path = folder / "timing.cache"
    about = {"onnx_sha256": CACHE, "settings": "{}", "facts": today}
    try:
        cache, _ = vouched(path, **about)
    except Untrusted:
        cache = None
    built = build(source, settings, timing_cache=cache)
    if built.timing_cache:
        keep(path, built.timing_cache, **about)
    return built
