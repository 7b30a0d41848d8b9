"""Commands of the two capstones: submit, leaderboard."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, echo

from labkit.cli.app import app, path_of


@app.command()
def submit(
    file: Annotated[Path, Argument(help="An ONNX file, or a recipe: a .toml file.")],
    engine: Annotated[
        str, Option(help="What shall run an ONNX file, such as openvino.")
    ] = "onnxruntime",
    name: Annotated[
        str, Option(help="For the leaderboard; the file's own name when none is given.")
    ] = "",
    quick: Annotated[
        bool, Option(help="Fewer pictures, or an easier target: a first look.")
    ] = False,
):
    """Score a file, or a recipe to train with.

    A file is for the order of lesson 20: a process of its own opens and serves it, and the pictures
    are drawn afterwards. A recipe, of lesson 11, is trained afresh, in turn with the reference
    recipe, over seeds and splits that are drawn then. The result goes to the ledger and to the
    leaderboard. Ends with 1 when there is no score.

    Example: labkit submit vgg-int8.onnx --engine onnxruntime --name "Ada"
    """
    if file.suffix == ".toml":
        from labkit.capstone.race import RACES, keep_race, race
        from labkit.capstone.recipe import read_recipe

        against = RACES["quick" if quick else "lab"]
        _, result = race([read_recipe(file, name)], against)
        keep_race(result, against)
    else:
        from labkit.capstone.exam import FULL, QUICK
        from labkit.capstone.judge import keep_score, score
        from labkit.capstone.order import Submission

        [result] = score([Submission(file, engine, name)], size=QUICK if quick else FULL)
        keep_score(result)
    echo(result)
    raise Exit(1 if result.points is None else 0)


@app.command()
def leaderboard(
    card: Annotated[Path | None, Option(help="A folder for the best file, with its card.")] = None,
    everything: Annotated[
        bool, Option("--all", help="Also other kinds of machine, each on its own.")
    ] = False,
):
    """Show the submissions of lessons 11 and 20, best first.

    Only results of one kind of machine are compared, and of each name its newest try. Scores that
    came with `labkit ledger merge` stand below, as reported: they were not judged here.

    Example: labkit leaderboard --card delivery
    """
    from labkit.capstone.order import stored_file
    from labkit.ledger.rows import RaceScore
    from labkit.report.deployment_card import write_card
    from labkit.report.leaderboard import as_text, best, board

    if card:
        row = best()
        echo(path_of(write_card(row, stored_file(row.sha256), card)))
    echo(as_text(board(RaceScore, everything=everything) | board(everything=everything)))
