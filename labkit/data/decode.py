"""Image files to uint8 tensors, on all cores, and the decoded result kept beside the data."""

import hashlib
import itertools
import json
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from labkit.data.catalog import damaged
from labkit.device import usable_cores
from labkit.files import atomic, sha256, write_text

ENDINGS = (".jpg", ".jpeg", ".png")
MAX_SIDE = 20_000
CHUNK = 1024  # files held in memory while they wait for a core


def images(source, named, order, fix, *, size=None):
    """Decode image files into one tensor.

    named    yields (file name, bytes) in any order
    order    all file names; image i of the result is order[i]
    size     bring each to this many pixels a side (shorter side scaled, middle cut out); None: all must be alike
    returns  uint8 (N, 3, H, W)
    Raises   DataError naming the file
    """
    import torch

    def decode(pair):
        name, data = pair
        return name, one(f"{source}/{name}", data, fix, size)

    out, places, pairs = None, {name: place for place, name in enumerate(order)}, iter(named)
    with ThreadPoolExecutor(usable_cores()) as pool:
        while chunk := list(itertools.islice(pairs, CHUNK)):
            for name, image in pool.map(decode, chunk):
                if out is None:
                    out = torch.empty((len(order), *image.shape), dtype=torch.uint8)
                same_shape(f"{source}/{name}", image.shape, out.shape[1:], fix)
                out[places.pop(name)] = image
    if places:
        raise damaged(f"{source}/{next(iter(places))}", f"{len(order)} images", f"{len(places)} are not there", fix)
    return out


def same_shape(path, shape, first, fix):
    if shape != first:
        wanted, found = (f"{width} x {height} pixels" for _, height, width in (first, shape))
        raise damaged(path, wanted, found, f"{fix}; or bring all to one size with load(..., size=64)")


def one(path, data, fix, size):
    """One image file as uint8 (3, H, W)."""
    import torch
    from torchvision.io import ImageReadMode, decode_image

    wanted = f"an intact JPEG or PNG of at most {MAX_SIDE:,} pixels a side"
    try:
        if max(dimensions(data)) > MAX_SIDE:
            raise damaged(path, wanted, "{} x {} pixels".format(*dimensions(data)), fix)
        image = decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)
    except (RuntimeError, ValueError, struct.error) as error:
        raise damaged(path, wanted, str(error).splitlines()[0][:200], fix) from error
    return image if size is None else squared(image, size)


def dimensions(data):
    """(width, height) as an image file states them; ValueError when it is neither JPEG nor PNG."""
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return struct.unpack(">II", data[16:24])
    if data[:3] != b"\xff\xd8\xff":
        raise ValueError(f"starts with {data[:8].hex(' ') or 'nothing'}: neither JPEG nor PNG")
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        kind, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # the frame header
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 1 if kind == 0xFF else 2 + length
    raise ValueError("a JPEG without a frame header: cut short or damaged")


def squared(image, size):
    """Scale the shorter side to `size` and cut out the middle; uint8 (3, H, W) to (3, size, size)."""
    from torch.nn.functional import interpolate

    _, height, width = image.shape
    scale = size / min(height, width)
    shape = [max(size, round(height * scale)), max(size, round(width * scale))]
    scaled = interpolate(image[None].float(), shape, mode="bilinear", antialias=True)[0]
    top, left = (shape[0] - size) // 2, (shape[1] - size) // 2
    return scaled[:, top : top + size, left : left + size].round().clamp(0, 255).byte()


def fingerprint(source):
    """sha256 that stands for a file's bytes, or for the names, sizes and times of all files of a folder."""
    from labkit.data.archives import walk

    if Path(source).is_file():
        return sha256(source)
    together = hashlib.sha256()
    for path in sorted(walk(source)):
        facts = path.stat()
        together.update(f"{path.relative_to(source).as_posix()}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return together.hexdigest()


def cached(path, digest, build):
    """(images, labels, classes) as kept in `path`, or as `build()` makes them, then kept.

    digest  what the result was made from; a kept one of another origin, or a damaged one, is made anew
    """
    path = Path(path)
    kept = read_cache(path, digest)
    if kept is None:
        kept = build()
        with suppress(OSError):  # a folder that cannot be written: decode again next time
            write_cache(path, digest, *kept)
    return kept


def sidecar(path):
    return path.with_name(path.name + ".sha256")


def write_cache(path, digest, images, labels, classes):
    from safetensors.torch import save_file

    with atomic(path) as temporary:
        metadata = {"digest": digest, "classes": json.dumps(classes)}
        save_file({"images": images, "labels": labels}, temporary, metadata=metadata)
        hashed = sha256(temporary)
    write_text(sidecar(path), hashed + "\n")


def read_cache(path, digest):
    """What `write_cache` kept, or None when it is missing, damaged or of another origin."""
    from safetensors import safe_open

    try:
        if sidecar(path).read_text(encoding="ascii").strip() != sha256(path):
            return None
    except (OSError, ValueError):
        return None
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        if metadata["digest"] != digest:
            return None
        return file.get_tensor("images"), file.get_tensor("labels"), tuple(json.loads(metadata["classes"]))
