"""Commands for networks as files: export, build."""

import re
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from labkit.cli.app import app, path_of, size_of
from labkit.errors import LabError
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
    echo(f"{path_of(path)} ({size_of(path)})")
    for key in ("pictures", "weights"):
        if key in notes:
            echo(f"    {key}: {notes[key]}")
    for kind, parity in parities.items():
        echo(f"    on {kind}: {parity.summary()}")


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
        f"{path_of(engine.path)} ({size_of(engine.path)}, {engine.how}, {library.name} "
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
    """Return the numbers in a text with colons: (1, 8, 64) for "1:8:64".

    A part that is not a whole number becomes 0, which `Settings` refuses with an error.
    """
    sizes = []
    for word in text.split(":"):
        sizes.append(int(word) if re.fullmatch("[0-9]+", word) else 0)
    return tuple(sizes)
