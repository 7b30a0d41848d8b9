"""The command `quantize`: writes an ONNX file in smaller numbers and compares the two."""

import math
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from labkit.cli.app import app, path_of, require_use, size_of
from labkit.errors import LabError, require_known


@app.command()
def quantize(
    model: Annotated[Path, Argument(help="An ONNX file in float32.")],
    to: Annotated[Path, Argument(help="The file to write.")],
    precision: Annotated[
        str,
        Option(help="int8; int8-blocks for transformers on CPUs; fp8, fp16 or int8+fp16 for GPUs."),
    ] = "int8",
    recipe: Annotated[
        str, Option(help="For which engine: tensorrt, onnxruntime or openvino.")
    ] = "tensorrt",
    method: Annotated[str, Option(help="Ranges by minmax, percentile or entropy.")] = "minmax",
    weight_bits: Annotated[
        str, Option(help="7, 8, or auto: 8 where this CPU has VNNI; by default as the recipe says.")
    ] = "recipe",
    data: Annotated[
        str | None,
        Option(help="For INT8, FP8: a data set, a folder of pictures, or arrays in an .npz."),
    ] = None,
    size: Annotated[
        int | None, Option(min=8, help="Pixels a side of the images, where MODEL leaves them open.")
    ] = None,
    mean: Annotated[
        str | None,
        Option(
            help="What training subtracted from pixels of 0 to 1: 0.5,0.5,0.5; "
            "ImageNet's for a folder."
        ),
    ] = None,
    std: Annotated[str | None, Option(help="What training then divided by, likewise.")] = None,
    count: Annotated[int, Option(min=64, help="How many of its training images to look at.")] = 256,
    keep: Annotated[
        list[str], Option(help="A node to leave in float, repeatable; auto: find them.")
    ] = (),
    unseen: Annotated[
        str | None,
        Option(
            help="With auto: train or test, the split of --data that MODEL was not trained on. It "
            "judges the choice."
        ),
    ] = None,
    loss: Annotated[
        float, Option(help="With auto: how many of a hundred answers may change.")
    ] = 0.5,
    labels: Annotated[
        bool, Option(help="With auto: count right answers lost instead, by the labels.")
    ] = False,
    class_axis: Annotated[
        int | None, Option(min=1, help="Axis of the output that holds classes; 1 for (N, classes).")
    ] = None,
    # 15 dB: a thirtieth of the power of the answers is noise
    min_sqnr: Annotated[
        float, Option(help="Least SQNR in dB of the weakest channel of an output.")
    ] = 15.0,
):
    """Write an ONNX file in smaller numbers: INT8, FP8 or FP16.

    INT8 and FP8 take their ranges from real images; `int8+fp16` is both. `int8-blocks` needs none:
    in products with stored weights, each run of 32 numbers has a step of its own, found in the
    call. Each file is compared with the original on test images (without `--data`: on made-up
    inputs), as it is written, and in each engine that can run it here. One below `--min-sqnr` is an
    error: the decibels are those of what varies between the answers, and the weakest channel
    counts. With `--keep auto` the layers that lose most stay in float: as few as `--loss` and
    `--min-sqnr` allow. They are judged on images of `--unseen`; else on more of the training
    images, so that a network that knows those by heart seems to lose less than it will. The file
    says on which.

    Example: labkit quantize resnet18.onnx resnet18-int8.onnx --data fashion-mnist --recipe
    onnxruntime --keep auto
    """
    import onnx

    from labkit.engines import fidelity
    from labkit.engines.misfit import depthwise
    from labkit.files import draft, require_other_file
    from labkit.quantize import Limit, quantize_file
    from labkit.quantize.advice import remedies_in_words
    from labkit.quantize.quantize_file import PRECISIONS

    require_known(precision, PRECISIONS, "precision")

    # What stays in float: by itself, or the nodes named.
    automatic = "auto" in keep
    if automatic and len(keep) > 1:
        raise LabError(
            "auto chooses the layers by itself.",
            expected="auto or names of nodes",
            found=", ".join(keep),
        )
    require_known(unseen or "test", ("train", "test"), "split")
    require_use(
        {
            "--precision int8 or int8+fp16": "int8" in precision and precision != "int8-blocks",
            "--keep auto": automatic,
            "--data": data is not None,
        },
        {
            "--precision int8 or int8+fp16": {
                "--recipe": recipe != "tensorrt",
                "--method": method != "minmax",
                "--weight-bits": weight_bits != "recipe",
                "--keep": keep,
            },
            "--keep auto": {"--unseen": unseen, "--loss": loss != 0.5, "--labels": labels},
            "--data": {"--size": size, "--mean": mean, "--std": std, "--count": count != 256},
        },
    )
    if not (0 <= loss <= 100 and math.isfinite(min_sqnr)):
        raise LabError(
            "--loss or --min-sqnr is out of range.",
            expected="--loss from 0 to 100, and a finite --min-sqnr",
            found=f"--loss {loss:g}, --min-sqnr {min_sqnr:g}",
        )
    pictures = {"size": size, "mean": mean, "std": std}
    in_float = Limit(loss, min_sqnr, labels, unseen, class_axis) if automatic else keep
    settings = {
        "recipe": recipe,
        "method": method,
        "in_float": in_float,
        "weight_bits": weight_bits,
    }

    # Quantize, and compare with the original before the file gets its name.
    require_other_file(model, to)
    with draft(to) as path:  # an earlier file stays until this one has been compared
        quantize_file(model, path, precision, data=data, count=count, pictures=pictures, **settings)
        share = path.stat().st_size / model.stat().st_size
        echo(f"{path_of(to)} ({size_of(path)}, {share:.0%} of {path_of(model)})")
        if automatic:
            _tell_what_stays_in_float(path)
        inputs = _comparison_inputs(model, data, pictures)
        if inputs is not None:
            likeness = _tell_what_is_lost(model, path, inputs, axis=class_axis)
            if likeness is not None:
                fidelity.require(
                    likeness,
                    path,
                    min_sqnr,
                    rejected=to.with_suffix(f".rejected{to.suffix}"),
                    fix=remedies_in_words(
                        precision,
                        with_data=data is not None,
                        automatic=automatic,
                        loss=loss,
                        with_classes=likeness.same is not None,
                        method=method,
                        recipe=recipe,
                        weight_bits=weight_bits,
                    ),
                )
        slow_layers = None
        if "int8" in precision and data:
            slow_layers = depthwise(onnx.load(path, load_external_data=False))
    if slow_layers:
        echo(f"{slow_layers}. Race both: labkit bench {model} {to} --engine all")


