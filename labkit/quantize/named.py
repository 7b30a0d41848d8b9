"""Quantization from names, as the command line has them."""

import math
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from labkit.errors import LabError, require_known
from labkit.export import checked
from labkit.export.runtime import notes
from labkit.quantize.automatic import automatic
from labkit.quantize.calibration import FEWEST, Calibration
from labkit.quantize.dynamic import weight_only
from labkit.quantize.floats import to_fp16
from labkit.quantize.fp8 import to_fp8
from labkit.quantize.limit import Limit
from labkit.quantize.ptq import static

PRECISIONS = ("int8", "fp8", "fp16", "int8+fp16", "int8-blocks")
HELD_OUT = 1024  # images that `automatic` judges its choice on
TESTED = 256  # images that a quantized file is compared on


def by_name(
    src: str | Path,
    dst: str | Path,
    precision: str = "int8",
    *,
    data: str | None = None,
    count: int = 256,
    pictures: dict | None = None,
    **settings: Any,
) -> Path:
    """Write an ONNX file in a smaller precision: the path `dst`.

    precision  one of `PRECISIONS`
    data       name of a data set, or "folder:<path>": its training images are observed; int8 and fp8 need them
    pictures   {"size": ..., "mean": ..., "std": ...} as for `images_for`, where they are not the usual ones
    settings   of `static`: recipe, method, in_float. `in_float` may be a `Limit`: then as few layers stay in float as
               it takes to hold it (`automatic`)
    Raises     LabError: a file that is not sound, an unknown name, no data
    """
    require_known(precision, PRECISIONS, "precision")
    model = checked(src)
    if precision == "int8-blocks":
        return weight_only(src, dst, inputs="int8")
    if data is None and precision != "fp16":
        raise LabError(
            f"{precision.upper()} needs real data: the ranges of the activations are observed on it.",
            expected="--data",
            found="no data",
            fix="add --data fashion-mnist, or --data FOLDER with your pictures",
        )
    in_float = settings.pop("in_float", ())
    images = partial(images_for, model, data, **(pictures or {}))
    if isinstance(in_float, Limit) and precision.startswith("int8"):
        seen, held_out = _parts(images, count, in_float)
        write = partial(automatic, held_out=held_out, limit=in_float)
    else:
        seen = images(count) if data else None  # type: ignore[call-arg]
        write = partial(static, in_float=in_float)
    if precision in ("fp8", "fp16"):
        return {"fp8": to_fp8, "fp16": to_fp16}[precision](src, dst, seen)
    if precision == "int8":
        return write(src, dst, data=seen, **settings)
    with tempfile.TemporaryDirectory() as folder:
        return to_fp16(write(src, Path(folder) / "int8.onnx", data=seen, **settings), dst)


def _parts(images, count, limit):
    """(what is observed, what the limit is judged on): two `Calibration`s without a common image.

    Of test images the first `TESTED` are left for the comparison of the file with the original.
    """
    split, first, what = "train", count, "for the ranges (--count)"
    if limit.unseen == "test":
        split, first, what = "test", TESTED, "for the comparison at the end"
    pool = images(first + HELD_OUT, split)
    if pool.count < first + FEWEST:
        raise LabError(
            f"There are too few {split} images to find by themselves which layers stay in float.",
            expected=f"{first + FEWEST}: {first} {what}, and {FEWEST} others that judge the choice",
            found=f"{pool.count} in {pool.source}",
            fix="give more images, or a smaller --count, or name the layers with --keep NODE",
        )
    return pool.first(first) if split == "train" else images(count), pool.after(first)


def to_compare(src: str | Path, data: str, **pictures: Any) -> Calibration:
    """The `Calibration` that a quantized file is compared on: at most `TESTED` of the test images."""
    return images_for(checked(src), data, TESTED + HELD_OUT, "test", **pictures).first(TESTED)


