"""The command `labkit gpu`; `python -m labkit.gpu` needs PyTorch alone and does the same."""

from pathlib import Path
from typing import Annotated

from typer import Option, echo

from labkit.cli.app import app

MINUTES = 20.0  # as labkit.gpu.watch has it, which is imported only when it is asked to measure


@app.command()
def gpu(
    only: Annotated[
        str | None,
        Option(help="Items of --list, with commas; they are measured also if they are done."),
    ] = None,
    minutes: Annotated[
        float,
        Option(
            help="After so many nothing more is begun. The first five have the "
            "tables that matter most."
        ),
    ] = MINUTES,
    tiny: Annotated[
        bool, Option(help="Tiny sizes, to try it on a CPU: the numbers mean nothing.")
    ] = False,
    out: Annotated[Path | None, Option(help="Where to; artifacts/gpu by default.")] = None,
    hardware: Annotated[
        str | None,
        Option(
            help='A name for this machine, such as "RTX 4090, Ryzen 7950X"; by default as the '
            "card calls itself."
        ),
    ] = None,
    list_: Annotated[bool, Option("--list", help="List the items, and measure nothing.")] = False,
):
    """Measure the published experiments on this GPU.

    They come in order of worth. Each row is on disk before the next is measured, so an interruption
    loses nothing, and the same command goes on. It ends with one record of named hardware; copied
    to artifacts/recorded, lessons show it.

    Example: labkit gpu --minutes 20 --hardware "RTX 4090, Ryzen 7950X"
    """
    from labkit.gpu import ITEMS, measure

    if list_:
        for name, item in ITEMS.items():
            echo(f"{name:16} {item.title}")
        return
    chosen = only.split(",") if only else None
    measure(chosen, minutes=minutes, tiny=tiny, folder=out, hardware=hardware, say=echo)
