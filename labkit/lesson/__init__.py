"""Offer the functions that the cells of a lesson call, from `start` to `recap`.

docs/writing-lessons.md shows each of them with an example.
"""

from labkit.lesson._exercise import exercise
from labkit.lesson._findings import answer, claim, conclude
from labkit.lesson._predicting import predict, reveal
from labkit.lesson._words import check_yourself, decide, keep, keep_mine, recap, start
from labkit.lesson.machine import show_machine

__all__ = [
    "answer",
    "check_yourself",
    "claim",
    "conclude",
    "decide",
    "exercise",
    "keep",
    "keep_mine",
    "predict",
    "recap",
    "reveal",
    "show_machine",
    "start",
]