def images_for(model, name, count, split="train", *, size=None, **scale):
    """A `Calibration` with images of a data set in the model's size and channels.

    model  a ModelProto
    name   of a data set, or a folder of pictures. Of a folder without test images some count as such
    size   pixels a side, where the model leaves them open
    scale  mean and std that pixels from 0 to 1 are normalised with: numbers per channel, or text such as
           "0.5,0.5,0.5". By default those that the file notes, else those of the set; of a folder ImageNet's
    """
    from labkit.data import names

    name = f"folder:{name}" if name not in names() and Path(name).is_dir() else name
    sides = [side.dim_value for side in model.graph.input[0].type.tensor_type.shape.dim]
    if len(sides) != 4:
        raise LabError(
            "This model does not take images, and --data reads only images.",
            expected="an input (N, C, H, W)",
            found=f"{len(sides)} dimensions",
            fix="labkit quantize MODEL TO --precision int8-blocks, which needs no data",
        )
    size = sides[2] or size
    images = _read(name, split, size)
    noted = {key: text for key, text in notes(model).items() if key in ("mean", "std")}
    if sides[1] == 1:  # a number per colour holds for pictures before they become grey
        images = _in_channels(_scaled(images, noted, scale), 1)
    else:
        images = _scaled(_in_channels(images, sides[1]), noted, scale)
    mean, std = (",".join(f"{each:g}" for each in values) for values in (images.mean, images.std))
    source = f"{images.split} ({size or images.images.shape[2]} pixels, mean {mean}, std {std})"
    return Calibration.of(replace(images, split=source), count=count, size=size)


def _in_channels(images, wanted):
    """An `ImageSet` in as many channels as a model wants (0: any): grey as colour, or the brightness of colours."""
    pixels, channels = images.images, images.images.shape[1]
    if channels == 1 < wanted:
        return replace(images, images=pixels.expand(-1, wanted, -1, -1), split=f"{images.split}, grey as colour")
    if (channels, wanted) == (3, 1):
        from torchvision.transforms.v2.functional import rgb_to_grayscale

        mean, std = (sum(each) / len(each) for each in (images.mean, images.std))
        return replace(images, images=rgb_to_grayscale(pixels), mean=(mean,), std=(std,))
    if wanted not in (0, channels):
        found, expected = f"{channels} channels", f"{wanted} channels"
        raise LabError("These images do not fit the model.", expected=expected, found=found, fix="choose other images")
    return images


def _scaled(images, noted, scale):
    """An `ImageSet` with the mean and std to normalise with; its split says who says so.

    noted  what the model's file says of itself; scale: what the user says, which counts more
    """
    typed, channels = {key: value for key, value in scale.items() if value}, images.images.shape[1]
    who = "as typed" if typed else "as the file notes" if noted else "assumed"
    found = {key: _numbers(value, key) for key, value in (noted | typed).items()}
    for key, numbers in found.items():
        if len(numbers) not in (1, channels):
            expected = f"1 or {channels} numbers"
            raise LabError(f"--{key} does not fit the images.", expected=expected, found=f"{len(numbers)}")
    return replace(images, split=f"{images.split}, scale {who}", **found)


def _numbers(text, name):
    """(0.5, 0.4, 0.3) of "0.5,0.4,0.3": one number per channel, or one for all; numbers come back as they are."""
    try:
        numbers = tuple(map(float, text.split(","))) if isinstance(text, str) else tuple(text)
    except ValueError:
        numbers = (math.nan,)
    if all(0 <= each <= 1 for each in numbers):
        return numbers
    fix = "divide numbers for pixels up to 255 by 255"
    raise LabError(f"--{name} is not a list of numbers from 0 to 1.", expected="0.5,0.5,0.5", found=text, fix=fix)


def _read(name, split, size):
    """The `ImageSet` of a split; of a folder without test images, every second to fourth picture counts as such."""
    import torch

    from labkit.data import load

    if not name.startswith("folder:"):
        return load(name, split)
    if any((Path(name.removeprefix("folder:")) / level).is_dir() for level in ("test", "val")):
        return load(name, split, size=size)
    images = load(name, "train", size=size)
    every = min(4, len(images) // FEWEST)
    if split == "train":
        return images if every < 2 else images.take((torch.arange(len(images)) % every).nonzero().flatten())
    if every < 2:
        raise LabError(
            "There are too few pictures to hold some of them out.",
            expected=f"{2 * FEWEST} in one folder, or a folder test beside train",
            found=f"{len(images)}",
            fix="give more pictures",
        )
    return replace(images.take(torch.arange(0, len(images), every)), split="held out")
