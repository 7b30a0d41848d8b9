"""EMA: a running average of the weights, tested in place of the last ones.

What     after each step, average += (1 - decay) * (weights - average)
When     the last weights jump about: large learning rates, small batches, schedules that do not end near 0
Cost     one pass over the weights per step, and a second copy of them
Not when the schedule ends near 0: there the average lies where the weights do; short trainings, which it lags behind
Source   Polyak and Juditsky 1992; as used for networks: Tarvainen and Valpola 2017, arXiv:1703.01780
"""

import copy

import torch
from torch import nn

from labkit.methods import Hooks


class EMA(nn.Module):
    """The averaged model: call it like the model, after `update(model)` behind each step.

    model  copied; its weights are where the average starts
    decay  0 to 1; the average reaches back about 1 / (1 - decay) steps
    Whole numbers and running statistics are taken over as they are: they are counts, or averages already.
    """

    def __init__(self, model, decay):
        super().__init__()
        self.decay, self.model = decay, copy.deepcopy(model).requires_grad_(False)

    def forward(self, *inputs):
        return self.model(*inputs)

    @torch.no_grad()
    def update(self, model):
        """Move the average towards the weights of `model`."""
        torch._foreach_lerp_(list(self.model.parameters()), list(model.parameters()), 1 - self.decay)
        if buffers := list(self.model.buffers()):
            torch._foreach_copy_(buffers, list(model.buffers()))


class Method(Hooks):
    """In training: `TrainConfig(ema=0.999)`; the average is tested and left in place of the last weights."""

    def begin(self, model):
        self.average = EMA(model, self.value)
        return model

    def after_update(self, model):
        self.average.update(model)

    def result(self, model):
        return self.average

    def state_dict(self):
        return self.average.state_dict()

    def load_state_dict(self, state):
        self.average.load_state_dict(state)
