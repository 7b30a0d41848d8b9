"""Image files to uint8 tensors, large ones on all cores."""

import io
from concurrent.futures import ThreadPoolExecutor

from labkit.device import usable_cores
from labkit.errors import DataError

ENDINGS = (".jpg", ".jpeg", ".png")
FIX = "put back a good copy or take it out; images of several sizes need --size 64, or load('folder:...', size=64)"
MAX_PIXELS = 50_000_000
CHUNK = 1024  # files held in memory at a time
LARGE_BYTES = 30_000  # below this, threads wait for each other longer than a file takes to decode


def read_images(top, names, *, size=None):
    """Decode the image files `names` below `top`, a folder or what stands for one in a zip, into one tensor.

    size     bring each to this many pixels a side (shorter side scaled, middle cut out); None: all must be alike
    returns  uint8 (N, 3, H, W)
    Raises   DataError naming the file
    """
    import torch

    if not names:
        raise damaged(top, "at least one image", "none")
    out = None
    with ThreadPoolExecutor(usable_cores()) as pool:
        for start in range(0, len(names), CHUNK):
            paths = [top / name for name in names[start : start + CHUNK]]
            files = [path.read_bytes() for path in paths]
            large = sum(map(len, files)) > LARGE_BYTES * len(files)
            images = (pool.map if large else map)(lambda path, data: _decoded(path, data, size), paths, files)
            for place, image in enumerate(images, start):
                if out is None:
                    out = torch.empty((len(names), *image.shape), dtype=torch.uint8)
                if image.shape != out.shape[1:]:
                    raise damaged(top / names[place], f"height and width {(*out.shape[2:],)}", f"{(*image.shape[1:],)}")
                out[place] = image
    return out


def damaged(path, expected, found, fix=FIX):
    """The error of an image file, or of a folder of them, that is not what it should be."""
    return DataError(f"{path} is damaged or not what its name says.", expected=expected, found=found, fix=fix)


def _decoded(path, data, size):
    """One image file as uint8 (3, H, W); Pillow, because torchvision gives up its own decoder."""
    import numpy as np
    import torch
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise ValueError(f"{opened.width} x {opened.height} pixels")
            image = ImageOps.exif_transpose(opened).convert("RGB")  # photographs may be stored lying on their side
            if size is not None:
                image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
            return torch.from_numpy(np.array(image)).permute(2, 0, 1)
    except Exception as error:  # a damaged file may make the decoder raise anything
        reason = f"{error}".partition(" <")[0][:200]  # without the address of a Python object
        found = f"{reason}; it starts with {data[:8].hex(' ') or 'nothing'}"
        raise damaged(path, f"an intact JPEG or PNG of at most {MAX_PIXELS:,} pixels", found) from error
