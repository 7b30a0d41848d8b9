"""Commands for networks: bench."""

from typing import Annotated

import typer

from labkit.cli.app import app


@app.command()
def bench(
    model: Annotated[str, typer.Argument(help="A network of the course, such as cnn-large, or an .onnx file.")],
    engine: Annotated[str, typer.Option(help="eager, inductor, onnxruntime, openvino or tensorrt.")] = "eager",
    batch: Annotated[list[int] | None, typer.Option(help="Images a call, repeatable; 1 when none is given.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16, fp16 or int8; fp32, or what the file holds, when none is given.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; as many as torch uses when none is given.")] = None,
    seconds: Annotated[float, typer.Option(help="Time for each batch size.")] = 3.0,
):
    """Measure a network's latency and throughput; the rows go to the ledger.

    Example: labkit bench cnn-large --engine inductor --batch 1 --batch 64 --precision bf16
    """
    from labkit.bench import bench as measured
    from labkit.measure import Plan

    sizes = batch or [1]
    rows = measured(model, sizes, engine=engine, precision=precision, threads=threads, plan=Plan(seconds=seconds))
    for number, size in enumerate(sizes, start=1):
        typer.echo(f"{number}/{len(sizes)} {model} {engine}, batch {size} ...")
        typer.echo(f"    {next(rows).summary()}")
