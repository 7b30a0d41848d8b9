"""The two capstones. What is handed in is data and never code; the course itself scores it.

from labkit.capstone.judge import score      # files to the order of the last lesson: a `Score` each
from labkit.capstone.race import RACES, race  # recipes that train fast, of lesson 11: a `Raced`
                                              each
"""
