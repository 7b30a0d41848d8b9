"""The shape of the loss around a solution: sharpness, curvature, and the way from one solution to another.

`Landscape.of(model, data)` is the loss as a function of all weights as one vector; the rest asks it questions.
"""

from labkit.landscape.curvature import top_eigenvalue
from labkit.landscape.loss import Landscape
from labkit.landscape.paths import interpolate, surface
from labkit.landscape.sharpness import sharpness

__all__ = ["Landscape", "interpolate", "sharpness", "surface", "top_eigenvalue"]
