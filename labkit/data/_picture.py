"""Decodes one picture file of any kind into upright RGB pixels of 8 bits.

The content of a file decides its kind, not its name. There are four rules, which
docs/your-own-network.md repeats for readers who decode pictures in a program of their own. A
photograph stored lying on its side is turned upright. Transparent pixels are put on white. Of grey
or colours with 16 bits (or grey with 12), the upper 8 bits are kept. A JPEG above `MAX_PIXELS` is
decoded at a half, a quarter or an eighth of its size.
"""

import io
import re

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"BM", b"II*\0", b"MM\0*", b"GIF8")
MAX_PIXELS = 50_000_000
MAX_JPEG_PIXELS = 250_000_000  # decoding takes up to 6 bytes per pixel for the coefficients
RULES = "3"  # a change makes every cache of decoded images outdated: change it with the pixels

_ORIENTATION = 0x0112  # of EXIF
_TURNS = (
    "FLIP_LEFT_RIGHT",
    "ROTATE_180",
    "FLIP_TOP_BOTTOM",
    "TRANSPOSE",
    "ROTATE_270",
    "TRANSVERSE",
    "ROTATE_90",
)
_BITS_PER_SAMPLE = 258  # a tag of TIFF
_PHOTOMETRIC = 262  # a tag of TIFF
_WHITE_IS_ZERO = 0  # a value of the tag `_PHOTOMETRIC`


class NoPicture(Exception):
    """The reason why a file gives no picture.

    kind    the reason without details, such as "damaged": files are grouped by it
    detail  the details of this file, such as "6000 x 9000 pixels"; "" where there are none
    """

    def __init__(self, kind, detail=""):
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


def pixels_of(data, size):
    """Decode the bytes of a picture file into a uint8 tensor (3, H, W).

    size    scale the shorter side to so many pixels and cut out the middle square; None: keep the
            size
    Raises  NoPicture
    """
    import numpy as np
    import torch
    from PIL import Image, ImageOps

    try:
        image = _in_rgb(_decoded(data, shrink=size is not None))
    except (NoPicture, MemoryError):
        raise
    except Exception as error:  # a damaged file may make a decoder raise anything
        raise _reason(error, data) from error
    if size is not None:
        image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _decoded(data, *, shrink):
    """Return the Pillow image of a file's bytes, neither turned nor converted to RGB.

    A file with several images gives the first.

    shrink  True: a large JPEG may be decoded at a smaller size
    Raises  NoPicture for an image of more than `MAX_PIXELS`
    """
    from PIL import Image, JpegImagePlugin

    # Image.open would refuse a large JPEG before it can be decoded at a smaller size
    if data.startswith(BEGINNINGS[0]):
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(data))
        if shrink and MAX_PIXELS < image.width * image.height <= MAX_JPEG_PIXELS:
            _halve_until_it_fits(image)
    else:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    if image.width * image.height > MAX_PIXELS:
        raise _too_large(f"{image.width} x {image.height} pixels")
    if [tile.args for tile in image.tile] == ["RGB;16B"] and "transparency" in image.info:
        # Pillow keeps the upper 8 bits of each colour, but all 16 of the one that stands for
        # transparent
        image.info["transparency"] = tuple(value >> 8 for value in image.info["transparency"])
    image.load()
    return image


def _halve_until_it_fits(image):
    """Let Pillow decode a large JPEG at 1/2, 1/4 or 1/8 of its size.

    It is the largest of these sizes that has at most `MAX_PIXELS` pixels.
    """
    for factor in (2, 4, 8):
        width = image.width // factor
        height = image.height // factor
        if width * height <= MAX_PIXELS:
            image.draft("RGB", (max(width, 1), max(height, 1)))
            return


def _in_rgb(image):
    """Return a Pillow image of any mode as an upright RGB image."""
    from PIL import Image

    tags = getattr(image, "tag_v2", {})
    upright = _upright(image)
    # Grey of 16 bits keeps its upper 8; a mode without a known black and white is refused;
    # transparent pixels are put on white.
    if upright.mode.startswith("I;16") or (upright.mode == "I" and image.format == "PNG"):
        depth = tags.get(_BITS_PER_SAMPLE, (16,))[0]
        upright = _upper_bits(upright, depth, negative=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)
    if upright.mode in ("I", "F", "LAB"):
        raise NoPicture(
            f"the mode {upright.mode}, which does not say what is black and what is white"
        )
    if upright.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in upright.info:
        if upright.mode == "La":
            upright = upright.convert("LA")
        upright = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright)
    return upright.convert("RGB")


def _upright(image):
    """Return the image turned upright, as its EXIF data says.

    An image without EXIF data, or with EXIF data that cannot be read, is returned as it is.
    """
    from PIL import Image

    try:
        turn = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # what cameras and editors write there may make the reader raise anything
        return image
    if turn not in range(2, 9):
        return image
    return image.transpose(Image.Transpose[_TURNS[turn - 2]])


def _upper_bits(image, depth, *, negative):
    """Return a grey image of `depth` bits as a grey image of 8 bits, which keeps the upper 8 bits.

    Pixels with the value that the file declares transparent become white.

    image     Pillow image
    negative  True: in the file 0 is white
    """
    import numpy as np
    from PIL import Image

    pixels = np.asarray(image).astype(np.int64)
    upper_bits = pixels >> (depth - 8)
    if negative:
        upper_bits = 255 - upper_bits
    transparent = image.info.get("transparency")
    grey = np.where(pixels == transparent, 255, upper_bits)
    return Image.fromarray(grey.astype(np.uint8))


def _too_large(detail):
    """Return the `NoPicture` of an image that is too large.

    detail  the size of the image, in words
    """
    return NoPicture(
        f"too large: above {MAX_PIXELS:,} pixels, or {MAX_JPEG_PIXELS:,} in a JPEG", detail
    )


def _reason(error, data):
    """Return the `NoPicture` that says why a decoder raised `error` for the bytes `data`."""
    from PIL import Image

    # Pillow's limit for a file that is small and claims much
    if isinstance(error, Image.DecompressionBombError):
        return _too_large(f"{re.search('[0-9]+', str(error))[0]} pixels")
    if not data:
        return NoPicture("empty")
    if not data.startswith(BEGINNINGS):
        return NoPicture(f"none of {', '.join(FORMATS)}", f"it starts with {data[:8].hex(' ')}")
    # without the address of a Python object
    return NoPicture("damaged", f"{error}".partition(" <")[0][:200])
