"""Answers on batch size and minima: wrong ones that differ in one property, right ones written
differently.
"""

import copy

import numpy as np
import torch
from torch import nn

from labkit.lesson.exercises.l06_batch_size_and_minima import (
    GhostNorm,
    batch_or_rate,
    hessian_product,
    power_iteration,
    rewritten,
)


class GhostsByABatchNormEach(nn.Module):
    """Each ghost through batch norm's own function."""

    def __init__(self, features, ghost_size=16):
        super().__init__()
        self.ghost_size = ghost_size
        self.weight, self.bias = (
            nn.Parameter(torch.ones(features)),
            nn.Parameter(torch.zeros(features)),
        )
        self.full = nn.BatchNorm1d(features, affine=False)

    def forward(self, x):
        y = self.full(x)
        if self.training:
            y = torch.cat(
                [
                    nn.functional.batch_norm(ghost, None, None, training=True)
                    for ghost in self.split(x)
                ]
            )
        return torch.addcmul(self.bias, y, self.weight)

    def split(self, x):
        return x.split(self.ghost_size)


class GhostsInALoop(GhostsByABatchNormEach):
    def forward(self, x):
        if not self.training:
            return self.weight * self.full(x) + self.bias
        with torch.no_grad():
            self.full(x)
        parts = []
        for ghost in self.split(x):
            centred = ghost - ghost.mean(0)
            parts.append(centred / (centred.square().mean(0) + 1e-5) ** 0.5)
        return self.weight * torch.cat(parts) + self.bias


class WithoutFullInTraining(GhostNorm):
    def forward(self, x):
        kept = copy.deepcopy(self.full)
        y = super().forward(x)
        self.full = kept
        return y


class FullSeesEachGhost(GhostsByABatchNormEach):
    def forward(self, x):
        parts = self.split(x) if self.training else [x]
        return torch.cat([self.full(part) for part in parts]) * self.weight + self.bias


class GhostsAtInference(GhostsByABatchNormEach):
    def forward(self, x):
        if len(x) % self.ghost_size:
            return super().forward(x)
        self.full(x)
        ghosts = [
            nn.functional.batch_norm(ghost, None, None, training=True) for ghost in self.split(x)
        ]
        return torch.cat(ghosts) * self.weight + self.bias


class WholeBatch(GhostNorm):
    def forward(self, x):
        return self.full(x) * self.weight + self.bias


