"""Decodes picture files into one uint8 tensor, and reports the files that give no picture."""

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
LARGE_BYTES = 30_000  # below this mean size, threads cost more time than they save
# largest share of the pictures that may be left out: without more of them, it is another set
MOST_UNUSABLE = 0.25
# largest share of all files that may be no pictures: with more, the folder is probably a wrong one
MOST_NO_PICTURES = 0.75
NAMED = 5  # most files of each kind that a message names


def read_images(top, names, *, size=None, left_out=None):
    """Decode picture files into one tensor, uint8 (N, 3, H, W).

    top       the folder, or a folder inside a zip (`zipfile.Path`)
    names     names of the files relative to `top`
    size      scale the shorter side of each image to so many pixels and cut out the middle square;
              None: all images must have the same size
    left_out  a dictionary that receives {name: `NoPicture`} of each file that gives no picture; the
              tensor has no row for such a file. None: such a file is an error
    Raises    DataError, which names the file
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
    """Yield (name, result) of each file in order; the result is a tensor or a `NoPicture`.

    The tensor holds the pixels, uint8 (3, H, W). At most `CHUNK` files are in memory at a time.
    """
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
    """Return the pixels of a picture file's bytes, uint8 (3, H, W), or else a `NoPicture`.

    The `NoPicture` says why the file gives no picture. It is returned, not raised.

    data  the bytes
    size  as in `read_images`
    """
    try:
        return pixels_of(data, size)
    except NoPicture as error:
        return error


@contextmanager
def _without_warnings():
    """Silence Pillow's warnings about sizes and EXIF data.

    They are not needed: `pixels_of` raises a `NoPicture` for a picture that is too large, and
    leaves a picture with broken EXIF data as it is.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def unfit(path, expected, found, fix=FIX, problem="cannot be used"):
    """Return the `DataError` of a picture file, or of a folder of pictures, that cannot be used.

    expected  what should be there, in words
    found     what is there, in words
    fix       what the user can do about it
    problem   end of the sentence that begins with the path
    """
    return DataError(f"{path} {problem}.", expected=expected, found=found, fix=fix)


def unusable(path, reason):
    """Return the `DataError` of one file that gives no picture.

    reason  the `NoPicture` of the file
    """
    problem = "is damaged" if reason.kind == "damaged" else "gives no picture"
    return unfit(path, f"an intact picture: {', '.join(FORMATS)}", str(reason), problem=problem)


def _several_sizes(path, image, images):
    """Return the `DataError` of an image whose size differs from those of the images before it.

    path    path of the image's file
    image   the image, (3, H, W)
    images  the images before it, (N, 3, H, W)
    """
    return unfit(
        path,
        f"height and width {tuple(images.shape[-2:])}",
        f"height and width {tuple(image.shape[-2:])}",
        "give a size, and all are brought to it: --size 64, or load('folder:...', size=64)",
        problem="has another size than the pictures before it",
    )


def require_few(top, left_out, total):
    """Raise DataError where too many files of a folder give no picture.

    There are two limits. Of the files that were meant as pictures, at most `MOST_UNUSABLE` (25 %)
    may give none. Of all files, at most `MOST_NO_PICTURES` (75 %) may be files that were not meant
    as pictures.

    top       the folder
    left_out  {name: `NoPicture`} of the files that give no picture
    total     number of all files
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
    """Return whether a file that gives no picture was meant as one.

    That is so if its name has the ending of a picture file, or if its content begins like one.

    reason  the `NoPicture` of the file
    """
    return reason.kind == "damaged" or name.lower().endswith(ENDINGS)


def summary(left_out, total):
    """Return a text that says how many files are left out, with a line for each kind of reason.

    The text is "" where `left_out` is empty.

    left_out  {name: `NoPicture`}
    total     number of all files
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
    """Print a message on stderr, but the same message only once in this process.

    A folder may be read several times.
    """
    print(text, file=sys.stderr)
