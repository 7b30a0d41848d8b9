"""Gradual pruning: every few steps a little more of the network goes while it trains on.

What     the sparsity rises along a cubic curve, fast at first and slowly at the end; training heals
         in between. The smallest weights go
When     90 % and more of the weights shall go
Cost     a selection among all weights every few steps; an epoch or more of training
Not when a few percent or a half go: pruning once does as well
Source   Zhu and Gupta 2017, arXiv:1710.01878
"""

from labkit.compress.magnitude import SCOPES, apply_masks, magnitude_masks, masks_of, sparsity_of
from labkit.errors import require_known
from labkit.methods import Hooks


def _cubic_sparsity(progress, initial, final):
    """Return the sparsity after a share of the steps, 0 to 1: final + (initial - final) * (1 -
    progress)^3.
    """
    return final + (initial - final) * (1 - progress) ** 3


class GradualPruning(Hooks):
    """Prunes by magnitude during a training: `fit(..., hooks={"prune": GradualPruning(0.9,
    steps=1000)})`.

    sparsity  share of the prunable weights that has gone at the end, 0 to 1; what is 0 already
              counts
    steps     training steps over which the sparsity rises, at least 1; later ones heal
    every     steps between two prunings
    scope     "global", "layer" or "lamp", as in `magnitude_masks`
    The mask is applied after every step, because the optimizer's momentum moves weights that have
    no gradient.
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
            # what has gone stays 0
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
