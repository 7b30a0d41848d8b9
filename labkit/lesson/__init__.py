"""The teaching words of every lesson: start, predict, reveal, claim, keep, exercise, decide, answer, recap."""

from labkit.lesson._exercise import exercise
from labkit.lesson._words import answer, claim, decide, keep, predict, recap, reveal, start

__all__ = ["answer", "claim", "decide", "exercise", "keep", "predict", "recap", "reveal", "start"]
