"""Picture files to one uint8 tensor, large ones on all cores; and what to do about files that
give no picture.
"""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial

from labkit.data._picture import ENDINGS, FORMATS, NoPicture, pixels_of
from labkit.device import usable_cores
from labkit.errors import DataError

FIX = "put back a good copy or take it out"
CHUNK = 64  # files held in memory at a time
LARGE_BYTES = 30_000  # below this, threads wait for each other longer than a file takes to decode
# of what is called or looks like a picture: more left out, and the set is another one
MOST_UNUSABLE = 0.25
# of all files: where more are no pictures, the folder is probably the wrong one
MOST_NO_PICTURES = 0.75
NAMED = 5  # files of each kind that a message names


def read_images(top, names, *, size=None, left_out=None):
    """Decode the picture files `names` below `top`, a folder or what stands for one in a zip, into
    one tensor.

    size      bring each to this many pixels a side (shorter side scaled, middle cut out); None: all
              must be alike
    left_out  a dict to which {name: `NoPicture`} is added for each file that gives none; None: that
              is an error
    returns   uint8 (N, 3, H, W), of the names that are not in `left_out`
    Raises    DataError naming the file
    """
    import torch

    images = None
    count = 0
    for name, image in _decoded(top, names, size):
        # a file without a picture is left out; the others have the size of the first
        if isinstance(image, NoPicture):
            if left_out is None:
                raise unusable(top / name, image) from image
            left_out[name] = image
            continue
        if images is None:
            images = torch.empty((len(names), *image.shape), dtype=torch.uint8)
        if image.shape != images.shape[1:]:
            raise _several_sizes(top / name, image, images)
        images[count] = image
        count += 1
    if images is None:
        raise unfit(top, "at least one picture", summary(left_out or {}, len(names)) or "none", FIX)
    return images[:count]


def _decoded(top, names, size):
    """Yield (name, its pixels or a `NoPicture`) in order, with few files in memory at a time."""
    with ThreadPoolExecutor(usable_cores()) as pool, _without_warnings():
        for start in range(0, len(names), CHUNK):
            chunk = names[start : start + CHUNK]
            files = [(top / name).read_bytes() for name in chunk]
            decode = partial(_pixels_or_reason, size=size)
            if sum(map(len, files)) > LARGE_BYTES * len(files):
                images = pool.map(decode, files)
            else:
                images = map(decode, files)
            yield from zip(chunk, images, strict=True)


def _pixels_or_reason(data, *, size):
    try:
        return pixels_of(data, size)
    except NoPicture as error:
        return error


@contextmanager
def _without_warnings():
    """Silence Pillow's warnings, of sizes and of EXIF data: what matters is refused with its
    reason.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def unfit(path, expected, found, fix=FIX, problem="cannot be used"):
    """Return the error of a picture file, or of a folder of them, that is not what it should be.

    problem  goes on from the path: "cannot be used"
    """
    return DataError(f"{path} {problem}.", expected=expected, found=found, fix=fix)


def unusable(path, reason):
    """Return the error of one file that gives no picture; reason: a `NoPicture`."""
    problem = "is damaged" if reason.kind == "damaged" else "gives no picture"
    return unfit(path, f"an intact picture: {', '.join(FORMATS)}", str(reason), problem=problem)


def _several_sizes(path, image, images):
    return unfit(
        path,
        f"height and width {tuple(images.shape[-2:])}",
        f"height and width {tuple(image.shape[-2:])}",
        "give a size, and all are brought to it: --size 64, or load('folder:...', size=64)",
        problem="has another size than the pictures before it",
    )


def require_few(top, left_out, total):
    """Refuse a folder of which too much would be left out.

    left_out  {name: `NoPicture`} of its `total` files
    """
    unusable_pictures = [
        name for name, reason in left_out.items() if _meant_as_picture(name, reason)
    ]
    no_pictures = len(left_out) - len(unusable_pictures)
    pictures = total - no_pictures
    if len(unusable_pictures) > MOST_UNUSABLE * pictures or no_pictures > MOST_NO_PICTURES * total:
        raise unfit(
            top,
            f"pictures: at most {MOST_UNUSABLE:.0%} of them unusable, at most "
            f"{MOST_NO_PICTURES:.0%} other files",
            summary(left_out, total),
            "put back good copies, or take those files out of the folder",
            problem="holds too many files that give no picture",
        )


def _meant_as_picture(name, reason):
    return reason.kind == "damaged" or name.lower().endswith(ENDINGS)


def summary(left_out, total):
    """Say how many files are left out, and below it a line per kind of reason with their names;
    "" without any.
    """
    if not left_out:
        return ""
    files_by_kind = {}
    for name, reason in left_out.items():
        file = f"{name} ({reason.detail})" if reason.detail else name
        files_by_kind.setdefault(reason.kind, []).append(file)
    lines = [f"{len(left_out):,} of {total:,} files left out"]
    for kind, files in files_by_kind.items():
        line = f"    {kind}: {', '.join(files[:NAMED])}"
        if len(files) > NAMED:
            line = f"{line} and {len(files) - NAMED:,} more"
        lines.append(line)
    return "\n".join(lines)


@lru_cache(maxsize=1024)
def tell(text):
    """Say something about a folder on stderr, once in this process however often the folder is
    read.
    """
    print(text, file=sys.stderr)
