"""Commands for networks as files: export, quantize, compress, build."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option, echo

from labkit.cli.app import app, path_of
from labkit.errors import LabError, require_known
from labkit.ledger.shown import shown


@app.command()
def export(
    model: str,
    out: Path | None = None,
    weights: str | None = None,
    size: Annotated[int | None, Option(min=8)] = None,
    opset: int | None = None,
):
    """Write a network as an ONNX file, and compare the answers.

    Ends with an error when they differ.

    model    A network, a checkpoint of `labkit train`, or a .small file.
    out      The file to write; MODEL.onnx when none is given.
    weights  Your file for MODEL: of the course, of torchvision, or module:function (it runs your code). Or DEFAULT, to
             fetch what torchvision publishes.
    size     With --weights: pixels a side; 224 where nothing says more.
    opset    Version of the operator set; the course's own by default.

    Example: labkit export resnet18 --weights model.pth --out resnet18.onnx
    """
    from labkit.engines.deployment import export_by_name

    if weights is None and Path(model).suffix in (".pth", ".safetensors"):
        raise LabError(
            f"{model} holds weights, and not the network.",
            expected="also its name",
            fix=f"labkit export NETWORK --weights {model}",
        )
    if weights and ":" in model:
        echo(f"Running your code: {model}")
    path, notes, found = export_by_name(model, out, opset=opset, weights=weights, size=size)
    echo(f"{path_of(path)} ({_size(path)})")
    if "pictures" in notes:
        echo(f"    pictures: {notes['pictures']}")
    for inputs, parity in found.items():
        echo(f"    on {inputs}: {parity.summary()}")
        parity.require()


@app.command()
def quantize(
    model: Path,
    to: Path,
    precision: str = "int8",
    recipe: str = "tensorrt",
    method: str = "minmax",
    weight_bits: str = "recipe",
    data: str | None = None,
    size: Annotated[int | None, Option(min=8)] = None,
    mean: str | None = None,
    std: str | None = None,
    count: Annotated[int, Option(min=64)] = 256,
    keep: list[str] = (),
    unseen: str | None = None,
    loss: float = 0.5,
    labels: bool = False,
    class_axis: Annotated[int | None, Option(min=1)] = None,
    # 15 dB: a thirtieth of the power of the answers is noise
    min_sqnr: float = 15.0,
):
    """Write an ONNX file in smaller numbers: INT8, FP8 or FP16.

    INT8 and FP8 take their ranges from real images; `int8+fp16` is both. `int8-blocks` needs none: in products
    with stored weights, each run of 32 numbers has a step of its own, found in the call. An INT8 file is compared with
    the original on test images: as it is written, and in each engine that can run it here. One below `--min-sqnr` is
    an error. With `--keep auto` the layers that lose most stay in float: as few as `--loss` and `--min-sqnr` allow.
    They are judged on images of `--unseen`; else on more of the training images, so that a network that knows those by
    heart seems to lose less than it will. The file says on which.

    model        An ONNX file in float32.
    to           The file to write.
    precision    int8; int8-blocks for transformers on CPUs; fp8, fp16 or int8+fp16 for GPUs.
    recipe       For which engine: tensorrt, onnxruntime or openvino.
    method       Ranges by minmax, percentile or entropy.
    weight_bits  7, 8, or auto: 8 where this CPU has VNNI; by default as the recipe says.
    data         Real images for INT8, FP8: a data set, or a folder of pictures.
    size         Pixels a side of the images, where MODEL leaves them open.
    mean         What training subtracted from pixels of 0 to 1: 0.5,0.5,0.5; ImageNet's for a folder.
    std          What training then divided by, likewise.
    count        How many of its training images to look at.
    keep         A node to leave in float, repeatable; auto: find them.
    unseen       With auto: train or test, the split of --data that MODEL was not trained on. It judges the choice.
    loss         With auto: how many of a hundred answers may change.
    labels       With auto: count right answers lost instead, by the labels.
    class_axis   Axis of the output that holds classes; 1 for (N, classes).
    min_sqnr     Least SQNR in dB of an INT8 file on test images.

    Example: labkit quantize resnet18.onnx resnet18-int8.onnx --data fashion-mnist --recipe onnxruntime --keep auto
    """
    from labkit.quantize import Limit, by_name, to_compare

    automatic = "auto" in keep
    if automatic and len(keep) > 1:
        raise LabError("auto chooses the layers by itself.", expected="auto or names of nodes", found=", ".join(keep))
    require_known(unseen or "test", ("train", "test"), "split")
    pictures = {"size": size, "mean": mean, "std": std}
    in_float = Limit(loss, min_sqnr, labels, unseen, class_axis) if automatic else keep
    settings = {"recipe": recipe, "method": method, "in_float": in_float, "weight_bits": weight_bits}
    path = by_name(model, to, precision, data=data, count=count, pictures=pictures, **settings)
    share = path.stat().st_size / model.stat().st_size
    echo(f"{path_of(path)} ({_size(path)}, {share:.0%} of {path_of(model)})")
    if automatic:
        _tell_what_stays_in_float(path)
    if "int8" in precision and data:
        _tell_what_is_lost(
            model, path, partial(to_compare, model, data, **pictures), min_sqnr=min_sqnr, axis=class_axis
        )


def _tell_what_stays_in_float(path):
    """The layers that a file says it keeps in float, why, and what judged that."""
    from labkit.quantize import float_nodes

    reasons, share, judged = float_nodes(path)
    echo(f"{share:.1%} of the multiply-adds in INT8; nodes left in float: {len(reasons) or 'none'}")
    echo(f"Judged on {judged}.")
    for node, reason in reasons.items():
        echo(f"    {node}: {reason}")


def _tell_what_is_lost(model, path, images, *, min_sqnr, axis):
    """Compare an INT8 file with the original on test images; a LabError below so many dB.

    images  () -> their `Calibration`
    A folder of one's own may have no test images, or too few: that is said, and the file stays.
    """
    import numpy as np
    import onnx

    from labkit.engines import fidelity

    try:
        seen = images()
    except LabError as error:
        echo(f"Not compared with fp32, for want of test images. Expected: {error.expected}. Found: {error.found}")
        return
    echo(f"Against fp32, on {seen.note}:")
    found = list(fidelity.quantized(model, path, np.concatenate(list(seen.batches)), axis=axis))
    for who, alike, meant in found:
        if alike is None:
            echo(f"    {who}: not compared. {meant}")
        elif meant and meant.db < fidelity.ENGINE_DB:
            echo(f"    {who}: {alike}. It does not answer what the file means ({meant}): do not use it here")
        else:
            echo(f"    {who}: {alike}")
    fidelity.require(found[0][1], path, min_sqnr)
    if thin := fidelity.depthwise(onnx.load(path, load_external_data=False)):
        echo(f"{thin}. Race both: labkit bench {model} {path} --engine all")


@app.command()
def compress(
    checkpoint: str,
    out: Path,
    sparsity: Annotated[float, Option(min=0, max=1)] = 0.91,
    bits: Annotated[int, Option(min=1, max=8)] = 4,
    epochs: Annotated[int, Option(min=1)] = 4,
    dataset: str | None = None,
    limit: Annotated[int | None, Option(min=1)] = None,
):
    """Write a trained network as one small file.

    It is pruned, its weights are shared, and both are healed by training; then all is Huffman-coded.
    `labkit export OUT.small` makes an ONNX file of it.

    checkpoint  A checkpoint of `labkit train`, or a network that comes trained.
    out         The file to write; end it in .small.
    sparsity    Share of the weights that goes.
    bits        A layer has 2^bits shared weights.
    epochs      Of fine-tuning after pruning; then a quarter as many.
    dataset     Images to fine-tune on; its own by default.
    limit       Use only so many images.

    Example: labkit compress vgg-medium vgg.small --sparsity 0.91 --bits 4
    """
    from labkit.compress import DeepRecipe, compress_by_name

    recipe = DeepRecipe(sparsity=sparsity, bits=bits, epochs=epochs)
    stages, before, after, images = compress_by_name(checkpoint, out, recipe, dataset=dataset, limit=limit)
    for stage in stages:
        times = stages[0].bytes / stage.bytes
        echo(f"{stage.name:8} {shown(stage.bytes, 'B'):>9}, {times:5.1f} times smaller, in {stage.seconds:.1f} s")
    held = stages[-1].bits
    over = (held["gaps"] + held["indices"]) / held["bound"] - 1
    echo(f"{path_of(out)}: gaps and indices are {over:.1%} above Shannon's bound")
    echo(f"Accuracy: {before:.4f} before, {after:.4f} after ({images:,} test images)")


@app.command()
def build(
    model: Path,
    batch: str = "1:8:64",
    target: list[str] = (),
):
    """Build a TensorRT engine, and show what each layer runs in.

    TensorRT-RTX needs no GPU. The engine goes to artifacts/engines. One that was built before, by this machine and for
    it, is used again.

    model   An ONNX file; its precision is that of the engine.
    batch   SMALLEST:USUAL:LARGEST.
    target  GPU generation such as SM89, repeatable; by default the one here.

    Example: labkit build resnet18-int8.onnx --batch 1:8:64
    """
    from labkit.engines.tensorrt import Settings, compared, obtain

    batches = tuple(int(each) if re.fullmatch("[0-9]+", each) else 0 for each in batch.split(":"))
    engine = obtain(model, Settings(batch=batches, targets=tuple(target)))
    row = engine.row
    echo(f"{path_of(engine.path)} ({_size(engine.path)}, {engine.how}, {row.library} {row.library_version})")
    echo(f"    for {', '.join(target) or row.gpu or 'every GPU that the library knows: none is here'}")
    if engine.built:
        memory = ", ".join(f"{kind} {shown(count, 'B')}" for kind, count in engine.built.memory.items())
        echo(f"    {len(engine.built.kernels)} kernels in {engine.built.seconds:.1f} s; on the GPU: {memory}")
        table = compared(engine.built.source.model, engine.built.kernels)
        for (operator, asked, got), found in table.groupby(["operator", "requested", "actual"]):
            echo(f"    {operator}: {len(found)} ask for {asked}, computed in {got}")
        if row.size_bytes > 2 * engine.built.memory.get("weights", row.size_bytes):
            echo("    Most of the file is code, not weights: in INT8 a small network can take more than in FP32.")


def _size(path):
    return shown(path.stat().st_size, "B")
