"""The capstone: an order, submissions that the course itself scores, a leaderboard, and the deployment card.

score([Submission("int8.onnx", engine="onnxruntime", name="Ada")])     # each in a process of its own: a list of `Score`
board()                                                                # the leaderboard of this machine kind
write_card(score, path, folder)                                        # one page, and a folder that runs on its own
"""

from labkit.ship.card import write_card
from labkit.ship.judge import reference_bytes
from labkit.ship.leaderboard import best, board
from labkit.ship.order import FULL, LEVELS, QUICK, ExamSize, Submission
from labkit.ship.scoring import Score, keep_score, score

__all__ = ["FULL", "LEVELS", "QUICK", "ExamSize", "Score", "Submission", "best", "board"]
__all__ += ["keep_score", "reference_bytes", "score", "write_card"]