def _tell_what_stays_in_float(path):
    """Print which layers of a quantized file stay in float, and why.

    The examples by which they were chosen are printed, too.
    """
    from labkit.quantize import float_nodes

    reasons, share, judged = float_nodes(path)
    echo(f"{share:.1%} of the multiply-adds in INT8; nodes left in float: {len(reasons) or 'none'}")
    echo(f"Judged on {judged}.")
    for node, reason in reasons.items():
        echo(f"    {node}: {reason}")


def _comparison_inputs(model, data, pictures):
    """Choose the inputs on which a quantized file is compared with the original, and name them.

    model     path of the original file
    data      name of a data set, whose test images are the inputs; None: the inputs are made up
    pictures  {"size", "mean", "std"} of the images, as typed
    returns   an array (N, ...) of images, or dictionaries {name of an input: array} in a list; None
              where there are too few test images
    """
    import numpy as np

    from labkit.export import checked
    from labkit.export.inputs import varied_inputs
    from labkit.quantize import comparison_images

    # Images where there are some; a folder without enough is no error.
    try:
        if data is None:
            inputs = varied_inputs(checked(model))
            echo("Against the original, on 8 made-up inputs (--data compares on real images):")
            return inputs
        images = comparison_images(model, data, **pictures)
    except LabError as error:
        reason = f"Expected: {error.expected}. Found: {error.found}"
        echo(f"Not compared with the original on real images, for want of them. {reason}")
        return None
    echo(f"Against the original, on {images.description}:")
    batches = list(images.batches)
    return batches if isinstance(batches[0], dict) else np.concatenate(batches)


def _tell_what_is_lost(model, path, inputs, *, axis):
    """Print how far a quantized file's answers are from the original's, in each engine.

    model    path of the original file
    path     path of the quantized file
    inputs   what `_comparison_inputs` returned
    axis     axis of the output that holds the classes, or None
    returns  the `Fidelity` of the file as it is written. Where no engine here can run the file as
             written, that of the first engine that can run it in some form. None where none can
    """
    from labkit.engines import fidelity

    rows = fidelity.quantized_apart(model, path, inputs, axis=axis)
    _, of_file, _ = rows[0]
    # as_meant: the `Fidelity` to the file as written, or why nothing was compared
    for name, likeness, as_meant in rows:
        if likeness is None:
            echo(f"    {name}: not compared. {as_meant}")
        elif as_meant and not fidelity.answers_as_meant(as_meant, likeness, of_file):
            echo(
                f"    {name}: {likeness}. On these examples it does not answer what the file "
                f"means ({as_meant}; needed are {fidelity.ENGINE_DB:g} dB in each output): do not "
                "use it here"
            )
        else:
            echo(f"    {name}: {likeness}")
    compared = [likeness for _, likeness, _ in rows if likeness is not None]
    if not compared:
        echo("    Not compared: nothing on this machine runs such a file.")
        return None
    return compared[0]
