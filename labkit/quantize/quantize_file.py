"""Quantize a file as the command line does: data and precision are given by their names."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from labkit.errors import LabError, require_known
from labkit.export import checked
from labkit.quantize.automatic import automatic
from labkit.quantize.calibration import MIN_EXAMPLES, Calibration
from labkit.quantize.dynamic import weight_only
from labkit.quantize.floats import to_fp16
from labkit.quantize.fp8 import to_fp8
from labkit.quantize.images import images_for
from labkit.quantize.limit import Limit
from labkit.quantize.ptq import static

PRECISIONS = ("int8", "fp8", "fp16", "int8+fp16", "int8-blocks")
JUDGE_IMAGES = 1024  # number of images on which `automatic` judges its choice
COMPARISON_IMAGES = 256  # number of images on which a quantized file is compared with the original


def quantize_file(
    src: str | Path,
    dst: str | Path,
    precision: str = "int8",
    *,
    data: str | None = None,
    count: int = 256,
    pictures: dict | None = None,
    **settings: Any,
) -> Path:
    """Write an ONNX file in a smaller precision. Returns the path `dst`.

    precision  one of `PRECISIONS`
    data       name of a data set, "folder:<path>" or a .npz file. The activations are observed on
               its training examples. int8, int8+fp16 and fp8 need data; None: no data
    count      number of these examples
    pictures   {"size": ..., "mean": ..., "std": ...}, keyword arguments of `images_for`
    settings   keyword arguments of `static`: recipe, method, weight_bits, in_float. If `in_float`
               is a `Limit`, `automatic` chooses the layers that stay in float
    Raises     LabError: the file is damaged; a name is unknown; data are needed and not given
    """
    require_known(precision, PRECISIONS, "precision")
    model = checked(src)
    if precision == "int8-blocks":
        return weight_only(src, dst, inputs="int8")
    if data is None and precision != "fp16":
        raise LabError(
            f"{precision.upper()} needs real data: the ranges of the activations "
            "are observed on it.",
            expected="--data",
            found="no data",
            fix="add --data fashion-mnist, or --data FOLDER with your pictures",
        )
    images = partial(images_for, model, data, **(pictures or {}))

    if precision == "fp16":
        calibration = None
        if data is not None:
            calibration = images(count)  # type: ignore[call-arg]
        return to_fp16(src, dst, calibration)
    if precision == "fp8":
        return to_fp8(src, dst, images(count))  # type: ignore[call-arg]

    # INT8, with the layers in float that the caller names or `automatic` chooses.
    in_float = settings.pop("in_float", ())
    with tempfile.TemporaryDirectory() as folder:
        int8_path = Path(dst)
        if precision == "int8+fp16":
            int8_path = Path(folder) / "int8.onnx"
        if isinstance(in_float, Limit):
            calibration, held_out = _calibration_and_held_out(images, count, in_float)
            automatic(src, int8_path, calibration, held_out, limit=in_float, **settings)
        else:
            static(src, int8_path, images(count), in_float=in_float, **settings)  # type: ignore[call-arg]
        if precision == "int8+fp16":
            to_fp16(int8_path, dst)
    return Path(dst)


def _calibration_and_held_out(images, count, limit):
    """Return two `Calibration`s that share no image.

    The ranges are observed on the first. The limit is checked on the second.

    images  function (number of images, split="train") -> `Calibration`
    count   number of images in the first
    limit   the `Limit`. If its `unseen` is "test", the second has test images, otherwise further
            training images
    """
    # Judge on further training images, or on test images other than those of the comparison at the
    # end.
    if limit.unseen == "test":
        split = "test"
        reserved = COMPARISON_IMAGES
        purpose = "for the comparison at the end"
    else:
        split = "train"
        reserved = count
        purpose = "for the ranges (--count)"

    needed = reserved + MIN_EXAMPLES
    pool = images(reserved + JUDGE_IMAGES, split)
    if pool.count < needed:
        raise LabError(
            f"There are too few {split} images to find by themselves which layers stay in float.",
            expected=f"{needed}: {reserved} {purpose}, and {MIN_EXAMPLES} others "
            "that judge the choice",
            found=f"{pool.count} in {pool.source}",
            fix="give more images, or a smaller --count, or name the layers with --keep NODE",
        )
    held_out = pool.after(reserved)
    if split == "train":
        return pool.first(reserved), held_out
    return images(count), held_out


def comparison_images(src: str | Path, data: str, **pictures: Any) -> Calibration:
    """Return at most 256 test images, to compare a quantized file with its original.

    The result is a `Calibration`.

    src       path of an ONNX file
    data      name of a data set, a folder of pictures or a .npz file, as in `images_for`
    pictures  size, mean and std, as in `images_for`
    """
    test_images = images_for(
        checked(src), data, COMPARISON_IMAGES + JUDGE_IMAGES, "test", **pictures
    )
    return test_images.first(COMPARISON_IMAGES)
