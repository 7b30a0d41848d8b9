"""The capstone: an order, submissions that the course itself scores, a leaderboard, and the deployment card.

score([Submission("int8.onnx", engine="onnxruntime", name="Ada")])     # in a fresh process: a list of `Score`
board()                                                                # the leaderboard of this machine kind
write_card(score, path, folder)                                        # one page, and a folder that runs on its own
"""

from labkit.ship.card import deployment, precisions, write_card
from labkit.ship.leaderboard import best, board, merge, share
from labkit.ship.order import FULL, LEVELS, QUICK, Level, Plan
from labkit.ship.scoring import Score, keep_score, score
from labkit.ship.submission import Submission

__all__ = ["FULL", "LEVELS", "QUICK", "Level", "Plan", "Score", "Submission", "best", "board", "deployment"]
__all__ += ["keep_score", "merge", "precisions", "score", "share", "write_card"]
