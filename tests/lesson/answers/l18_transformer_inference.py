"""Answers to the exercises of lesson 18: wrong ones that must be rejected, right ones written
differently.
"""

import numpy as np
import torch
from torch import nn

from labkit.lesson.exercises import l18_transformer_inference as lesson


def in_float(x, weight, scales, bias):
    whole = weight * np.repeat(scales, weight.shape[1] // scales.shape[1], axis=1)
    return (x @ whole.T + bias).astype(np.float32)


def by_block(x, weight, scales, bias, *, steps, kind=np.int32):
    """The sum of the blocks' products; `steps` makes (N, 1) steps of the numbers of a block (N,
    K).
    """
    total = np.zeros((len(x), len(weight)), np.float64)
    size = x.shape[1] // scales.shape[1]
    for block in range(scales.shape[1]):
        part = slice(block * size, block * size + size)
        step = steps(x[:, part])
        integers = np.rint(x[:, part] / step).astype(kind)
        total += (integers @ weight[:, part].T.astype(kind)) * step * scales[:, block]
    return (total + bias).astype(np.float32)


def of_each_row(x):
    step = np.abs(x).max(1, keepdims=True) / 127
    return np.where(step > 0, step, 1)


def one_grid_per_block_of_all_rows(x, weight, scales, bias):
    return by_block(x, weight, scales, bias, steps=lambda part: max(np.abs(part).max() / 127, 1e-9))


def one_grid_per_row(x, weight, scales, bias):
    step = of_each_row(x)
    return by_block(x, weight, scales, bias, steps=lambda part: step)


def forget_the_sign(x, weight, scales, bias):
    return by_block(
        x,
        weight,
        scales,
        bias,
        steps=lambda part: np.maximum(part.max(1, keepdims=True) / 127, 1e-9),
    )


def add_up_in_sixteen_bits(x, weight, scales, bias):
    return by_block(x, weight, scales, bias, steps=of_each_row, kind=np.int16)


def steps_of_255(x, weight, scales, bias):
    return by_block(x, weight, scales, bias, steps=lambda part: of_each_row(part) * (127 / 255))


def small_steps_as_one(x, weight, scales, bias):
    """A step below a millionth becomes 1, and its numbers 0."""
    return by_block(
        x,
        weight,
        scales,
        bias,
        steps=lambda part: np.where(of_each_row(part) < 1e-6, 1, of_each_row(part)),
    )


def cut_off_the_fraction(x, weight, scales, bias):
    return by_block(np.trunc(x / 0.05) * 0.05, weight, scales, bias, steps=of_each_row)


def forget_the_bias(x, weight, scales, bias):
    return lesson.block_linear(x, weight, scales, 0 * bias)


def block_by_block(x, weight, scales, bias):
    return by_block(x, weight, scales, bias, steps=of_each_row)


def by_torch(x, weight, scales, bias):
    blocks = scales.shape[1]
    # (blocks, N, K / blocks)
    parts = torch.from_numpy(x).unflatten(1, (blocks, -1)).transpose(0, 1)
    steps = parts.abs().amax(2, keepdim=True) / 127
    steps[steps == 0] = 1
    weights = (
        torch.from_numpy(np.asarray(weight, np.int32)).unflatten(1, (blocks, -1)).permute(1, 2, 0)
    )
    sums = (parts / steps).round().int() @ weights  # (blocks, N, M)
    scaled = sums * steps * torch.from_numpy(scales).T[:, None]
    return (scaled.sum(0) + torch.from_numpy(bias)).numpy().astype(np.float32)


# --- nearest ---


def itself(vectors):
    directions = nn.functional.normalize(vectors)
    return (directions @ directions.T).argmax(1)


def by_product(vectors):
    products = vectors @ vectors.T
    products.fill_diagonal_(-torch.inf)
    return products.argmax(1)


def by_distance(vectors):
    distances = torch.cdist(vectors, vectors)
    distances.fill_diagonal_(torch.inf)
    return distances.argmin(1)


def farthest(vectors):
    directions = nn.functional.normalize(vectors)
    cosines = directions @ directions.T
    cosines.fill_diagonal_(2)
    return cosines.argmin(1)


def zero_for_itself(vectors):
    """Takes 0 out of the diagonal: opposite directions are then farther than oneself."""
    directions = nn.functional.normalize(vectors)
    cosines = directions @ directions.T
    cosines.fill_diagonal_(0)
    return cosines.argmax(1)


def one_by_one(vectors):
    neighbours = []
    for index, vector in enumerate(vectors):
        cosines = torch.cosine_similarity(vector[None], vectors, dim=1)
        cosines[index] = -torch.inf
        neighbours.append(int(cosines.argmax()))
    return torch.tensor(neighbours)


def by_angle(vectors):
    lengths = vectors.square().sum(1).sqrt()
    cosines = (vectors @ vectors.T) / (lengths[:, None] * lengths)
    own = torch.eye(len(vectors), dtype=torch.bool)
    return cosines.masked_fill(own, -torch.inf).max(1).indices


# --- layer-inputs ---


def recorded(network, batch, kinds, *, register, mode=torch.inference_mode):
    """Inputs recorded by what `register(layer, note)` hooks on, then the hooks removed."""
    inputs, hooks = {}, []
    try:
        for name, layer in network.named_modules():
            if isinstance(layer, kinds):
                hooks.append(register(layer, lambda x, name=name: inputs.update({name: x})))
        with mode():
            network(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


def before(layer, note):
    return layer.register_forward_pre_hook(lambda layer, x: note(x[0]))


def outputs_of_layers(network, batch, kinds=nn.Linear):
    return recorded(
        network,
        batch,
        kinds,
        register=lambda layer, note: layer.register_forward_hook(lambda m, x, y: note(y)),
    )


def children_alone(network, batch, kinds=nn.Linear):
    inner = {name for name, _ in network.named_children()}
    found = recorded(network, batch, kinds, register=before)
    return {name: x for name, x in found.items() if name in inner}


def always_linear(network, batch, kinds=nn.Linear):
    return recorded(network, batch, nn.Linear, register=before)


def with_gradients(network, batch, kinds=nn.Linear):
    return recorded(network, batch, kinds, register=before, mode=torch.enable_grad)


def hooks_left(network, batch, kinds=nn.Linear):
    inputs = {}
    for name, layer in network.named_modules():
        if isinstance(layer, kinds):
            layer.register_forward_pre_hook(lambda layer, x, name=name: inputs.update({name: x[0]}))
    with torch.inference_mode():
        network(batch)
    return inputs


def hooks_left_by_a_failure(network, batch, kinds=nn.Linear):
    inputs, hooks = {}, []
    for name, layer in network.named_modules():
        if isinstance(layer, kinds):
            hook = layer.register_forward_pre_hook(
                lambda layer, x, name=name: inputs.update({name: x[0]})
            )
            hooks.append(hook)
    with torch.inference_mode():
        network(batch)
    for hook in hooks:
        hook.remove()
    return inputs


def last_name_for_all(network, batch, kinds=nn.Linear):
    """The hooks look the name up when they are called: it is that of the last layer."""
    inputs, hooks = {}, []
    for name, layer in network.named_modules():
        if isinstance(layer, kinds):
            hooks.append(
                layer.register_forward_pre_hook(lambda layer, x: inputs.update({name: x[0]}))  # noqa: B023
            )
    try:
        with torch.inference_mode():
            network(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


def from_the_other_side(network, batch, kinds=nn.Linear):
    def register(layer, note):
        return layer.register_forward_hook(lambda layer, x, output: note(x[0]))

    return recorded(network, batch, kinds, register=register, mode=torch.no_grad)


def with_a_class(network, batch, kinds=nn.Linear):
    class Note:
        def __init__(self, name):
            self.name = name

        def __call__(self, layer, arguments):
            inputs[self.name] = arguments[0].detach().clone()

    layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, kinds)]
    inputs, hooks = {}, [layer.register_forward_pre_hook(Note(name)) for name, layer in layers]
    try:
        network(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


# --- own-grid ---


def one_grid_for_all(x, token, on_grid):
    return on_grid(x)


def others_exact(x, token, on_grid):
    rounded = x.clone()
    rounded[:, token] = on_grid(x[:, token])
    return rounded


def token_exact(x, token, on_grid):
    rounded = lesson.own_grid(x, token, on_grid)
    rounded[:, token] = x[:, token]
    return rounded


def others_share_with_the_token(x, token, on_grid):
    rounded = on_grid(x)
    rounded[:, token] = on_grid(x[:, token])
    return rounded


def always_the_first(x, token, on_grid):
    return lesson.own_grid(x, 0, on_grid)


def each_token_alone(x, token, on_grid):
    return torch.stack([on_grid(x[:, index]) for index in range(x.shape[1])], dim=1)


def joined(x, token, on_grid):
    others = on_grid(torch.cat([x[:, :token], x[:, token + 1 :]], dim=1))
    return torch.cat(
        [others[:, :token], on_grid(x[:, token : token + 1]), others[:, token:]], dim=1
    )


def by_a_mask(x, token, on_grid):
    alone = torch.zeros(x.shape[1], dtype=torch.bool)
    alone[token] = True
    alone = alone[None, :, None].expand_as(x)
    with_zeros = x.masked_fill(alone, 0), x.masked_fill(~alone, 0)  # a 0 widens no grid
    return on_grid(with_zeros[0]) + on_grid(with_zeros[1])


# --- smooth ---


def with_factors(layer, factors):
    smoothed = nn.Linear(layer.in_features, layer.out_features)
    smoothed.weight.data = layer.weight.detach() * factors
    smoothed.bias.data = layer.bias.detach().clone()
    return factors, smoothed


def factors_of(layer, largest, alpha, dim=0):
    weights = layer.weight.detach().abs().amax(dim).clamp(min=1e-9)
    return largest.clamp(min=1e-9) ** alpha / weights ** (1 - alpha)


def alpha_exchanged(layer, largest, alpha):
    return lesson.smooth(layer, largest, 1 - alpha)


def weights_forgotten(layer, largest, alpha):
    return with_factors(layer, largest.clamp(min=1e-9) ** alpha)


def weights_divided(layer, largest, alpha):
    factors, smoothed = lesson.smooth(layer, largest, alpha)
    smoothed.weight.data = layer.weight.detach() / factors
    return factors, smoothed


def in_place(layer, largest, alpha):
    factors = factors_of(layer, largest, alpha)
    layer.weight.data *= factors
    return factors, layer


def zeros_kept(layer, largest, alpha):
    return with_factors(layer, largest**alpha / layer.weight.detach().abs().amax(0) ** (1 - alpha))


def sign_forgotten(layer, largest, alpha):
    weights = layer.weight.detach().amax(0).clamp(min=1e-9)
    return with_factors(layer, largest.clamp(min=1e-9) ** alpha / weights ** (1 - alpha))


def bias_lost(layer, largest, alpha):
    factors, smoothed = lesson.smooth(layer, largest, alpha)
    smoothed.bias.data.zero_()
    return factors, smoothed


def by_logarithms(layer, largest, alpha):
    weights = layer.weight.detach().abs().max(dim=0).values.clamp(min=1e-7)
    exponent = alpha * largest.clamp(min=1e-7).log() - (1 - alpha) * weights.log()
    return with_factors(layer, exponent.exp())


def without_zeros_by_where(layer, largest, alpha):
    reach = torch.where(largest > 0, largest, 1.0)
    columns = layer.weight.detach().abs().max(0).values
    return with_factors(
        layer, reach.pow(alpha) / torch.where(columns > 0, columns, 1.0).pow(1 - alpha)
    )


WRONG = {
    "nearest": {
        "itself": itself,
        "by the product": by_product,
        "by the distance": by_distance,
        "the farthest": farthest,
        "0 on the diagonal": zero_for_itself,
    },
    "layer-inputs": {
        "what leaves the layers": outputs_of_layers,
        "children alone": children_alone,
        "linear layers whatever was asked": always_linear,
        "with gradients": with_gradients,
        "hooks left": hooks_left,
        "hooks left by a failure": hooks_left_by_a_failure,
        "the last name for all": last_name_for_all,
    },
    "own-grid": {
        "one grid for all": one_grid_for_all,
        "others exact": others_exact,
        "the token exact": token_exact,
        "others on the grid of all": others_share_with_the_token,
        "always the first token": always_the_first,
        "a grid for each token": each_token_alone,
    },
    "smooth": {
        "alpha exchanged": alpha_exchanged,
        "weights forgotten": weights_forgotten,
        "weights divided": weights_divided,
        "in place": in_place,
        "a factor of zero": zeros_kept,
        "the largest instead of the largest absolute weight": sign_forgotten,
        "bias lost": bias_lost,
    },
    "block-linear": {
        "in float": in_float,
        "one grid per block of all rows": one_grid_per_block_of_all_rows,
        "one grid per row": one_grid_per_row,
        "the largest instead of the largest absolute value": forget_the_sign,
        "sums in 16 bits": add_up_in_sixteen_bits,
        "steps for 255": steps_of_255,
        "input rounded down": cut_off_the_fraction,
        "bias forgotten": forget_the_bias,
        "steps below a millionth become 1": small_steps_as_one,
    },
}
RIGHT = {
    "nearest": {"one by one": one_by_one, "by the angle": by_angle},
    "layer-inputs": {"hooks after the layers": from_the_other_side, "with a class": with_a_class},
    "own-grid": {"joined": joined, "by a mask": by_a_mask},
    "smooth": {"by logarithms": by_logarithms, "by where": without_zeros_by_where},
    "block-linear": {"block by block": block_by_block, "by torch": by_torch},
}
