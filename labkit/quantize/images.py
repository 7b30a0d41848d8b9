"""Read images from a data set in the size, the channels and the scaling that a file needs."""

import math
from dataclasses import replace
from pathlib import Path

from labkit.errors import LabError
from labkit.export.runtime import notes
from labkit.export.weights import for_unit_pixels
from labkit.quantize.arrays import arrays_for
from labkit.quantize.calibration import MIN_EXAMPLES, Calibration, split_numbers


def images_for(model, name, count, split="train", *, size=None, mean=None, std=None):
    """Return a `Calibration` of images of a data set, in the size and the channels of the model.

    model      a ModelProto
    name       name of a data set, or a folder of pictures. If the folder has no test images, some
               of its pictures are held out as test images. For a model that takes no images: a .npz
               file, read by `arrays_for`
    count      number of images
    split      "train" or "test"
    size       pixels a side; used only if the model takes any size
    mean, std  the numbers by which pixels of 0 to 1 are normalised: one for each channel, or a text
               such as "0.5,0.5,0.5". None: the numbers in the file's metadata; if it has none,
               those of the data set; for a folder, those of ImageNet
    Raises     LabError: the model does not take images; the images or the numbers do not fit the
               model
    """
    from labkit.data import names

    if Path(name).suffix == ".npz":
        if size or mean or std:
            raise LabError(
                "--size, --mean and --std would do nothing here: they are for pictures.",
                expected="arrays as the network takes them",
                found=name,
                fix="leave them out",
            )
        return arrays_for(model, name, count, split)
    input_dimensions = [side.dim_value for side in model.graph.input[0].type.tensor_type.shape.dim]
    if len(input_dimensions) != 4:
        raise LabError(
            "This model does not take images.",
            expected="an input (N, C, H, W)",
            found=f"{len(input_dimensions)} dimensions",
            fix="--data FILE.npz, with an array for each input; or --precision int8-blocks, which "
            "needs no data",
        )
    channels = input_dimensions[1]  # 0 where the model leaves them open
    size = input_dimensions[2] or size

    if name not in names() and Path(name).is_dir():
        name = f"folder:{name}"
    images = _load_split(name, split, size)

    # Mean and std per colour belong to the picture before it becomes grey, otherwise to what the
    # model takes.
    metadata = notes(model)
    if channels == 1:
        images = _with_channels(_with_normalisation(images, metadata, mean, std), 1)
    else:
        images = _with_normalisation(_with_channels(images, channels), metadata, mean, std)

    # The source says in words how the images were made.
    pixels = size or images.images.shape[2]
    mean_text = ",".join(f"{number:g}" for number in images.mean)
    std_text = ",".join(f"{number:g}" for number in images.std)
    source = f"{images.split} ({pixels} pixels, mean {mean_text}, std {std_text})"
    return Calibration.of(replace(images, split=source), count=count, size=size)


def _with_channels(images, channels):
    """Return an `ImageSet` with the channels that the model takes.

    Grey images are repeated as colour images; colour images become their brightness.

    channels  number of channels that the model takes; 0: any
    Raises    LabError: the images cannot be converted
    """
    pixels = images.images  # (N, C, H, W)
    image_channels = pixels.shape[1]
    if channels in (0, image_channels):
        return images
    if image_channels == 1:
        repeated = pixels.expand(-1, channels, -1, -1)
        return replace(images, images=repeated, split=f"{images.split}, grey as colour")
    if image_channels == 3 and channels == 1:
        from torchvision.transforms.v2.functional import rgb_to_grayscale

        mean = sum(images.mean) / len(images.mean)
        std = sum(images.std) / len(images.std)
        return replace(images, images=rgb_to_grayscale(pixels), mean=(mean,), std=(std,))
    raise LabError(
        "These images do not fit the model.",
        expected=f"{channels} channels",
        found=f"{image_channels} channels",
        fix="choose other images",
    )


def _with_normalisation(images, metadata, mean, std):
    """Return an `ImageSet` with the mean and std by which the model's images are normalised.

    What the user typed is taken first, then the numbers in the model's file, then those of the
    `ImageSet`. The `split` of the result says which of these it was.

    metadata   {key: text} of the model's file, perhaps with "mean" and "std"
    mean, std  what the user typed, or None
    """
    # Numbers that the user typed take precedence over those in the file.
    typed = {key: value for key, value in (("mean", mean), ("std", std)) if value}
    in_file = for_unit_pixels(metadata)
    in_file.pop("scaled", None)
    origin = "assumed"
    if in_file:
        origin = "as the file notes"
    if typed:
        origin = "as typed"

    channels = images.images.shape[1]
    normalisation = {}
    for key, value in {**in_file, **typed}.items():
        numbers = _parse_numbers(value, key)
        if len(numbers) not in (1, channels):
            raise LabError(
                f"--{key} does not fit the images.",
                expected=f"1 or {channels} numbers",
                found=f"{len(numbers)}",
            )
        normalisation[key] = numbers
    return replace(images, split=f"{images.split}, scale {origin}", **normalisation)


def _parse_numbers(value, option):
    """Parse numbers for the channels, such as "0.5,0.4,0.3". Returns them as a tuple.

    value   text; or numbers, one for each channel or one for all
    option  "mean" or "std", for the error
    Raises  LabError: not all are numbers from 0 to 1, or a std is 0
    """
    try:
        if isinstance(value, str):
            numbers = tuple(float(text) for text in value.split(","))
        else:
            numbers = tuple(value)
    except ValueError:
        numbers = (math.nan,)
    divides_by_zero = option == "std" and 0 in numbers
    if not divides_by_zero and all(0 <= number <= 1 for number in numbers):  # False for a NaN
        return numbers
    smallest, fix = "from 0", "divide numbers for pixels up to 255 by 255"
    if divides_by_zero:
        smallest, fix = "above 0", "leave it out"
    problem = f"--{option} is not a list of numbers {smallest} to 1."
    raise LabError(problem, expected="0.5,0.5,0.5", found=value, fix=fix)


def _load_split(name, split, size):
    """Load the `ImageSet` of a split, "train" or "test".

    If a folder has no test images, some of its pictures are held out as test images;
    `split_numbers` chooses them.

    name  name of a data set, or "folder:<path>"
    size  pixels a side, for the pictures of a folder
    """
    import torch

    from labkit.data import load

    if not name.startswith("folder:"):
        return load(name, split)
    folder = Path(name.removeprefix("folder:"))
    if (folder / "test").is_dir() or (folder / "val").is_dir():
        return load(name, split, size=size)

    images = load(name, "train", size=size)
    numbers = split_numbers(len(images), split)
    if numbers is None:
        raise LabError(
            "There are too few pictures to hold some of them out.",
            expected=f"{2 * MIN_EXAMPLES} in one folder, or a folder test beside train",
            found=f"{len(images)}",
            fix="give more pictures",
        )
    chosen = images.take(torch.from_numpy(numbers))
    return replace(chosen, split="held out") if split == "test" else chosen
