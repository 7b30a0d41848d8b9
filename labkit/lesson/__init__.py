"""The teaching words of every lesson: start, predict, reveal, claim, keep, explore, exercise, answer, recap."""

from labkit.lesson._exercise import exercise
from labkit.lesson._words import answer, claim, explore, keep, predict, recap, reveal, start

__all__ = ["answer", "claim", "exercise", "explore", "keep", "predict", "recap", "reveal", "start"]
