"""Commands for networks as files: export, quantize, build."""

import math
import re
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from labkit.cli.app import app, path_of, require_use
from labkit.errors import LabError, require_known
from labkit.format import shown


@app.command()
def export(
    model: Annotated[
        str,
        Argument(
            help="A network, a checkpoint of `labkit train`, or module:function (it "
            "runs your code)."
        ),
    ],
    out: Annotated[
        Path | None, Option(help="The file to write; MODEL.onnx when none is given.")
    ] = None,
    weights: Annotated[
        str | None,
        Option(
            help="Your file for MODEL: of the course, of torchvision, or module:function. "
            "Or DEFAULT, to fetch what torchvision publishes."
        ),
    ] = None,
    size: Annotated[
        int | None,
        Option(
            min=8,
            help="With --weights or module:function: pixels a side; 224 where nothing says more.",
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        Option(help="An .npz with an array for each input, for a network that takes no pictures."),
    ] = None,
    opset: Annotated[
        int | None, Option(help="Version of the operator set; the course's own by default.")
    ] = None,
):
    """Write a network as an ONNX file, and compare the answers.

    Ends with an error when they differ.

    Example: labkit export resnet18 --weights model.pth --out resnet18.onnx
    """
    from labkit.engines.deployment import export_by_name

    if weights is None and Path(model).suffix in (".pth", ".safetensors"):
        raise LabError(
            f"{model} holds weights, and not the network.",
            expected="also its name",
            fix=f"labkit export NETWORK --weights {model}",
        )
    if ":" in model:
        echo(f"Running your code: {model}")
    path, notes, parities = export_by_name(
        model, out, opset=opset, weights=weights, size=size, inputs=inputs
    )
    echo(f"{path_of(path)} ({_size(path)})")
    for key in ("pictures", "weights"):
        if key in notes:
            echo(f"    {key}: {notes[key]}")
    for kind, parity in parities.items():
        echo(f"    on {kind}: {parity.summary()}")


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
    from labkit.quantize.advice import ways_on
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
            "A limit makes no sense.",
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
        echo(f"{path_of(to)} ({_size(path)}, {share:.0%} of {path_of(model)})")
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
                    fix=ways_on(
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
    """Print the layers that a file says it keeps in float, why, and on which examples that was
    judged.
    """
    from labkit.quantize import float_nodes

    reasons, share, judged = float_nodes(path)
    echo(f"{share:.1%} of the multiply-adds in INT8; nodes left in float: {len(reasons) or 'none'}")
    echo(f"Judged on {judged}.")
    for node, reason in reasons.items():
        echo(f"    {node}: {reason}")


def _comparison_inputs(model, data, pictures):
    """Return the inputs that a file is compared with the original on, test images or made-up ones,
    and print which.

    data  None: inputs are made up. A folder of one's own may have no test images, or too few: then
          None is returned
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
    """Compare a file in small numbers with the original. Returns the `Fidelity` of the file as
    written.

    inputs  as for `fidelity.quantized`

    Without kernels for the file as written it is that of the first engine which runs it, and None
    where no engine does.
    """
    from labkit.engines import fidelity

    rows = fidelity.quantized_apart(model, path, inputs, axis=axis)
    _, of_file, _ = rows[0]
    # the last: likeness to the file as written, or why nothing was compared
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


@app.command()
def build(
    model: Annotated[Path, Argument(help="An ONNX file; its precision is that of the engine.")],
    batch: Annotated[str, Option(help="SMALLEST:USUAL:LARGEST.")] = "1:8:64",
    target: Annotated[
        list[str], Option(help="GPU generation such as SM89, repeatable; by default the one here.")
    ] = (),
):
    """Build a TensorRT engine, and show what each layer runs in.

    TensorRT-RTX needs no GPU. The engine goes to artifacts/engines, under a name that stands for
    the model, the settings, the versions and the GPU: one that was built before for the same is
    used again.

    Example: labkit build resnet18-int8.onnx --batch 1:8:64
    """
    from labkit import device
    from labkit.engines.tensorrt import Settings, compared, obtain

    engine = obtain(model, Settings(batch=_batch_sizes(batch), targets=tuple(target)))
    library = engine.library
    gpu = device.describe().gpu
    echo(
        f"{path_of(engine.path)} ({_size(engine.path)}, {engine.how}, {library.name} "
        f"{library.version})"
    )
    echo(f"    for {', '.join(target) or gpu or 'every GPU that the library knows: none is here'}")

    # Of an engine that was built just now the builder says more.
    if engine.built:
        memory = ", ".join(
            f"{kind} {shown(count, 'B')}" for kind, count in engine.built.memory.items()
        )
        echo(
            f"    {len(engine.built.kernels)} kernels in {engine.built.seconds:.1f} s; on the "
            f"GPU: {memory}"
        )
        table = compared(engine.built.source.model, engine.built.kernels)
        for (operator, requested, actual), nodes in table.groupby(
            ["operator", "requested", "actual"]
        ):
            echo(f"    {operator}: {len(nodes)} ask for {requested}, computed in {actual}")
        size = len(engine.plan)
        if size > 2 * engine.built.memory.get("weights", size):
            echo(
                "    Most of the file is code, not weights: in INT8 a small network can take more "
                "than in FP32."
            )


def _batch_sizes(text):
    """Return (1, 8, 64) for "1:8:64"; 0, which `Settings` refuses, for what is no number."""
    sizes = []
    for word in text.split(":"):
        sizes.append(int(word) if re.fullmatch("[0-9]+", word) else 0)
    return tuple(sizes)


def _size(path):
    return shown(path.stat().st_size, "B")
