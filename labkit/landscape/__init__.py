"""The shape of the loss around a solution: sharpness, curvature, and the way from one solution to another.

`Landscape.of(model, data)` is the loss as a function of all weights as one vector; the rest asks it questions.
"""

from labkit.landscape.curvature import Eigen, hessian_vector, top_eigenvalue
from labkit.landscape.loss import Landscape
from labkit.landscape.paths import Surface, filter_normalised, interpolate, random_direction, surface
from labkit.landscape.sharpness import Sharpness, sharpness

__all__ = [
    "Eigen",
    "Landscape",
    "Sharpness",
    "Surface",
    "filter_normalised",
    "hessian_vector",
    "interpolate",
    "random_direction",
    "sharpness",
    "surface",
    "top_eigenvalue",
]
