"""Quantization from names, as the command line has them."""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from labkit.errors import LabError, require_known
from labkit.export import checked
from labkit.export.runtime import written
from labkit.quantize.automatic import automatic
from labkit.quantize.calibration import FEWEST, Again, Calibration
from labkit.quantize.dynamic import weight_only
from labkit.quantize.floats import to_fp16
from labkit.quantize.fp8 import to_fp8
from labkit.quantize.limit import Limit
from labkit.quantize.ptq import static

PRECISIONS = ("int8", "fp8", "fp16", "int8+fp16", "int8-blocks")
HELD_OUT = 1024  # training images more, that `automatic` judges its choice on


def by_name(src, dst, precision="int8", *, data=None, count=256, pictures=None, **settings):
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
    limit = settings.get("in_float")
    held_out = HELD_OUT if isinstance(limit, Limit) else 0
    seen = None if data is None else images_for(model, data, count + held_out, **(pictures or {}))
    if held_out and seen and seen.count < count + FEWEST:
        raise LabError(
            "There are too few training images to find by themselves which layers stay in float.",
            expected=f"{count + FEWEST}: {count} for the ranges (--count), and {FEWEST} others that judge the choice",
            found=f"{seen.count} in {data}, besides those for the test",
            fix="give more images, or a smaller --count, or name the layers with --keep NODE",
        )
    if precision == "int8-blocks":
        return weight_only(src, dst, inputs="int8")
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
        return _signed(write(src, dst), seen)
    with tempfile.TemporaryDirectory() as folder:
        return to_fp16(_signed(write(src, Path(folder) / "int8.onnx"), seen), dst)


def _signed(path, seen):
    """The path of a quantized file, which then says what it was calibrated on."""
    model = onnx.load(path)
    model.metadata_props.add(key="calibrated", value=seen.note)
    return written(model, path)


def images_for(model, name, count, split="train", *, size=None, **scale):
    """A `Calibration` with images of a data set in the model's size; grey ones as colour where it wants colour.

    model  a ModelProto
    name   of a data set, or a folder of pictures. Of a folder without test images a quarter counts as such, and at
           least `FEWEST`, where as many remain
    size   pixels a side, where the model leaves them open
    scale  mean and std that pixels from 0 to 1 are normalised with, per channel; those of the set by default, and for
           a folder ImageNet's
    """
    from labkit.data import names

    name = f"folder:{name}" if name not in names() and Path(name).is_dir() else name
    sizes = [side.dim_value for side in model.graph.input[0].type.tensor_type.shape.dim]
    if len(sizes) != 4:
        raise LabError(
            "This model does not take images.",
            expected="an input (N, C, H, W)",
            found=f"{len(sizes)} dimensions",
            fix="in Python: static(src, dst, Calibration(batches, source))",
        )
    size = sizes[2] or size
    images = replace(_read(name, split, size), **scale)
    if sizes[1] == 1:
        images = _one_channel(images)
    channels = images.images.shape[1]
    if not {len(images.mean), len(images.std)} <= {1, channels}:
        found = f"{len(images.mean)} and {len(images.std)}"
        raise LabError("--mean and --std do not fit the images.", expected=f"1 or {channels} numbers each", found=found)
    mean, std = (",".join(f"{each:g}" for each in values) for values in (images.mean, images.std))
    prepared = f"{size or images.images.shape[2]} pixels, mean {mean}, std {std}"
    data = Calibration.of(replace(images, split=f"{images.split} ({prepared})"), count=count, size=size)
    if channels == 1 and sizes[1] > 1:
        grey = Again(lambda: (np.repeat(batch, sizes[1], axis=1) for batch in data.batches))
        return Calibration(grey, f"{data.source}, grey as colour", data.labels)
    if sizes[1] not in (0, channels):
        found, wanted = f"{channels} channels", f"{sizes[1]} channels"
        raise LabError("These images do not fit the model.", expected=wanted, found=found, fix="choose other images")
    return data


def _read(name, split, size):
    """The `ImageSet` of a split; of a folder without test images, some of the pictures count as such."""
    import torch

    from labkit.data import load

    if not name.startswith("folder:"):
        return load(name, split)
    if any((Path(name.removeprefix("folder:")) / level).is_dir() for level in ("test", "val")):
        return load(name, split, size=size)
    images = load(name, "train", size=size)
    count = len(images)
    held_out = max(count // 4, FEWEST) if count >= 2 * FEWEST else 0
    for_test = torch.zeros(count, dtype=torch.bool)
    for_test[torch.arange(held_out) * count // max(held_out, 1)] = True  # spread evenly over the classes
    if split == "train":
        return images.take((~for_test).nonzero().flatten())
    if not held_out:
        raise LabError(
            "There are too few pictures to hold some of them out.",
            expected=f"{2 * FEWEST} in one folder, or a folder test beside train",
            found=f"{count}",
            fix="give more pictures",
        )
    return replace(images.take(for_test.nonzero().flatten()), split="held out")


def _one_channel(images):
    """An `ImageSet` of grey pictures that were read as colour, in one channel; others as they are."""
    pixels = images.images
    if pixels.shape[1] != 3 or not (pixels == pixels[:, :1]).all():
        return images
    mean, std = (sum(each) / len(each) for each in (images.mean, images.std))
    return replace(images, images=pixels[:, :1], mean=(mean,), std=(std,))