class EveryOther(GhostNorm):
    """Ghosts of rows that lie apart, not of neighbours."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        order = torch.arange(len(x)).view(self.ghost_size, -1).T.flatten()
        y = torch.empty_like(x)
        y[order] = super().forward(x[order])
        return y


class CountNotSize(GhostNorm):
    """So many ghosts, not ghosts of that size."""

    def forward(self, x):
        size, self.ghost_size = self.ghost_size, max(1, len(x) // self.ghost_size)
        y = super().forward(x)
        self.ghost_size = size
        return y


class FixedSize(GhostNorm):
    def __init__(self, features, ghost_size=16):
        super().__init__(features, 16 if ghost_size > 2 else 2)


class Eight(GhostNorm):
    def __init__(self, features, ghost_size=8):
        super().__init__(features, ghost_size)


def ghosts_with(normalise):
    """A wrong layer: `normalise` gets the ghosts, (ghosts, size, features)."""

    class Answer(GhostNorm):
        def forward(self, x):
            if not self.training:
                return super().forward(x)
            self.full(x)
            ghosts = normalise(x.unflatten(0, (-1, self.ghost_size)))
            return ghosts.flatten(0, 1) * self.weight + self.bias

    return Answer


def detached(ghosts):
    variance, mean = torch.var_mean(ghosts.detach(), 1, keepdim=True, correction=0)
    return (ghosts - mean) / (variance + 1e-5).sqrt()


def corrected(ghosts):
    variance, mean = torch.var_mean(ghosts, 1, keepdim=True)
    return (ghosts - mean) / (variance + 1e-5).sqrt()


def divided_by_variance(ghosts):
    variance, mean = torch.var_mean(ghosts, 1, keepdim=True, correction=0)
    return (ghosts - mean) / (variance + 1e-5)


def across_features(ghosts):
    variance, mean = torch.var_mean(ghosts, (1, 2), keepdim=True, correction=0)
    return (ghosts - mean) / (variance + 1e-5).sqrt()


def not_centred(ghosts):
    return ghosts / (ghosts.var(1, keepdim=True, correction=0) + 1e-5).sqrt()


class WithoutWeight(GhostNorm):
    def forward(self, x):
        return (super().forward(x) - self.bias) / self.weight + self.bias


class WithoutBias(GhostNorm):
    def forward(self, x):
        return super().forward(x) - self.bias


class AffineFull(GhostNorm):
    def __init__(self, features, ghost_size=16):
        super().__init__(features, ghost_size)
        self.full = nn.BatchNorm1d(features)


class PlainTensors(GhostNorm):
    def __init__(self, features, ghost_size=16):
        super().__init__(features, ghost_size)
        del self.weight
        self.weight = torch.ones(features)


def flat(tensors):
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def slope_of(loss, weights, **settings):
    return flat(
        torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True, **settings)
    )


def the_product_itself(loss, weights):
    return hessian_product(loss, weights)(torch.ones(sum(weight.numel() for weight in weights)))


def the_gradient(loss, weights):
    slope = slope_of(loss, weights).detach()
    return lambda v: slope * v


def gauss_newton_like(loss, weights):
    slope = slope_of(loss, weights).detach()
    return lambda v: slope * (slope @ v)


def as_a_list(loss, weights):
    slope = slope_of(loss, weights)
    return lambda v: torch.autograd.grad(
        slope @ v, weights, retain_graph=True, materialize_grads=True
    )


def once_only(loss, weights):
    slope, answers = slope_of(loss, weights), []

    def product(v):
        if not answers:
            answers.append(flat(torch.autograd.grad(slope @ v, weights, materialize_grads=True)))
        return answers[0]

    return product


def used_weights_only(loss, weights):
    slope = flat(torch.autograd.grad(loss, weights, create_graph=True))
    return lambda v: flat(torch.autograd.grad(slope @ v, weights, retain_graph=True))


def backwards(loss, weights):
    product = hessian_product(loss, weights[::-1])
    sizes = [weight.numel() for weight in weights]

    def reverse(v):
        return torch.cat(v.split(sizes)[::-1])

    return lambda v: product(reverse(v))


def of_unit_length(loss, weights):
    product = hessian_product(loss, weights)
    return lambda v: product(v / v.norm())


def half(loss, weights):
    product = hessian_product(loss, weights)
    return lambda v: product(v) / 2


def weight_by_weight(loss, weights):
    slopes = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)

    def product(v):
        parts = v.split([weight.numel() for weight in weights])
        along = sum(
            (slope * part.view_as(slope)).sum() for slope, part in zip(slopes, parts, strict=True)
        )
        return flat(torch.autograd.grad(along, weights, retain_graph=True, materialize_grads=True))

    return product


def by_grad_outputs(loss, weights):
    slope = slope_of(loss, weights)
    return lambda v: flat(
        torch.autograd.grad(
            slope, weights, grad_outputs=v, retain_graph=True, materialize_grads=True
        )
    )


def never_normalise(product, v, steps):
    for _ in range(steps):
        v, before = product(v), v
    return (before @ v / before.square().sum()).item(), v / v.norm()


def length_of_the_product(product, v, steps):
    _, v = power_iteration(product, v, steps)
    return product(v).norm().item(), v


def one_product(product, v, steps):
    return power_iteration(product, v, 1)


def direction_of_any_length(product, v, steps):
    eigenvalue, v = power_iteration(product, v, steps)
    return eigenvalue, eigenvalue * v


def only_the_eigenvalue(product, v, steps):
    return power_iteration(product, v, steps)[0]


def in_place(product, v, steps):
    for _ in range(steps):
        v /= v.norm()
        turned = product(v)
        eigenvalue = v @ turned
        v.copy_(turned)
    return eigenvalue.item(), v / v.norm()


def largest_entry(product, v, steps):
    for _ in range(steps):
        v = product(v)
        eigenvalue = v.abs().max()
        v = v / eigenvalue
    return eigenvalue.item(), v / v.norm()


def start_of_any_length(product, v, steps):
    for _ in range(steps):
        turned = product(v)
        eigenvalue = v @ turned
        v = turned / turned.norm()
    return eigenvalue.item(), v


def ten_steps_more(product, v, steps):
    return power_iteration(product, v, steps + 10)


def from_ones(product, v, steps):
    return power_iteration(product, torch.ones_like(v), steps)


def product_first(product, v, steps):
    for _ in range(steps):
        v = torch.nn.functional.normalize(product(v), dim=0)
    return float(torch.dot(v, product(v))), v


def by_the_rayleigh_quotient(product, v, steps):
    for _ in range(steps):
        turned = product(v)
        quotient = torch.dot(v, turned) / torch.dot(v, v)
        v = turned / torch.linalg.vector_norm(turned)
    return quotient, v


def parts_of(change):
    """A wrong answer: `change` gets (run, five names ...) and the three right differences, and
    spoils them.
    """
    return lambda run, *case: change(run, case, *batch_or_rate(run, *case))


def rate_of_the_small_batch(run, case, unfinished, by_batch, by_rate):
    small, _, rate, factor, _, loss = case
    return unfinished, by_batch, run(small, factor * rate, loss=loss) - run(small, rate, loss=loss)


def rate_after_the_epochs(run, case, unfinished, by_batch, by_rate):
    _, large, rate, factor, epochs, _ = case
    return (
        unfinished,
        by_batch,
        run(large, factor * rate, epochs=epochs) - run(large, rate, epochs=epochs),
    )


def both_at_once(run, case, unfinished, by_batch, by_rate):
    small, large, rate, factor, _, loss = case
    return unfinished, by_batch, run(large, factor * rate, loss=loss) - run(small, rate, loss=loss)


def batch_at_the_higher_rate(run, case, unfinished, by_batch, by_rate):
    small, large, rate, factor, _, loss = case
    return (
        unfinished,
        run(small, factor * rate, loss=loss) - run(large, factor * rate, loss=loss),
        by_rate,
    )


def rate_divided(run, small, large, rate, factor, epochs, loss):
    return batch_or_rate(run, small, large, rate, 1 / factor, epochs, loss)


def four_times(run, small, large, rate, factor, epochs, loss):
    return batch_or_rate(run, small, large, rate, 4, epochs, loss)


def after_eight_epochs(run, small, large, rate, factor, epochs, loss):
    return batch_or_rate(run, small, large, rate, factor, 8, loss)


def one_loss_for_all(run, small, large, rate, factor, epochs, loss):
    return batch_or_rate(run, small, large, rate, factor, epochs, 0.01)


def nothing_told(run, small, large, rate, factor, epochs, loss):
    lead = run(small, rate) - run(large, rate)
    return lead, lead, run(large, factor * rate) - run(large, rate)


def spoils_its_input(run, small, large, rate, factor, epochs, loss):
    found = batch_or_rate(run, small, large, rate, factor, epochs, loss)
    base = run(large, rate, loss=loss)
    base -= 1
    return found


def by_a_table(run, small, large, rate, factor, epochs, loss):
    early = [run(batch, rate, epochs=epochs) for batch in (small, large)]
    late = np.stack(
        [
            run(small, rate, loss=loss),
            run(large, rate, loss=loss),
            run(large, rate * factor, loss=loss),
        ]
    )
    return (
        early[0] - early[1] - late[0] + late[1],
        -np.diff(late, axis=0)[0],
        np.diff(late, axis=0)[1],
    )


def batch_by_batch(run, small, large, rate, factor, epochs, loss):
    """What each batch gains by going on to the loss, then the difference."""
    gains = {
        batch: run(batch, rate, loss=loss) - run(batch, rate, epochs=epochs)
        for batch in (small, large)
    }
    by_batch = np.subtract(run(small, rate, loss=loss), run(large, rate, loss=loss))
    return (
        gains[large] - gains[small],
        by_batch,
        run(large, rate * factor, loss=loss) - run(large, rate, loss=loss),
    )


def rewriting(*changes):
    """A rewriting by (layer, name, sign): sign 1 multiplies by the factor, -1 divides."""

    def answer(network, factor):
        twin = copy.deepcopy(network)
        with torch.no_grad():
            for layer, name, sign in changes:
                getattr(twin[layer], name).mul_(factor**sign)
        return twin

    return answer


FIRST = (0, "weight", -1), (0, "bias", -1)
SECOND = (4, "weight", 1), (4, "bias", 1), (6, "weight", -1)


def of_the_network_itself(network, factor):
    twin = rewritten(network, factor)
    network.load_state_dict(twin.state_dict())
    return network


def always_three(network, factor):
    return rewritten(network, 3)


def by_state_dict(network, factor):
    twin = copy.deepcopy(network)
    state = twin.state_dict()
    for name, tensor in state.items():
        if name.startswith("0."):
            state[name] = tensor / factor
        elif name in ("4.weight", "4.bias"):
            state[name] = tensor * factor
    state["6.weight"] = state["6.weight"] / factor
    twin.load_state_dict(state)
    return twin


WRONG = {
    "batch-or-rate": {
        "forgets to train on": parts_of(lambda run, case, a, b, c: (a, a + b, c)),
        "takes the lead after the epochs for what is unfinished": parts_of(
            lambda run, case, a, b, c: (a + b, b, c)
        ),
        "changes the rate of the small batch": parts_of(rate_of_the_small_batch),
        "changes the rate after the same epochs": parts_of(rate_after_the_epochs),
        "changes batch and rate at once": parts_of(both_at_once),
        "compares the batches at the higher rate": parts_of(batch_at_the_higher_rate),
        "has the batch the wrong way round": parts_of(lambda run, case, a, b, c: (a, -b, c)),
        "has the rate the wrong way round": parts_of(lambda run, case, a, b, c: (a, b, -c)),
        "has the unfinished part the wrong way round": parts_of(
            lambda run, case, a, b, c: (-a, b, c)
        ),
        "means over the seeds": parts_of(
            lambda run, case, *three: tuple(each.mean() for each in three)
        ),
        "takes the rate from the batch": parts_of(lambda run, case, a, b, c: (a, b - c, c)),
        "divides the rate": rate_divided,
        "takes four for the factor": four_times,
        "always stops after eight epochs": after_eight_epochs,
        "always stops at a loss of 0.01": one_loss_for_all,
        "does not say where to stop": nothing_told,
        "changes what run gave": spoils_its_input,
        "hands back two": parts_of(lambda run, case, *three: three[1:]),
    },
    "ghost-norm": {
        "is plain batch norm": WholeBatch,
        "takes the ghosts' statistics at inference": GhostsAtInference,
        "full sees ghosts, not batches": FullSeesEachGhost,
        "full never sees a batch": WithoutFullInTraining,
        "makes ghosts of rows that lie apart": EveryOther,
        "makes so many ghosts, not of that size": CountNotSize,
        "has one size for all": FixedSize,
        "takes 8 when nobody says otherwise": Eight,
        "sends no gradient through the statistics": ghosts_with(detached),
        "divides by rows minus one": ghosts_with(corrected),
        "divides by the variance": ghosts_with(divided_by_variance),
        "takes the statistics across features": ghosts_with(across_features),
        "does not subtract the mean": ghosts_with(not_centred),
        "leaves out the weight": WithoutWeight,
        "leaves out the bias": WithoutBias,
        "gives full a weight of its own": AffineFull,
        "has a weight that is not trained": PlainTensors,
    },
    "hessian-product": {
        "returns a product, not the function": the_product_itself,
        "returns the gradient times v": the_gradient,
        "multiplies by the gradient twice": gauss_newton_like,
        "hands back a list": as_a_list,
        "works once": once_only,
        "stops at a weight that is not used": used_weights_only,
        "takes the weights from the end": backwards,
        "makes v one long": of_unit_length,
        "is half of it": half,
    },
    "power-iteration": {
        "never normalises": never_normalise,
        "loses the sign": length_of_the_product,
        "multiplies once": one_product,
        "hands back a direction of another length": direction_of_any_length,
        "hands back the eigenvalue only": only_the_eigenvalue,
        "takes the first vector at its own length": start_of_any_length,
        "takes other steps than it was told": ten_steps_more,
        "changes the vector it was given": in_place,
        "takes the largest entry for the eigenvalue": largest_entry,
        "begins elsewhere": from_ones,
    },
    "rewritten": {
        "forgets the norm's shift": rewriting(*FIRST, SECOND[0], SECOND[2]),
        "forgets the last layer": rewriting(*FIRST, *SECOND[:2]),
        "forgets the first matrix": rewriting(*SECOND),
        "forgets the second norm": rewriting(*FIRST),
        "divides the last bias, too": rewriting(*FIRST, *SECOND, (6, "bias", -1)),
        "multiplies the first matrix": lambda network, factor: rewriting(
            (0, "weight", 2), (0, "bias", 2)
        )(rewritten(network, factor), factor),
        "divides the matrix before the norm instead": rewriting(
            *FIRST, (3, "weight", -1), (3, "bias", -1), *SECOND
        ),
        "changes the network it was given": of_the_network_itself,
        "always takes three": always_three,
        "hands back the weights": lambda network, factor: rewritten(network, factor).state_dict(),
    },
}

RIGHT = {
    "batch-or-rate": {
        "by a table of five trainings": by_a_table,
        "by what each batch gains by going on": batch_by_batch,
    },
    "ghost-norm": {
        "by batch norm's own function": GhostsByABatchNormEach,
        "in a loop over the ghosts": GhostsInALoop,
    },
    "hessian-product": {
        "weight by weight": weight_by_weight,
        "by grad_outputs": by_grad_outputs,
    },
    "power-iteration": {
        "multiplies before it normalises": product_first,
        "by the Rayleigh quotient": by_the_rayleigh_quotient,
    },
    "rewritten": {
        "by the state of the network": by_state_dict,
        "by a list of changes, the first bias among them": rewriting(*FIRST, *SECOND),
    },
}
