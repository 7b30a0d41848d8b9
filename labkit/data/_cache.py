"""Decoded images, kept beside the files they were made from."""

import hashlib
import json
from contextlib import suppress

from labkit.files import atomic


def fingerprint(top, names, about):
    """sha256 that stands for the names, sizes and times of these files below `top`, and for whatever `about` says."""
    together = hashlib.sha256(repr(about).encode())
    for name in names:
        facts = (top / name).stat()
        together.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return together.hexdigest()


def cached(path, digest, build):
    """(images, labels, classes) as kept in `path`, or as `build()` makes them, then kept.

    digest  what the result was made from; a kept one of another origin, or one that cannot be read, is made anew
    """
    from safetensors.torch import save_file

    kept = _read(path, digest) if path.is_file() else None  # a named pipe would be waited for
    if kept is None:
        kept = images, labels, classes = build()
        about = {"classes": json.dumps(classes), "digest": digest}
        with suppress(OSError), atomic(path) as temporary:  # a folder that cannot be written: decode again next time
            save_file({"images": images, "labels": labels}, temporary, metadata=about)
    return kept


def _read(path, digest):
    """What was kept, or None when it is damaged or of another origin."""
    from safetensors import SafetensorError, safe_open

    with suppress(SafetensorError), safe_open(path, framework="pt") as file:
        about = file.metadata()
        if about["digest"] == digest:
            return file.get_tensor("images"), file.get_tensor("labels"), tuple(json.loads(about["classes"]))
    return None
