"""The capstones: what is handed in is data, the course itself scores it; two leaderboards, and the deployment card.

score([Submission("int8.onnx", engine="onnxruntime", name="Ada")])     # each in a process of its own: a list of `Score`
race([read_recipe("recipe.toml")], RACES["quick"])                     # trained afresh: a list of `Raced`
board()                                                                # the leaderboard of this machine kind
write_card(score, path, folder)                                        # one page, and a folder that runs on its own
"""
# ruff: noqa: F401 (what is offered here)

from labkit.ship.card import write_card
from labkit.ship.judge import reference_bytes
from labkit.ship.leaderboard import best, board
from labkit.ship.order import FULL, LEVELS, QUICK, ExamSize, Submission
from labkit.ship.recipe import read_recipe, recipe_of
from labkit.ship.scoring import Score, keep_score, score


def __getattr__(name):
    """What judges recipes is imported when it is first asked for: it needs torch."""
    if name in ("RACES", "keep_race", "race"):
        from labkit.ship import racing

        return getattr(racing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
