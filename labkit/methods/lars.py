"""LARS: SGD whose step in each layer is proportional to the length of the layer's weights.

What     each layer's gradient g is scaled by trust * |w| / (|g| + weight_decay * |w|); then
         momentum as in SGD
When     very large batches (above about 8k images), where one rate for all layers is too large for
         some of them
Cost     two norms per tensor: less than a second SGD step; at a few hundred images per batch there
         is nothing to gain
Not when the batch is small. For biases and norms, `make` leaves the scaling out, as published
         trainings do: a bias begins at 0, so its length is 0, and a step in proportion to this
         length would hardly move the bias
Source   You, Gitman, Ginsburg 2017, arXiv:1708.03888
"""

import torch

# torch.optim computes with `torch._foreach_...`, one call for all tensors; there is no public name
# for these functions.


class LayerWise(torch.optim.Optimizer):
    """The base class of LARS and LAMB, which scale the step of each layer by a factor.

    Each tensor counts as a layer. A subclass has a method update(weights, grads, group).
    """

    @torch.no_grad()
    def step(self):
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self.update(weights, [weight.grad for weight in weights], group)

    def state_tensors(self, weights, name):
        """Return the state tensors named `name`, one for each weight; new ones begin at 0."""
        states = [self.state[weight] for weight in weights]
        for weight, state in zip(weights, states, strict=True):
            if name not in state:
                state[name] = torch.zeros_like(weight)
        return [state[name] for state in states]


class LARS(LayerWise):
    """Layer-wise adaptive rate scaling.

        slope    = grad + weight_decay * weight
        ratio    = trust * |weight| / (|grad| + weight_decay * |weight| + eps)
                   or trust where a norm is 0
        velocity = momentum * velocity + ratio * slope
        weight   = weight - lr * velocity

    params  as for `torch.optim.SGD`; in a group with `adapt=False` the ratio is `trust`, so that
            the group takes the steps of SGD with the rate lr * trust
    lr      the global rate. The ratio makes steps small, so with the usual `trust` of 0.001 this
            rate is some hundred times the one for SGD
    eps     added to the divisor of the ratio

    The paper multiplies the velocity's new part by lr. Here, as in torch's SGD, the whole velocity
    is multiplied by lr, so that a change of the rate takes effect at once. timm's Lars differs in
    two points: it does not adapt groups without weight decay, and a tensor of length 0 gets the
    ratio 1, not `trust`. With a trust of 0.001, its first step of a bias is 1,000 times as long as
    here.
    """

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, *, trust=1e-3, eps=1e-8):
        settings = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "eps": eps,
        }
        super().__init__(params, {**settings, "adapt": True})

    def update(self, weights, grads, group):
        """Update the weights of a group.

        weights, grads  lists of tensors
        group           the settings of the group: an entry of `param_groups`
        """
        velocities = self.state_tensors(weights, "velocity")
        slopes = torch._foreach_add(grads, weights, alpha=group["weight_decay"])
        scale_all(velocities, group["momentum"])
        if group["adapt"]:
            add_scaled(velocities, slopes, _trust_ratios(weights, grads, group))
        else:
            torch._foreach_add_(velocities, slopes, alpha=group["trust"])
        torch._foreach_add_(weights, velocities, alpha=-group["lr"])


def make(named_parameters, config):
    """Return a `LARS` with the settings of a `TrainConfig`."""
    groups = without_vectors(named_parameters)
    return LARS(
        groups, config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay
    )


def without_vectors(named_parameters):
    """Return parameter groups for a `LayerWise` optimizer: matrices, and vectors left unscaled.

    The first group has the weights of two or more dimensions. The second has those of one (biases,
    batch norm), with `adapt=False` and without weight decay. An empty group is left out.

    named_parameters  (name, weight) pairs
    """
    named = list(named_parameters)
    groups = [
        {"params": [pair for pair in named if pair[1].ndim > 1]},
        {
            "params": [pair for pair in named if pair[1].ndim <= 1],
            "adapt": False,
            "weight_decay": 0.0,
        },
    ]
    return [group for group in groups if group["params"]]


def _trust_ratios(weights, grads, group):
    """Return (T,) the factors by which the steps of T layers are scaled, the `ratio` of `LARS`.

    weights, grads  lists of T tensors
    group           the settings of the group, with "trust", "weight_decay" and "eps"
    """
    w = norms(weights)
    g = norms(grads)
    ratios = group["trust"] * w / (g + group["weight_decay"] * w + group["eps"])
    return torch.where((w > 0) & (g > 0), ratios, group["trust"])


def norms(tensors):
    """Return (T,) the Euclidean norm of each of T tensors."""
    return torch.stack(torch._foreach_norm(tensors))


def add_scaled(tensors, summands, factors):
    """Add summands[i] * factors[i] to tensors[i] for every i, in place.

    tensors, summands  lists of T tensors, paired by position
    factors            (T,), one for each pair
    """
    torch._foreach_addcmul_(tensors, summands, list(factors.unbind()))


def scale_all(tensors, factor):
    """Multiply all tensors in place by one number."""
    # The factor is passed as a tensor: on a CPU, torch would make a number into a tensor anew for
    # each product, which takes longer than the product.
    torch._foreach_mul_(tensors, tensors[0].new_full((), factor))
