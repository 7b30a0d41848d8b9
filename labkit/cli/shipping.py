"""Commands of the two capstones: submit, leaderboard."""

from pathlib import Path
from typing import Annotated

from typer import Exit, Option, echo

from labkit.cli.app import app, path_of


@app.command()
def submit(
    file: Path,
    engine: str = "onnxruntime",
    name: str = "",
    quick: bool = False,
):
    """Score a file, or a recipe to train with.

    A file is for the order of lesson 19: a process of its own opens and serves it, and the pictures are drawn
    afterwards. A recipe, of lesson 10, is trained afresh, in turn with the reference recipe, over seeds and splits that
    are drawn then. The result goes to the ledger and to the leaderboard. Ends with 1 when there is no score.

    file    An ONNX file, or a recipe: a .toml file.
    engine  What shall run an ONNX file, such as openvino.
    name    For the leaderboard; the file's own name when none is given.
    quick   Fewer pictures, or an easier target: a first look.

    Example: labkit submit vgg-int8.onnx --engine onnxruntime --name "Ada"
    """
    from labkit import ship

    if file.suffix == ".toml":
        against = ship.RACES["quick" if quick else "lab"]
        _, found = ship.race([ship.read_recipe(file, name)], against)
        ship.keep_race(found, against)
    else:
        [found] = ship.score([ship.Submission(file, engine, name)], size=ship.QUICK if quick else ship.FULL)
        ship.keep_score(found)
    echo(found)
    raise Exit(1 if found.points is None else 0)


@app.command()
def leaderboard(
    card: Path | None = None,
    everything: Annotated[bool, Option("--all")] = False,
):
    """Show the submissions of lessons 10 and 19, best first.

    Only results of one kind of machine are compared, and of each name its newest try. Scores that came with `labkit
    ledger merge` stand below, as reported: they were not judged here.

    card        A folder for the best file, with its card.
    everything  Also other kinds of machine, each on its own.

    Example: labkit leaderboard --card delivery
    """
    from labkit.ledger.rows import RaceScore
    from labkit.ship import best, board, write_card
    from labkit.ship.leaderboard import as_text
    from labkit.ship.order import file_of

    if card:
        row = best()
        echo(path_of(write_card(row, file_of(row.sha256), card)))
    echo(as_text(board(RaceScore, everything=everything) | board(everything=everything)))
