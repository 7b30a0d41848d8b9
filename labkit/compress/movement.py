"""Movement pruning: weights that training moves towards zero go, however large they are.

What     a score per weight, the sum of -gradient * weight over the steps; the lowest scores are masked, and the
         gradient passes straight through the mask, so that a weight can come back
When     a pretrained network is fine-tuned for another task: its weights are large for the old task's reasons
Cost     a second copy of the weights, and the scores; a selection among them every few steps
Not when the network was trained on these very data: magnitude is then as good, and simpler
Source   Sanh et al. 2020, arXiv:2005.07683
"""

import torch

from labkit.compress.gradual import GradualPruning
from labkit.compress.magnitude import SCOPES, prunable, top_masks


class MovementPruning(GradualPruning):
    """Prunes by movement during a training: `fit(..., hooks={"prune": MovementPruning(0.9, steps=1000)})`.

    Settings as of `GradualPruning`, without "lamp". The paper selects in each layer (scope="layer").
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
            self.scores[name] -= moved.nan_to_num_(0, 0, 0)  # of a step in fp16 that the scaler will leave out
            weight.grad.mul_(self.masks[name])

    @torch.no_grad()
    def after_update(self, model):
        """What is in use has moved; what is masked waits with the value it had."""
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
