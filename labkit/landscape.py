"""The shape of the loss around a solution: sharpness, curvature, and the way from one solution to another."""
