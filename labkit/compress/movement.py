"""Movement pruning: weights that training moves towards zero go, however large they are.

What     a score per weight, the sum of -gradient * weight over the steps; the lowest scores are masked, the gradient
         passes straight through the mask, so that a weight can come back
When     a pretrained network is fine-tuned for another task: its weights are large for the old task's reasons
Cost     a second copy of the weights and the scores; a sort every few steps
Not when the network was trained on these very data: magnitude is then as good and simpler
Source   Sanh et al. 2020, arXiv:2005.07683
"""

from labkit.compress.gradual import GradualPruning


class MovementPruning(GradualPruning):
    """As `GradualPruning`, by movement: `fit(..., hooks={"prune": MovementPruning(0.9, steps=1000)})`."""
