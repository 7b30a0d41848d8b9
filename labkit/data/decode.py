"""Image files to uint8 tensors, large ones on all cores, and the decoded result kept beside the data."""

import hashlib
import io
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from labkit.data.catalog import damaged
from labkit.device import usable_cores
from labkit.errors import DataError
from labkit.files import atomic, sha256, write_text

ENDINGS = (".jpg", ".jpeg", ".png")
MAX_PIXELS = 50_000_000
CHUNK = 1024  # files held in memory at a time
LARGE_BYTES = 30_000  # below this, threads wait for each other longer than a file takes to decode


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
            large = sum(len(data) for _, data in chunk) > LARGE_BYTES * len(chunk)
            for name, image in (pool.map if large else map)(decode, chunk):
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
        raise damaged(path, wanted, found, fix)


def one(path, data, fix, size):
    """One image file as uint8 (3, H, W); Pillow, because torchvision gives up its own decoder."""
    import numpy as np
    import torch
    from PIL import Image, ImageOps

    wanted = f"an intact JPEG or PNG of at most {MAX_PIXELS:,} pixels"
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            if image.width * image.height > MAX_PIXELS:
                raise damaged(path, wanted, f"{image.width} x {image.height} pixels", fix)
            ImageOps.exif_transpose(image, in_place=True)  # photographs may be stored lying on their side
            pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    except DataError:
        raise
    except Exception as error:  # a damaged file may make the decoder raise anything
        raise damaged(path, wanted, reason(error, data), fix) from error
    return pixels if size is None else squared(pixels, size)


def reason(error, data):
    """Why an image could not be decoded, without the address of a Python object."""
    start = f"starts with {data[:8].hex(' ') or 'nothing'}"
    return start if type(error).__name__ == "UnidentifiedImageError" else f"{start}; {error}"[:200]


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
