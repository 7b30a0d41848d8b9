"""The teaching words of every lesson: start, predict, reveal, claim, keep, exercise, answer, recap."""

from labkit.lesson._exercise import exercise
from labkit.lesson._words import answer, claim, keep, predict, recap, reveal, start

__all__ = ["answer", "claim", "exercise", "keep", "predict", "recap", "reveal", "start"]
