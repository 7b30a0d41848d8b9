"""Gradual pruning: a little more of the network goes every few steps while it trains on.

What     the sparsity rises along a cubic curve, fast at first and slowly at the end; training heals in between
When     90 % and more of the weights shall go
Cost     a selection among all weights every few steps; an epoch or more of training
Not when a few percent or a half go: once, by magnitude, does as well
Source   Zhu and Gupta 2017, arXiv:1710.01878
"""

from labkit.compress.magnitude import SCOPES, keep, magnitude_masks, masks_of, require_scope, sparsity_of
from labkit.errors import LabError
from labkit.methods import Hooks


def cubic_sparsity(step, *, steps, final, initial=0.0, start=0):
    """The sparsity at `step`: final + (initial - final) * (1 - (step - start) / steps)^3.

    steps    how many steps the rise takes, at least 1; before it `initial`, after it `final`
    returns  a share from `initial` to `final`
    """
    way = min(max((step - start) / steps, 0), 1)
    return final + (initial - final) * (1 - way) ** 3


class KeptMask(Hooks):
    """Fine-tunes a pruned network: what is 0 at the beginning stays 0, `fit(..., hooks={"prune": KeptMask()})`.

    The mask is laid on after every step, for momentum and weight decay of the optimizer know nothing of it.
    """

    def __init__(self):
        super().__init__(None)

    def begin(self, model):
        self.masks = masks_of(model)
        return model

    def after_update(self, model):
        keep(model, self.masks)

    def state_dict(self):
        return {"masks": self.masks}

    def load_state_dict(self, state):
        self.masks = {name: mask.to(self.masks[name].device) for name, mask in state["masks"].items()}


class GradualPruning(KeptMask):
    """Prunes by magnitude during a training: `fit(..., hooks={"prune": GradualPruning(0.9, steps=1000)})`.

    sparsity  share of the prunable weights that has gone at the end, 0 to 1; what is 0 already counts
    steps     training steps over which the sparsity rises, at least 1; later ones heal
    start     the step at which it begins to rise
    every     steps between two prunings
    scope     "global", "layer" or "lamp", as in `magnitude_masks`
    """

    scopes = SCOPES

    def __init__(self, sparsity, *, steps, start=0, every=10, scope="global"):
        super().__init__()
        if not 0 <= sparsity <= 1 or min(steps, every) < 1 or start < 0:
            raise LabError(
                "This is no schedule of pruning.",
                expected="a sparsity from 0 to 1, steps and every of at least 1, start of at least 0",
                found=f"sparsity {sparsity}, steps {steps}, every {every}, start {start}",
            )
        require_scope(scope, self.scopes)
        self.value, self.steps, self.start, self.every, self.scope = sparsity, steps, start, every, scope

    def begin(self, model):
        self.step, self.initial = 0, min(sparsity_of(model), self.value)
        return super().begin(model)

    def after_update(self, model):
        self.step += 1
        end = self.start + self.steps
        if self.start < self.step <= end and (self.step % self.every == 0 or self.step == end):
            schedule = {"steps": self.steps, "start": self.start, "initial": self.initial, "final": self.value}
            self.masks = self.chosen(model, cubic_sparsity(self.step, **schedule))
        super().after_update(model)

    def chosen(self, model, sparsity):
        """The masks at a sparsity; what has gone stays away."""
        masks = magnitude_masks(model, sparsity, scope=self.scope)
        return {name: mask & self.masks[name] for name, mask in masks.items()}

    def state_dict(self):
        return {**super().state_dict(), "step": self.step, "initial": self.initial}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.step, self.initial = state["step"], state["initial"]
