"""Gradual pruning: removes a few more weights every few steps, while the network trains on.

What     the share of weights that are 0 (the sparsity) rises along a cubic curve, fast at first and
         slowly at the end; training recovers the accuracy in between. The weights with the smallest
         absolute values are removed
When     90 % and more of the weights shall be removed
Cost     a selection among all weights every few steps; an epoch or more of training
Not when a half of the weights or fewer shall be removed: pruning once does as well
Source   Zhu and Gupta 2017, arXiv:1710.01878
"""

from labkit.compress.magnitude import SCOPES, apply_masks, magnitude_masks, masks_of, sparsity_of
from labkit.errors import require_known
from labkit.methods import Hooks


def _cubic_sparsity(progress, initial, final):
    """Return the sparsity at a moment of the training, on the cubic curve.

    It is final + (initial - final) * (1 - progress)^3.

    progress        share of the pruning steps that are done, 0 to 1
    initial, final  sparsity at the beginning and at the end, 0 to 1
    """
    return final + (initial - final) * (1 - progress) ** 3


class GradualPruning(Hooks):
    """Prune by magnitude during a training: `hooks={"prune": GradualPruning(0.9, steps=1000)}`.

    The pruned weights are set to 0 again after every step, because the optimizer's momentum moves
    them even without a gradient.

    sparsity  share of the prunable weights that are 0 at the end, 0 to 1. Weights that were 0 from
              the beginning count as well
    steps     number of training steps over which the sparsity rises, at least 1. After them the
              sparsity stays the same
    every     number of steps from one pruning to the next
    scope     "global", "layer" or "lamp", as in `magnitude_masks`
    """

    def __init__(self, sparsity, *, steps, every=10, scope="global"):
        super().__init__(sparsity)
        require_known(scope, SCOPES, "scope")
        self.steps = steps
        self.every = every
        self.scope = scope

    def begin(self, model):
        self.step = 0
        self.initial = min(sparsity_of(model), self.value)
        self.masks = masks_of(model)
        return model

    def after_update(self, model):
        self.step += 1
        rises = self.step < self.steps and self.step % self.every == 0
        if rises or self.step == self.steps:
            sparsity = _cubic_sparsity(self.step / self.steps, self.initial, self.value)
            masks = magnitude_masks(model, sparsity, scope=self.scope)
            # a weight that was removed stays 0
            self.masks = {name: mask & self.masks[name] for name, mask in masks.items()}
        apply_masks(model, self.masks)

    def state_dict(self):
        return {"masks": self.masks, "step": self.step, "initial": self.initial}

    def load_state_dict(self, state):
        self.step = state["step"]
        self.initial = state["initial"]
        self.masks = {
            name: mask.to(self.masks[name].device) for name, mask in state["masks"].items()
        }
