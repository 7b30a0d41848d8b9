"""Decoded images, kept beside the files they were made from."""

import hashlib
import json
from contextlib import suppress

from labkit.files import atomic, sha256, write_text


def fingerprint(top, names, about=None):
    """sha256 that stands for the names, sizes and times of these files below `top`, and for whatever `about` says."""
    together = hashlib.sha256(repr(about).encode())
    for name in names:
        facts = (top / name).stat()
        together.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return together.hexdigest()


def cached(path, digest, build):
    """(images, labels, classes) as kept in `path`, or as `build()` makes them, then kept.

    digest  what the result was made from; a kept one of another origin, or a damaged one, is made anew
    """
    kept = _read(path, digest)
    if kept is None:
        kept = build()
        with suppress(OSError):  # a folder that cannot be written: decode again next time
            _write(path, digest, *kept)
    return kept


def _seal(path):
    return path.with_name(path.name + ".sha256")


def _write(path, digest, images, labels, classes):
    from safetensors.torch import save_file

    with atomic(path) as temporary:
        save_file({"images": images, "labels": labels}, temporary, metadata={"classes": json.dumps(classes)})
        seal = f"{sha256(temporary)} {digest}\n"
    write_text(_seal(path), seal)


def _read(path, digest):
    """What `_write` kept, or None when it is missing, damaged or of another origin."""
    from safetensors import safe_open

    there = path.is_file() and _seal(path).is_file()  # a named pipe would be waited for
    if not there or _seal(path).read_bytes() != f"{sha256(path)} {digest}\n".encode():
        return None
    with safe_open(path, framework="pt") as file:
        return file.get_tensor("images"), file.get_tensor("labels"), tuple(json.loads(file.metadata()["classes"]))
