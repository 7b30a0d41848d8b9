"""manifest.json: the sizes and sha256 of a set's files, written when they were known to be good."""

import hashlib
import json
import re
from pathlib import Path

from labkit.data.archives import unsafe
from labkit.data.catalog import damaged
from labkit.files import sha256, write_json

NAME = "manifest.json"


def write(folder, *, files, **facts):
    """Write the manifest of `files` (paths relative to `folder`) together with `facts` about them."""
    listed = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in files}
    write_json(folder / NAME, {**facts, "files": listed})


def read(folder, fix):
    """{file name: (bytes, sha256)} of `folder`, or None when it has no manifest."""
    path = Path(folder) / NAME
    if not path.exists():
        return None
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise damaged(path, "JSON", str(error), fix) from error
    files = page.get("files") if isinstance(page, dict) else None
    if not isinstance(files, dict) or not files:
        raise damaged(path, 'the key "files" with a name, size and sha256 each', f"{str(page)[:60]}", fix)
    return {name: entry(path, name, value, fix) for name, value in files.items()}


def entry(path, name, value, fix):
    """(bytes, sha256) of one line of a manifest, checked."""
    size, digest = (value.get("bytes"), value.get("sha256")) if isinstance(value, dict) else (None, None)
    good = type(size) is int and size >= 0 and isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)
    if not good or unsafe(name):
        wanted = "a relative name with bytes (a whole number) and sha256 (64 hex digits)"
        raise damaged(path, wanted, f"{name!r}: {str(value)[:100]}", fix)
    return size, digest


def check(folder, names, listed, fix):
    """Compare files with their manifest; returns one sha256 that stands for all of them.

    names   files to check, relative to `folder`
    listed  what `read` returned
    """
    together = hashlib.sha256()
    for name in names:
        path = Path(folder) / name
        if name not in listed:
            raise damaged(Path(folder) / NAME, f"a line for {name}", f"only {', '.join(listed)}"[:200], fix)
        size, digest = listed[name]
        if not path.is_file():
            raise damaged(path, f"a file of {size:,} bytes, sha256 {digest}", "no such file", fix)
        if path.stat().st_size != size:
            raise damaged(path, f"{size:,} bytes", f"{path.stat().st_size:,} bytes", fix)
        if (got := sha256(path)) != digest:
            raise damaged(path, f"sha256 {digest}", f"sha256 {got}", fix)
        together.update(digest.encode())
    return together.hexdigest()
