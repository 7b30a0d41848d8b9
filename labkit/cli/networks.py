"""Commands for networks: bench, train."""

from typing import Annotated

import typer

from labkit.cli.app import app, path_of
from labkit.engines import PRECISIONS, names
from labkit.errors import require_known


@app.command()
def bench(
    model: Annotated[str, typer.Argument(help="A network of the course, such as cnn-large, or an .onnx file.")],
    engine: Annotated[str, typer.Option(help=f"{', '.join(names())}; all: one after the other.")] = "eager",
    batch: Annotated[
        list[int] | None,
        typer.Option(help="Images per call, repeatable; 1 by default.", min=1, max=999_999),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help=f"{', '.join(PRECISIONS)}; fp32, or what the file holds, when none is given.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; as many as torch uses by default.", min=1)] = None,
    seconds: Annotated[float, typer.Option(help="Time for each batch size.")] = 3.0,
):
    """Measure a network's latency and throughput.

    The rows go to the ledger.

    Example: labkit bench cnn-large --engine inductor --batch 1 --batch 64 --precision bf16
    """
    from labkit.engines.bench import bench as measured
    from labkit.measure import Plan

    sizes, plan = batch or [1], Plan(seconds=seconds)
    for each in names() if engine == "all" else (engine,):
        rows = measured(model, sizes, engine=each, precision=precision, threads=threads, plan=plan)
        for number, size in enumerate(sizes, start=1):
            typer.echo(f"{number}/{len(sizes)} {model} {each}, batch {size} ...")
            typer.echo(f"    {next(rows).summary()}")


@app.command()
def search(
    question: Annotated[str, typer.Argument(help="What you want to know, in your own words.")],
    count: Annotated[int, typer.Option(help="How many paragraphs to show.", min=1, max=100)] = 5,
):
    """Find what the course says about a question.

    It shows the paragraphs that come nearest. MiniLM compares meanings, so the words need not be the same. The first
    call reads the whole course, about half a minute; it is read again when a lesson has changed.

    Example: labkit search "why does a small batch waste the processor?"
    """
    from labkit.text import course_index

    for hit in course_index().search(question, count):
        typer.echo(f"{hit.cosine:.2f}  {hit.paragraph.lesson}\n      {hit.paragraph.text}")


@app.command()
def train(
    model: Annotated[str, typer.Option(help="A network of the course, such as resnet18.")] = "cnn-medium",
    dataset: Annotated[str, typer.Option(help="A set of `labkit data list`, or folder:PATH.")] = "fashion-mnist",
    epochs: Annotated[int, typer.Option("--epochs", "--n-epochs", min=1, help="Passes over the data.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per step.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="The peak of the one-cycle schedule.")] = 0.01,
    size: Annotated[int | None, typer.Option(min=8, help="Pixels a side; as the network takes them.")] = None,
    augment: Annotated[bool, typer.Option("--augment", help="Crop and mirror the training images at random.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and order.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only so many training images.")] = None,
    num_workers: Annotated[int | None, typer.Option(min=0, help="Load image by image in so many processes.")] = None,
    pin_memory: Annotated[bool, typer.Option("--pin-memory", help="Page-locked memory for these images.")] = False,
    cudnn_autotuner: Annotated[bool, typer.Option("--cudnn-autotuner", help="Time the algorithms first.")] = False,
    torchscript: Annotated[bool, typer.Option("--torchscript", "--use-torchscript", help="TorchScript.")] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Run the network through torch.compile.")] = False,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Images as NHWC in memory.")] = False,
    amp: Annotated[str | None, typer.Option(help="bf16 or fp16; fp32 when none is given.")] = None,
    profile: Annotated[str, typer.Option(help="Which profile to write: cprofile, torch or none.")] = "cprofile",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="One step, and nothing is written.")] = False,
):
    """Train a network.

    Ends with a checkpoint, a profile and the validation accuracy.

    Example: labkit train --model cnn-large --epochs 3 --compile --amp bf16 --profile torch
    """
    from labkit.train import TrainConfig
    from labkit.train.by_name import training

    require_known(profile, ("cprofile", "torch", "none"), "profile")
    config = TrainConfig(
        epochs=epochs, batch=batch_size, learning_rate=learning_rate, size=size, augment=augment, seed=seed,
        workers=num_workers, pin_memory=pin_memory, cudnn_autotuner=cudnn_autotuner, torchscript=torchscript,
        compile=compiled, channels_last=channels_last, amp=amp,
    )  # fmt: skip
    work = training(model, dataset, config, limit=limit)
    typer.echo(f"{model} on {work.train}, {epochs} epochs of batch {batch_size} on {work.device}")
    for switch, reason in config.idle(work.device).items():
        typer.echo(f"--{switch.replace('_', '-')} has no effect here: {reason}")
    if dry_run:
        typer.echo(f"Dry run: one step took {work.dry_run().seconds:.2f} s; nothing was written.")
        return
    history, checkpoint, written = work.run(resume=resume, profile=None if profile == "none" else profile)
    if history.restored == epochs:
        typer.echo(
            f"Nothing was left to train: the checkpoint holds all {epochs} epochs. Without --resume it starts over."
        )
    typer.echo(f"{history.steps} steps in {history.seconds:.1f} s")
    typer.echo(f"Checkpoint: {path_of(checkpoint)}")
    if written:
        opens = "snakeviz FILE, which `pip install snakeviz` brings" if profile == "cprofile" else "ui.perfetto.dev"
        typer.echo(f"Profile: {path_of(written)} (opens with {opens})")
    typer.echo(f"Validation accuracy: {history.accuracy[-1]:.4f} ({len(work.test):,} images of {dataset} test)")
