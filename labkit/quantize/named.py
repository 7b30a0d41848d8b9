"""Quantization from names, as the command line has them."""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from labkit.errors import LabError, require_known
from labkit.export import checked
from labkit.quantize.automatic import automatic
from labkit.quantize.calibration import FEWEST, Again, Calibration
from labkit.quantize.floats import to_fp16
from labkit.quantize.fp8 import to_fp8
from labkit.quantize.limit import Limit
from labkit.quantize.ptq import static

PRECISIONS = ("int8", "fp8", "fp16", "int8+fp16")
HELD_OUT = 1024  # training images more, that `automatic` judges its choice on


def by_name(src, dst, precision="int8", *, data=None, count=256, **settings):
    """Write an ONNX file in a smaller precision: the path `dst`.

    precision  one of `PRECISIONS`
    data       name of a data set, or "folder:<path>": its training images are observed; INT8 and FP8 need them
    settings   of `static`: recipe, method, in_float. `in_float` may be a `Limit`: then as few layers stay in float as
               it takes to hold it (`automatic`)
    Raises     LabError: a file that is not sound, an unknown name, no data
    """
    require_known(precision, PRECISIONS, "precision")
    model = checked(src)
    limit = settings.get("in_float")
    held_out = HELD_OUT if isinstance(limit, Limit) else 0
    seen = None if data is None else images_for(model, data, count + held_out)
    if held_out and seen and seen.count < count + FEWEST:
        raise LabError(
            "There are too few training images to find by themselves which layers stay in float.",
            expected=f"{count + FEWEST}: {count} for the ranges (--count), and {FEWEST} others that judge the choice",
            found=f"{seen.count} in {data}",
            fix="give more images, or a smaller --count, or name the layers with --keep NODE",
        )
    if precision == "fp16":
        return to_fp16(src, dst, seen)
    if seen is None:
        raise LabError(
            f"{precision.upper()} needs real data: the ranges of the activations are observed on it.",
            expected="--data",
            found="no data",
            fix="add --data fashion-mnist, or --data folder:<your images>",
        )
    if precision == "fp8":
        return to_fp8(src, dst, seen)
    write = partial(static, data=seen, **settings)
    if held_out:
        others = {name: value for name, value in settings.items() if name != "in_float"}
        write = partial(automatic, data=seen.first(count), held_out=seen.after(count), limit=limit, **others)
    if precision == "int8":
        return write(src, dst)
    with tempfile.TemporaryDirectory() as folder:
        return to_fp16(write(src, Path(folder) / "int8.onnx"), dst)


def images_for(model, name, count, split="train"):
    """A `Calibration` with images of a data set in the model's size; grey ones as colour where it wants colour.

    model  a ModelProto
    """
    from labkit.data import load, names

    name = f"folder:{name}" if name not in names() and Path(name).is_dir() else name
    sizes = [side.dim_value for side in model.graph.input[0].type.tensor_type.shape.dim]
    if len(sizes) != 4:
        raise LabError(
            "This model does not take images.",
            expected="an input (N, C, H, W)",
            found=f"{len(sizes)} dimensions",
            fix="in Python: static(src, dst, Calibration(batches, source))",
        )
    # a folder may hold pictures of several sizes
    images = load(name, split, size=sizes[2] or None if name.startswith("folder:") else None)
    if sizes[1] == 1:
        images = _one_channel(images)
    data, channels = Calibration.of(images, count=count, size=sizes[2] or None), images.images.shape[1]
    if channels == 1 and sizes[1] > 1:
        grey = Again(lambda: (np.repeat(batch, sizes[1], axis=1) for batch in data.batches))
        return Calibration(grey, f"{data.source}, grey as colour", data.labels)
    if sizes[1] not in (0, channels):
        found, wanted = f"{channels} channels", f"{sizes[1]} channels"
        raise LabError("These images do not fit the model.", expected=wanted, found=found, fix="choose other images")
    return data


def _one_channel(images):
    """An `ImageSet` of grey pictures that were read as colour, in one channel; others as they are."""
    pixels = images.images
    if pixels.shape[1] != 3 or not (pixels == pixels[:, :1]).all():
        return images
    mean, std = (sum(each) / len(each) for each in (images.mean, images.std))
    return replace(images, images=pixels[:, :1], mean=(mean,), std=(std,))
