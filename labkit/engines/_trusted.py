"""Engine files are programs: an engine runs what is in them. So only those are loaded that this machine built itself.

The ledger holds a row for each file that was built here. A file is loaded when its bytes have the sha256 of such a row,
and model, settings, library, GPU, its compute capability and driver of the row are those of today. Else it is built
again.
"""

import hashlib

from labkit import device as devices
from labkit import ledger
from labkit.files import atomic
from labkit.ledger.rows import EngineFile


class Untrusted(Exception):
    """Why an engine file must not be loaded: it is not what was built here, or not for this machine as it is now."""


def facts(library, version):
    """What a file depends on beside its model and settings, as fields of `rows.EngineFile`: a change means a new build.

    gpu, compute_capability (such as "8.9") and driver are None where there is no GPU.
    """
    machine = devices.describe()
    gpu = {"gpu": machine.gpu, "compute_capability": devices.compute_capability(), "driver": machine.gpu_driver}
    return {"library": library, "library_version": version, **gpu}


def obtain(path, build, **about):
    """(bytes, row, "reused") of a file that may be loaded; else of what `build()` returns, with the reason.

    about  as in `vouched`
    """
    try:
        return *vouched(path, **about), "reused"
    except Untrusted as error:
        how = f"built again: {error}" if path.exists() else "built"
    data = build()
    return data, keep(path, data, **about), how


def keep(path, data, **about):
    """Write a file that was built here, and its `EngineFile` row, which comes back; `about`: as in `vouched`.

    A kill between the two leaves a row without a file, or a file that the row does not fit: neither is loaded.
    """
    digest = hashlib.sha256(data).hexdigest()
    row = EngineFile(sha256=digest, file=path.name, size_bytes=len(data), built_utc=ledger.now(), **about)
    ledger.add(row)
    with atomic(path) as temporary:
        temporary.write_bytes(data)
    return row


def vouched(path, **about):
    """(bytes, row) of a file that may be loaded; raises `Untrusted` with everything that does not match.

    about  what the row must say: onnx_sha256, settings (as JSON) and the facts of this machine
    The bytes that were checked are the bytes that come back: the file is read once.
    """
    if not path.is_file():
        raise Untrusted("there is no such file")
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    rows = ledger.find(EngineFile, file=path.name, sha256=digest)
    if not rows:
        raise Untrusted(f"sha256: the file has {digest[:12]}, and none such was built here")
    built = rows[0]
    wrong = [
        f"{name}: built for {getattr(built, name) or 'none'}, here is {here or 'none'}"
        for name, here in about.items()
        if getattr(built, name) != here
    ]
    if wrong:
        raise Untrusted("; ".join(wrong))
    return data, built
