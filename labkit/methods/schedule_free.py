"""Schedule-free SGD: a constant learning rate, and a mean of the weights in place of a decay.

What     there are three versions of the weights. z takes the steps of SGD. x is the mean of all z
         so far; it is tested and remains after the training. y lies between z and x; the gradients
         are computed at y
When     the number of steps is not known beforehand: x can be used at any time
Cost     two copies of the weights, and one more pass over them per step; for a network with batch
         norm also one forward pass over the training images per test
Not when a schedule and its length are known and tuned
Source   Defazio et al. 2024, arXiv:2405.15682
"""

import copy

import torch

SCHEDULES = ("constant",)  # the only schedule that goes with this optimizer


class ScheduleFree(torch.optim.Optimizer):
    """SGD without a schedule. The weights of the model are y; `result` returns the model with x.

        z = z - lr * (grad + weight_decay * y)
        x = x + (z - x) * lr^2 / (sum of all lr^2 so far)
        y = (1 - momentum) * z + momentum * x

    params    weights, or (name, weight) pairs
    lr        may rise in a warm-up; steps at a low rate count less in x
    momentum  0 to 1: y is z at 0, and x at 1. `TrainConfig.momentum`, which is SGD's momentum, sets
              it

    The running statistics of batch norm were collected at y. Before each test the training loop
    recomputes them at x over the training images. A running average of the statistics would not do:
    it would mix those of all earlier y.
    """

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0):
        super().__init__(
            params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "total": 0.0}
        )

    @torch.no_grad()
    def step(self):
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            lr = group["lr"]
            momentum = group["momentum"]
            group["total"] += lr**2
            share = lr**2 / group["total"] if group["total"] else 0.0
            for weight in group["params"]:
                if weight.grad is not None:
                    state = self.state[weight] or self._begin(weight)
                    z = state["z"]
                    x = state["x"]
                    z.add_(weight.grad, alpha=-lr).add_(weight, alpha=-lr * group["weight_decay"])
                    x.lerp_(z, share)
                    weight.copy_(z.lerp(x, momentum))

    def _begin(self, weight):
        self.state[weight].update(z=weight.clone(), x=weight.clone())
        return self.state[weight]

    @torch.no_grad()
    def result(self, model):
        """Return a copy of the model with x as its weights."""
        averaged = copy.deepcopy(model)
        for average, weight in zip(averaged.parameters(), model.parameters(), strict=True):
            if weight in self.state:
                average.copy_(self.state[weight]["x"])
        return averaged


def make(named_parameters, config):
    """Return a `ScheduleFree` with the settings of a `TrainConfig`."""
    return ScheduleFree(
        named_parameters, config.learning_rate, config.momentum, config.weight_decay
    )
