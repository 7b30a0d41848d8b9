"""Muon: the step of a weight matrix is its momentum, made orthogonal.

What     the momentum of a layer has the singular value decomposition U S V^T; the step is U V^T, so
         that all its directions have the same length
When     hidden layers of networks trained from scratch, whose weights are matrices; the weights of
         a convolution count as a matrix (out, in * height * width)
Cost     15 products with a small matrix per layer and step, in bfloat16; 4 bytes of state per
         weight
Not when a weight is a vector, or the first or the last matrix of the network: AdamW updates these
         here
Source   Jordan et al. 2024, kellerjordan.github.io/posts/muon; the length of a step: Liu et al.
         2025, arXiv:2502.16982
"""

from collections import defaultdict

import torch

STEPS = 5  # of the iteration in `_orthogonal`
# of its polynomial; they bring singular values to 0.7 to 1.2
COEFFICIENTS = (3.4445, -4.775, 2.0315)


class Muon(torch.optim.AdamW):
    """Muon for the hidden matrices, AdamW for the other weights, with one rate for both.

        mean   = running mean of grad with beta1;  slope = grad + beta1 * (mean - grad)
        weight = weight - lr * weight_decay * weight
                 - lr * 0.2 * sqrt(longest side) * orthogonal(slope)

    named_parameters  (name, weight) pairs in the order of the layers; the first and the last matrix
                      are not hidden
    betas             (beta1, beta2); only AdamW uses beta2
    """

    def __init__(self, named_parameters, lr, betas, weight_decay):
        named = list(named_parameters)
        matrices = [name for name, weight in named if weight.ndim > 1]
        hidden = set(matrices[1:-1])
        hidden_pairs = [(name, weight) for name, weight in named if name in hidden]
        outer_pairs = [(name, weight) for name, weight in named if name not in hidden]
        groups = [
            {"params": hidden_pairs, "hidden": True},
            {"params": outer_pairs, "hidden": False},
        ]
        groups = [group for group in groups if group["params"]]
        super().__init__(groups, lr=lr, betas=betas, weight_decay=weight_decay)

    def __setstate__(self, state):
        """Load a state of all weights, such as `load_state_dict` passes.

        The state of a hidden matrix is its running mean. AdamW expects a count of steps in every
        state that it loads, and the hidden matrices have none. So only the states of the other
        weights are passed to AdamW.
        """
        of_hidden = {}
        of_outer = defaultdict(dict)
        for weight, tensors in state["state"].items():
            if "mean" in tensors:
                of_hidden[weight] = tensors
            else:
                of_outer[weight] = tensors
        super().__setstate__({**state, "state": of_outer})
        self.state.update(of_hidden)

    @torch.no_grad()
    def step(self):
        """Update every weight that has a gradient."""
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group["hidden"]]
        super().step()
        self.param_groups = groups
        for group in groups:
            if group["hidden"]:
                self._step_hidden(group)

    def _step_hidden(self, group):
        beta = group["betas"][0]
        lr = group["lr"]
        for weight in group["params"]:
            if weight.grad is not None:
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                mean.lerp_(weight.grad, 1 - beta)
                matrix = weight.grad.lerp(mean, beta).flatten(1)
                weight.mul_(1 - lr * group["weight_decay"])
                weight.add_(
                    _orthogonal(matrix).view_as(weight), alpha=-lr * 0.2 * max(matrix.shape) ** 0.5
                )


def _orthogonal(matrix):
    """Return about U V^T, where U S V^T is the singular value decomposition of a matrix.

    It is computed by Newton and Schulz's iteration: a polynomial in products of the matrix brings
    all singular values near 1.

    matrix   (a, b)
    returns  (a, b), in the dtype of the matrix
    """
    is_tall = len(matrix) > len(matrix.T)
    x = matrix.bfloat16()
    if is_tall:  # with the small side first, the products are smaller
        x = x.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(STEPS):
        a, b, c = COEFFICIENTS
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    if is_tall:
        x = x.T
    return x.to(matrix.dtype)


def make(named_parameters, config):
    """Return a `Muon` with the settings of a `TrainConfig`."""
    return Muon(
        named_parameters, config.learning_rate, (config.momentum, 0.999), config.weight_decay
    )
