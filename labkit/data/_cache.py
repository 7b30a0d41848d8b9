"""Stores decoded images beside the files that they come from, so that these are decoded once."""

import hashlib
import json
from contextlib import suppress

from labkit.files import atomic


def fingerprint(top, names, settings):
    """Return a sha256 that changes when files or settings change.

    The digest covers the names, sizes and times of the files, not their content.

    top       the folder
    names     names of the files, relative to the folder
    settings  everything else that the decoded images depend on; its `repr` counts
    """
    digest = hashlib.sha256(repr(settings).encode())
    for name in names:
        status = (top / name).stat()
        line = f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def cached(path, digest, build):
    """Return (images, labels, facts) from the cache file `path`; build and store what is missing.

    digest  fingerprint of the source and the settings; a cache file with another digest, or a
            broken one, is built again
    build   function without arguments that returns (images, labels, facts)
    facts   what the set needs besides the tensors, such as names of classes; must fit into JSON
    """
    from safetensors.torch import save_file

    stored = None
    if path.is_file():  # opening a named pipe would wait for ever
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
    """Return (images, labels, facts) of a cache file; None if it is broken or outdated."""
    from safetensors import SafetensorError, safe_open

    with suppress(SafetensorError), safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}  # None in a file that another program wrote
        if metadata.get("digest") == digest and "facts" in metadata:
            return (
                file.get_tensor("images"),
                file.get_tensor("labels"),
                json.loads(metadata["facts"]),
            )
    return None
