"""Gradual pruning, by magnitude or by movement: every few steps a little more of the network goes while it trains on.

What     the sparsity rises along a cubic curve, fast at first and slowly at the end; training heals in between. By
         magnitude the smallest weights go. By movement those go that training moves towards zero, however large they
         are: the score of a weight is the sum of -gradient * weight over the steps
When     90 % and more of the weights shall go. By movement: a pretrained network is fine-tuned for another task, and
         its weights are large for reasons of the old task
Cost     a selection among all weights every few steps; an epoch or more of training. By movement: a second copy of the
         weights, and the scores
Not when a few percent or a half go: pruning once, by magnitude, does as well. By movement: the network was trained on
         these very data; magnitude is then as good, and simpler
Source   Zhu and Gupta 2017, arXiv:1710.01878; movement: Sanh et al. 2020, arXiv:2005.07683
"""

import torch

from labkit.compress.magnitude import (
    SCOPES,
    apply_masks,
    magnitude_masks,
    masks_of,
    prunable,
    sparsity_of,
    top_masks,
)
from labkit.errors import LabError, require_known
from labkit.methods import Hooks


def _cubic_sparsity(step, *, steps, final, initial=0.0, start=0):
    """The sparsity at `step`: final + (initial - final) * (1 - (step - start) / steps)^3.

    steps    how many steps the rise takes, at least 1; before it `initial`, after it `final`
    returns  a share from `initial` to `final`
    """
    way = min(max((step - start) / steps, 0), 1)
    return final + (initial - final) * (1 - way) ** 3


class KeptMask(Hooks):
    """Fine-tunes a pruned network: what is 0 at the beginning stays 0, `fit(..., hooks={"prune": KeptMask()})`.

    The mask is applied after every step, because the optimizer's momentum moves weights that have no gradient.
    """

    def __init__(self):
        super().__init__(None)

    def begin(self, model):
        self.masks = masks_of(model)
        return model

    def after_update(self, model):
        apply_masks(model, self.masks)

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
        require_known(scope, self.scopes, "scope")
        self.value, self.steps, self.start, self.every, self.scope = sparsity, steps, start, every, scope

    def begin(self, model):
        self.step, self.initial = 0, min(sparsity_of(model), self.value)
        return super().begin(model)

    def after_update(self, model):
        self.step += 1
        end = self.start + self.steps
        if self.start < self.step <= end and (self.step % self.every == 0 or self.step == end):
            schedule = {"steps": self.steps, "start": self.start, "initial": self.initial, "final": self.value}
            self.masks = self.chosen(model, _cubic_sparsity(self.step, **schedule))
        super().after_update(model)

    def chosen(self, model, sparsity):
        """The masks at a sparsity; weights that have gone stay 0."""
        masks = magnitude_masks(model, sparsity, scope=self.scope)
        return {name: mask & self.masks[name] for name, mask in masks.items()}

    def state_dict(self):
        return {**super().state_dict(), "step": self.step, "initial": self.initial}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.step, self.initial = state["step"], state["initial"]


class MovementPruning(GradualPruning):
    """Prunes by movement during a training: `fit(..., hooks={"prune": MovementPruning(0.9, steps=1000)})`.

    Settings as of `GradualPruning`, without "lamp". The paper selects in each layer (scope="layer"). The gradient
    passes straight through the mask, so that a weight can come back.
    """

    scopes = SCOPES[:2]

    def begin(self, model):
        self.dense = {name: weight.detach().clone() for name, weight in prunable(model).items()}
        self.scores = {name: torch.zeros_like(weight) for name, weight in self.dense.items()}
        return super().begin(model)

    @torch.no_grad()
    def before_update(self, model):
        """Score by the gradient that passed the mask; then let the optimizer see the weights that are in use."""
        for name, weight in prunable(model).items():
            moved = weight.grad * self.dense[name]
            self.scores[name] -= moved.nan_to_num_(0, 0, 0)  # a step in fp16 that overflows counts for nothing
            weight.grad.mul_(self.masks[name])

    @torch.no_grad()
    def after_update(self, model):
        """Weights in use keep the value of this step; masked ones keep the value that they had."""
        for name, weight in prunable(model).items():
            self.dense[name] = torch.where(self.masks[name], weight, self.dense[name])
            weight.copy_(self.dense[name])
        super().after_update(model)

    def chosen(self, model, sparsity):
        return top_masks(self.scores, sparsity, scope=self.scope)

    def state_dict(self):
        return {**super().state_dict(), "dense": self.dense, "scores": self.scores}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        for name, dense in self.dense.items():
            dense.copy_(state["dense"][name])
            self.scores[name].copy_(state["scores"][name])
