"""LAMB: Adam whose step in each layer is proportional to the length of the layer's weights.

What     Adam's direction plus weight decay, times the trust ratio |w| / |direction| of each layer
When     very large batches where Adam is the optimizer: transformers (BERT at 32k sequences per
         batch)
Cost     that of Adam, and two norms per tensor; 8 bytes of state per weight
Not when the batch is small, or where SGD with momentum is the optimizer
Source   You et al. 2019, algorithm 2, arXiv:1904.00962
"""

import torch

from labkit.methods.lars import LayerWise, add_scaled, norms, scale_all, without_vectors


class LAMB(LayerWise):
    """Layer-wise adaptive moments.

        m, v      = running means of grad and grad^2 with betas, divided by 1 - beta^step
        direction = m / (sqrt(v) + eps) + weight_decay * weight
        weight    = weight - lr * |weight| / |direction| * direction;  ratio 1 where a norm is 0

    params  as for `torch.optim.Adam`; in a group with `adapt=False` the ratio |weight| /
            |direction| is replaced by 1

    timm's Lamb differs in two points: it clips the gradients of all layers together
    (`max_grad_norm=1`), and it does not adapt groups without weight decay. The paper allows lower
    and upper bounds of |weight| in the ratio, without naming any. Neither this class nor timm's has
    such bounds.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01, *, eps=1e-6):
        settings = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "eps": eps}
        super().__init__(params, {**settings, "adapt": True, "step": 0})

    def update(self, weights, grads, group):
        """Update the weights of a group.

        weights, grads  lists of tensors
        group           the settings of the group: an entry of `param_groups`
        """
        group["step"] += 1
        directions, length = self._adam(weights, grads, group)
        torch._foreach_add_(directions, weights, alpha=group["weight_decay"] / length)
        if group["adapt"]:
            w = norms(weights)
            d = length * norms(directions)
            ratios = torch.where((w > 0) & (d > 0), w / d, 1.0)
            add_scaled(weights, directions, -group["lr"] * length * ratios)
        else:
            torch._foreach_add_(weights, directions, alpha=-group["lr"] * length)

    def _adam(self, weights, grads, group):
        """Return (tensors, factor): Adam's direction for a weight is its tensor times the factor.

        The factor holds the corrections of the bias of m and v. It is returned apart, because
        multiplying would take another pass over the tensors.

        weights, grads  lists of tensors
        group           the settings of the group, with "betas", "eps" and the number "step"
        """
        beta1, beta2 = group["betas"]
        first = self.state_tensors(weights, "first")
        second = self.state_tensors(weights, "second")
        torch._foreach_lerp_(first, grads, 1 - beta1)
        scale_all(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, 1 - beta2)
        # with corrections a, b of the bias: (m / a) / (sqrt(v / b) + eps) = sqrt(b) / a * m /
        # (sqrt(v) + eps * sqrt(b))
        root = (1 - beta2 ** group["step"]) ** 0.5
        spread = torch._foreach_sqrt(second)
        torch._foreach_add_(spread, group["eps"] * root)
        return list(torch._foreach_div(first, spread)), root / (1 - beta1 ** group["step"])


def make(named_parameters, config):
    """Return a `LAMB` with the settings of a `TrainConfig`."""
    return LAMB(
        without_vectors(named_parameters),
        config.learning_rate,
        (config.momentum, 0.999),
        config.weight_decay,
    )
