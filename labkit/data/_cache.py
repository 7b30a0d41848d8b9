"""Stores decoded images in a cache file beside the picture files, so that each is decoded only
once.
"""

import hashlib
import json
from contextlib import suppress

from labkit.files import atomic


def fingerprint(top, names, settings):
    """Return a sha256, as hex digits, that changes when files or settings change.

    The digest covers the names, sizes and times of the files, not their content.

    top       the folder
    names     names of the files, relative to the folder
    settings  any value with a stable `repr`, which holds everything else that the decoded images
              depend on, such as their size in pixels
    """
    digest = hashlib.sha256(repr(settings).encode())
    for name in names:
        status = (top / name).stat()
        line = f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def cached(path, digest, build):
    """Return (images, labels, facts) from the cache file `path`, or build them and write the file.

    They are built if the file is missing or broken, or if it stores another digest than `digest`.
    If the file cannot be written, they are returned all the same.

    digest  `fingerprint` of the files and settings that the images depend on
    build   function without arguments that returns (images, labels, facts). Images and labels are
            tensors. Facts are a value that JSON can hold, for example the names of the classes
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
    """Return (images, labels, facts) of a cache file; None where it is broken or outdated.

    A file is outdated if it stores another digest than `digest`.
    """
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
