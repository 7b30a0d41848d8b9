"""Commands of the last lesson: submit, leaderboard."""

from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.app import app, path_of


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="An ONNX file.")],
    engine: Annotated[str, typer.Option(help="What shall run it, such as openvino.")] = "onnxruntime",
    name: Annotated[str, typer.Option(help="For the leaderboard; the file's own name when none is given.")] = "",
    quick: Annotated[bool, typer.Option(help="Ask fewer pictures: a first look.")] = False,
):
    """Score a submission to the order of lesson 19.

    A process of its own opens and serves the file; the pictures are drawn afterwards. The result goes to the ledger and
    to the leaderboard. Ends with 1 when a gate refuses it.

    Example: labkit submit vgg-int8.onnx --engine onnxruntime --name "Ada"
    """
    from labkit.ship import FULL, QUICK, Submission, keep_score, score

    [found] = score([Submission(file, engine, name)], size=QUICK if quick else FULL)
    keep_score(found)
    typer.echo(found)
    raise typer.Exit(1 if found.refused else 0)


@app.command()
def leaderboard(
    card: Annotated[Path | None, typer.Option(help="A folder for the best submission, with its card.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also other kinds of machine, each on its own.")] = False,
):
    """Show the submissions to the order of lesson 19, best first.

    Only results of one kind of machine are compared, and of each name its newest try. Scores that came with `labkit
    ledger merge` stand below, as reported: they were not judged here.

    Example: labkit leaderboard --card delivery
    """
    from labkit.ship import best, board, write_card
    from labkit.ship.leaderboard import as_text
    from labkit.ship.order import file_of

    if card:
        row = best()
        typer.echo(path_of(write_card(row, file_of(row.sha256), card)))
    typer.echo(as_text(board(everything=everything)))
