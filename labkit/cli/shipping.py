"""Commands of the last lesson: submit, leaderboard."""

from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.app import app, path_of


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="An ONNX file, or Python source with `make` (see lesson 19).")],
    engine: Annotated[str | None, typer.Option(help="What shall run the ONNX file, such as onnxruntime.")] = None,
    name: Annotated[str, typer.Option(help="For the leaderboard; the file's own name when none is given.")] = "",
    quick: Annotated[bool, typer.Option(help="Ask fewer pictures: a first look.")] = False,
):
    """Score a submission to the order of lesson 19.

    It is scored in a fresh process, on pictures drawn now. The result goes to the ledger and to the leaderboard. Ends
    with 1 when a gate refuses it.

    Example: labkit submit vgg-int8.onnx --engine onnxruntime --name "Ada"
    """
    from labkit.ship import FULL, QUICK, Submission, keep_score, score

    [found] = score([Submission(file, engine, name)], plan=QUICK if quick else FULL)
    keep_score(found)
    typer.echo(found)
    typer.echo(f"In force here: {', '.join(found.facts.get('in_force', ())) or 'nothing'}")
    raise typer.Exit(1 if found.refused else 0)


@app.command()
def leaderboard(
    merge: Annotated[list[Path] | None, typer.Option(help="Join the file of somebody else, repeatable.")] = None,
    share: Annotated[Path | None, typer.Option(help="Write the own rows as a file for others to merge.")] = None,
    card: Annotated[Path | None, typer.Option(help="A folder for the best submission, with its card.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also other kinds of machine, each on its own.")] = False,
):
    """Show the submissions to the order of lesson 19, best first.

    Only results of one kind of machine are compared, and of each name its newest try. Rows that were merged say which
    file they came from: they were not scored here.

    Example: labkit leaderboard --merge ada.json --merge bob.json
    """
    from labkit.ship import leaderboard as ship
    from labkit.ship import write_card

    for path in merge or ():
        came, left = ship.merge(path)
        typer.echo(f"{path_of(path)}: {came} rows came, {left} were left out")
    if share:
        typer.echo(path_of(ship.share(share)))
    if card:
        row = ship.best()
        typer.echo(path_of(write_card(row, ship.file_of(row), card)))
    typer.echo(ship.as_text(ship.board(everything=everything or bool(merge))))
