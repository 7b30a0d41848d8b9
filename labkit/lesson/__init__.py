"""The teaching words of every lesson: start, predict, reveal, claim, keep, explore, exercise, recap."""

from labkit.lesson._exercise import exercise
from labkit.lesson._words import claim, explore, keep, predict, recap, reveal, start

__all__ = ["claim", "exercise", "explore", "keep", "predict", "recap", "reveal", "start"]
