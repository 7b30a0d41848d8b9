"""Decoded images, kept beside the files they were made from."""

import hashlib
import json
from contextlib import suppress

from labkit.files import atomic


def fingerprint(top, names, settings):
    """Return a sha256 that stands for the names, sizes and times of files, and for how they are
    read.

    top       the folder
    names     of the files below it
    settings  whatever the result depends on besides; its `repr` counts
    """
    digest = hashlib.sha256(repr(settings).encode())
    for name in names:
        status = (top / name).stat()
        line = f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def cached(path, digest, build):
    """Return (images, labels, facts) as stored in `path`; else as `build()` makes them, which is
    then stored.

    digest  stands for what the result is made from; a stored one of another origin, or one that
            cannot be read, is made anew
    facts   whatever JSON can hold, such as the names of the classes
    """
    from safetensors.torch import save_file

    stored = None
    if path.is_file():  # a named pipe would be waited for
        stored = _read(path, digest)
    if stored is not None:
        return stored
    images, labels, facts = build()
    metadata = {"facts": json.dumps(facts), "digest": digest}
    # a folder that cannot be written: decode again next time
    with suppress(OSError), atomic(path) as temporary:
        save_file({"images": images, "labels": labels}, temporary, metadata=metadata)
    return images, labels, facts


def _read(path, digest):
    """Return what is stored, or None when it is damaged or of another origin."""
    from safetensors import SafetensorError, safe_open

    with suppress(SafetensorError), safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        if metadata["digest"] == digest and "facts" in metadata:
            return (
                file.get_tensor("images"),
                file.get_tensor("labels"),
                json.loads(metadata["facts"]),
            )
    return None
