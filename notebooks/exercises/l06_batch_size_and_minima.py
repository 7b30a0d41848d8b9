"""Exercises on batch size and minima: batch or rate, ghost batch norm, Hessian-vector product,
rewriting.
"""

import copy

import numpy as np
import torch
from torch import nn

from labkit.lesson.exercises import (
    Exercise,
    Wrong,
    expect,
    expect_close,
    readable,
    shorten,
    untouched,
)


def batch_or_rate(run, small, large, rate, factor, epochs, loss):
    same_epochs = run(small, rate, epochs=epochs) - run(large, rate, epochs=epochs)
    same_loss = run(small, rate, loss=loss) - run(large, rate, loss=loss)
    faster = run(large, factor * rate, loss=loss) - run(large, rate, loss=loss)
    return same_epochs - same_loss, same_loss, faster


def _bench(seeds, known):
    """A `run` whose accuracies are drawn once for each training; `known` fills with them."""

    def run(batch, rate, *, epochs=None, loss=None):
        expect(
            (epochs is None) != (loss is None),
            "Tell each `run` either epochs=... or loss=..., as given.",
        )
        key = (batch, rate, epochs, loss)
        random = np.random.default_rng(len(known))
        return known.setdefault(key, 70 + 9 * random.random(seeds))

    return run


def verify_batch_or_rate(answer):
    for seeds, *case in (
        (5, 12, 300, 0.07, 3, 6, 0.03),
        (1, 20, 90, 0.4, 7, 11, 0.2),
        (3, 90, 20, 0.3, 0.5, 2, 1.1),
    ):
        known = {}
        run = _bench(seeds, known)
        slips = _slips(run, *case)
        wanted = batch_or_rate(run, *case)
        before = {key: values.copy() for key, values in known.items()}
        found = answer(run, *case)
        same = all((known[key] == values).all() for key, values in before.items())
        expect(
            same,
            "Your function changes the accuracies that `run` gave it, and others need them. Make "
            "new arrays.",
        )
        expect(
            isinstance(found, (tuple, list)) and len(found) == 3,
            f"Expected three arrays, found {shorten(found)}.",
        )
        for name, each, right in zip(
            ("unfinished", "by_batch", "by_rate"), found, wanted, strict=True
        ):
            _expect_difference(name, each, right, slips)


def _slips(run, small, large, rate, factor, epochs, loss):
    """((seeds,) points of a plausible mistake, what they are) pairs."""
    end, high = {"loss": loss}, factor * rate
    early = {"epochs": epochs}
    both = "a comparison that changes batch and rate at once"
    return (
        (run(small, rate, **early) - run(large, rate, **early), "the lead after the same epochs"),
        (
            run(large, high, **early) - run(large, rate, **early),
            "taken after the same epochs, not at the same loss",
        ),
        (
            run(small, high, **end) - run(small, rate, **end),
            "what the rate gives the *small* batch",
        ),
        (run(large, high, **end) - run(small, rate, **end), both),
        (run(small, high, **end) - run(large, high, **end), "the batch at the higher rate"),
    )


def _expect_difference(name, found, wanted, slips):
    shaped = isinstance(found, np.ndarray) and found.shape == wanted.shape
    expect(
        shaped,
        f"{name}: expected a NumPy array of shape {wanted.shape}, one per seed, found "
        f"{shorten(found)}.",
    )
    if np.allclose(found, wanted):
        return
    expect(
        not np.allclose(found, -wanted),
        f"{name} has the wrong sign: which of the two is taken from the other?",
    )
    for slip, words in slips:
        expect(not np.allclose(abs(found), abs(slip)), f"{name}: this is {words}.")
    raise Wrong(
        f"{name}: expected {wanted.round(2)}, found {found.round(2)}. What differs between your "
        "two trainings?"
    )


class GhostNorm(nn.Module):
    def __init__(self, features, ghost_size=16):
        super().__init__()
        self.ghost_size = ghost_size
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.full = nn.BatchNorm1d(features, affine=False)

    def forward(self, x):
        whole = self.full(x)
        if not self.training:
            return whole * self.weight + self.bias
        ghosts = x.unflatten(0, (-1, self.ghost_size))
        variance, mean = torch.var_mean(ghosts, dim=1, keepdim=True, correction=0)
        ghosts = (ghosts - mean) / torch.sqrt(variance + 1e-5)
        return ghosts.flatten(0, 1) * self.weight + self.bias


COLUMN = torch.tensor([[1.0], [3.0], [10.0], [14.0]])


def verify_ghost_norm(answer):
    layer = _ghost_layer(answer, 1, ghost_size=2)
    column = _layer_output(layer, COLUMN)
    expected = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]])
    told = f"1, 3, 10, 14 in ghosts of 2: expected -1, 1, -1, 1, found {_rounded(column)}."
    expect(torch.allclose(column, expected, atol=1e-3), told)
    batch = 3 * torch.randn(32, 5, generator=torch.Generator().manual_seed(0)) + torch.arange(5.0)
    _check_scale_and_shift(answer, batch)
    _check_gradient(answer, batch)
    _check_inference(answer, batch)
    layer = _ghost_layer(answer, 5, ghost_size=4)
    layer.ghost_size = 32
    told = (
        "a ghost as large as the batch is plain batch norm: set layer.ghost_size = 32 for 32 "
        "rows, and it is not"
    )
    expect(
        torch.allclose(_layer_output(layer, batch), nn.BatchNorm1d(5)(batch), atol=1e-4),
        f"{told} here.",
    )


def _ghost_layer(answer, features, **settings):
    """A new layer of the answer, in training mode, whose parts are those that were asked for."""
    layer = answer(features, **settings)
    expect(isinstance(layer, nn.Module), "GhostNorm should be a class, an nn.Module.")
    for name in ("weight", "bias"):
        parameter = getattr(layer, name, None)
        is_parameter = isinstance(parameter, nn.Parameter) and parameter.shape == (features,)
        expect(
            is_parameter,
            f"self.{name} should be an nn.Parameter of shape ({features},), found "
            f"{shorten(parameter)}.",
        )
    expect(
        isinstance(getattr(layer, "full", None), nn.BatchNorm1d),
        "self.full should be an nn.BatchNorm1d.",
    )
    expect(
        not layer.full.affine,
        "self.full has a weight and a bias of its own: make it with affine=False.",
    )
    return layer


def _layer_output(layer, x):
    output = layer(x.clone())
    fits = isinstance(output, torch.Tensor) and output.shape == x.shape
    expect(
        fits,
        f"For x of shape {tuple(x.shape)} expected a torch tensor as large, found "
        f"{shorten(output)}.",
    )
    return output


def _rounded(tensor):
    return [round(number, 3) for number in tensor.flatten().tolist()]


def _ghosts_of(batch, size, weight=1.0, bias=0.0):
    """Each ghost through batch norm's own function, which the reference does not use."""
    normalised = [
        nn.functional.batch_norm(ghost, None, None, training=True) for ghost in batch.split(size)
    ]
    return torch.cat(normalised) * weight + bias


def _check_scale_and_shift(answer, batch):
    layer = _ghost_layer(answer, 5, ghost_size=8)
    weight, bias = torch.arange(1.0, 6), torch.arange(5.0) - 2
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    output = _layer_output(layer, batch)
    told = (
        "32 rows in ghosts of 8, weight 1 to 5, bias -2 to 2: the output is not normalised * "
        "weight + bias."
    )
    expect(
        torch.allclose(output, _ghosts_of(batch, 8, weight, bias), atol=1e-3),
        f"{told} Is correction=0?",
    )
    usual = _layer_output(_ghost_layer(answer, 5), batch)
    expect(
        torch.allclose(usual, _ghosts_of(batch, 16), atol=1e-3),
        "The ghost size is 16 when nobody says otherwise.",
    )


def _check_gradient(answer, batch):
    """Mean and deviation depend on x, and the gradient goes through them, too."""
    layer = _ghost_layer(answer, 5, ghost_size=8)
    pull = torch.randn(32, 5, generator=torch.Generator().manual_seed(1))
    gradients = []
    for function in (layer, lambda x: _ghosts_of(x, 8)):
        x = batch.clone().requires_grad_()
        (function(x) * pull).sum().backward()
        gradients.append(x.grad)
    told = (
        "the gradient of x differs from batch norm's: does it go through mean and deviation (no "
        "detach, no no_grad)?"
    )
    expect(
        gradients[0] is not None and torch.allclose(*gradients, atol=1e-3), f"In training {told}"
    )


def _check_inference(answer, batch):
    layer = _ghost_layer(answer, 5, ghost_size=8)
    plain = nn.BatchNorm1d(5)
    for _ in range(3):
        layer(batch)
        plain(batch)
    expect(
        torch.allclose(layer.full.running_var, plain.running_var, rtol=1e-4)
        and torch.allclose(layer.full.running_mean, plain.running_mean, rtol=1e-4),
        "In training self.full should see each whole batch once: its running statistics are not "
        "those of batch norm.",
    )
    with torch.no_grad():
        layer.weight.fill_(2)
        layer.bias.fill_(-1)
    layer.eval()
    plain.eval()
    for rows in (32, 3):
        output = _layer_output(layer, batch[:rows])
        told = (
            f"At inference, {rows} rows: expected self.full(x) * weight + bias, its "
            "running statistics"
        )
        expect(
            torch.allclose(output, 2 * plain(batch[:rows]) - 1, atol=1e-3),
            f"{told}; found other numbers.",
        )


def hessian_product(loss, weights):
    def flat(tensors):
        return torch.cat([tensor.flatten() for tensor in tensors])

    slope = flat(torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True))

    def product(v):
        along = slope @ v
        return flat(torch.autograd.grad(along, weights, retain_graph=True, materialize_grads=True))

    return product


def verify_hessian_product(answer):
    x, y = (torch.tensor(value, requires_grad=True) for value in (2.0, 5.0))
    product = _product_of(answer(3 * x**2 + 2 * x * y, [x, y]))
    for v, expected in (
        ([1.0, 0.0], [6.0, 2.0]),
        ([0.0, 1.0], [2.0, 0.0]),
        ([2.0, -1.0], [10.0, 4.0]),
    ):
        found = _vector(product(torch.tensor(v)), 2, f"3x^2 + 2xy, v = {v}")
        told = f"3x^2 + 2xy, v = {v}: expected {expected}, found {_rounded(found)}."
        expect(torch.allclose(found, torch.tensor(expected), atol=1e-4), told)
    _check_module(answer)
    w, idle = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
    try:
        found = _product_of(answer((w**3).sum(), [w, idle]))(torch.ones(3))
    except RuntimeError as error:
        told = (
            "A weight that the loss does not use, such as another head's, stops your function: "
            "materialize_grads=True"
        )
        raise Wrong(f"{told} gives it zeros. ({str(error).splitlines()[0]})") from None
    told = (
        "w^3 at 1 and 2, and a weight that is not used, v = (1, 1, 1): expected 6, 12, 0, found "
        f"{_rounded(found)}."
    )
    expect(torch.allclose(found, torch.tensor([6.0, 12.0, 0.0]), atol=1e-4), told)


def _product_of(product):
    expect(
        callable(product),
        f"Return the function `product`, which takes v; found {shorten(product)}.",
    )
    return product


def _vector(found, length, case):
    fits = isinstance(found, torch.Tensor) and found.shape == (length,)
    expect(fits, f"{case}: expected a torch tensor of shape ({length},), found {shorten(found)}.")
    return found.detach()


def _check_module(answer):
    """A network in double precision, against the whole Hessian by torch.func and against
    differences of slopes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        inputs = torch.randn(9, 3, dtype=torch.float64)
        v = torch.randn(26, dtype=torch.float64)
    weights = list(network.parameters())
    before = [weight.detach().clone() for weight in weights]
    product = _product_of(answer(network(inputs).square().mean(), weights))
    products = [
        _vector(product(v * scale), len(v), "a network of 26 weights") for scale in (1, 1, 3)
    ]
    expect(
        torch.allclose(products[0], products[1]),
        "The second call with the same v gives another product.",
    )
    expect(
        torch.allclose(3 * products[0], products[2]),
        "Three times v should give three times the product.",
    )
    step = 1e-5
    slopes = [_slope(network, inputs, before, sign * step * v) for sign in (1, -1)]
    expected = (slopes[0] - slopes[1]) / (2 * step)
    told = (
        "a network: your product is not what the gradient changes by along v. Are v and the "
        "weights in one order?"
    )
    expect(torch.allclose(products[0], expected, rtol=1e-3, atol=1e-5), told)
    same = all(torch.equal(old, new) for old, new in zip(before, weights, strict=True))
    expect(same, "Your function changes the weights.")


def _slope(network, inputs, weights, shift):
    """The gradient at weights + shift, flat."""
    nn.utils.vector_to_parameters(
        nn.utils.parameters_to_vector(weights) + shift, network.parameters()
    )
    slopes = torch.autograd.grad(network(inputs).square().mean(), list(network.parameters()))
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(weights), network.parameters())
    return nn.utils.parameters_to_vector(slopes)


def power_iteration(product, v, steps):
    for _ in range(steps):
        v = v / v.norm()
        turned = product(v)
        eigenvalue = v @ turned
        v = turned
    return eigenvalue.item(), v / v.norm()


_SPECTRA = ([5.0, 2.0, -1.0, 0.3, 0.1], [0.2, 0.1, -0.9, 0.05, 0.3], [4e4, 10.0, 0.1, -3.0, 2.0])


def _turned(spectrum):
    """A symmetric matrix with these eigenvalues, in directions of its own."""
    eigenvalues = torch.tensor(spectrum, dtype=torch.float64)
    size = len(spectrum)
    random = torch.randn(
        size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    turn, _ = torch.linalg.qr(random)
    return turn @ torch.diag(eigenvalues) @ turn.T


def verify_power_iteration(answer):
    for length, spectrum in zip((7.0, 0.5, 30.0), _SPECTRA, strict=True):
        matrix = _turned(spectrum)
        start = length * torch.randn(
            5, generator=torch.Generator().manual_seed(2), dtype=torch.float64
        )
        case = f"A matrix with the eigenvalues {spectrum}"
        _check_convergence(answer, matrix, start, max(spectrum, key=abs), case)
        _check_first_step(answer, matrix, start, spectrum)


def _check_convergence(answer, matrix, start, expected, case):
    products = []

    def product(v):
        products.append(v)
        return matrix @ v

    eigenvalue, direction = _pair(untouched(answer)(product, start, 300), start.shape)
    told = f"`steps` was 300, and your function took {len(products)} products."
    expect(300 <= len(products) <= 301, told)  # one more, at the last vector, is as good
    expect_close(eigenvalue, expected, f"{case}: that of the largest size", tolerance=1e-4)
    expect_close(direction.norm(), 1.0, f"{case}: the length of the direction", tolerance=1e-4)
    apart = float((matrix @ direction - expected * direction).norm()) / abs(expected)
    expect(
        apart < 1e-2,
        f"{case}: multiplying your direction by the matrix turns it: it is not the eigenvector.",
    )


def _check_first_step(answer, matrix, start, spectrum):
    """After one product nothing is exact yet, but v @ H v of a vector of length 1 never leaves
    the spectrum.
    """
    eigenvalue, direction = _pair(answer(lambda v: matrix @ v, start, 1), start.shape)
    near = [
        float(torch.cosine_similarity(direction, v, dim=0))
        for v in (matrix @ start, matrix @ matrix @ start)
    ]
    expect(
        max(map(abs, near)) > 1 - 1e-6,
        "After one step your direction is not H times the given vector.",
    )
    low, high = min(spectrum), max(spectrum)
    told = (
        f"One step from a vector of length {float(start.norm()):.3g}: found "
        f"{readable(float(eigenvalue))}, outside"
    )
    told += f" {low:g} to {high:g}. Has the first vector length 1, too?"
    expect(low - 1e-6 * high <= eigenvalue <= high + 1e-6 * high, told)


def _pair(found, shape):
    """(eigenvalue, direction) of an answer, if it is such a pair."""
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise Wrong(f"Expected a pair (eigenvalue, direction), found {shorten(found)}.")
    eigenvalue, direction = found
    fits = isinstance(direction, torch.Tensor) and direction.shape == shape
    expect(
        fits,
        f"Expected the direction as a torch tensor of shape {tuple(shape)}, found "
        f"{shorten(direction)}.",
    )
    return eigenvalue, direction


def rewritten(network, factor):
    twin = copy.deepcopy(network)
    with torch.no_grad():
        twin[0].weight /= factor
        twin[4].weight *= factor
        twin[4].bias *= factor
        twin[6].weight /= factor
    return twin


def verify_rewritten(answer):
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        network = _small_network()
        for weight in network.parameters():
            weight += 0.3 * torch.randn_like(weight)
        inputs = torch.randn(64, 6)
    before = copy.deepcopy(network.state_dict())
    for factor in (3, 0.5):
        twin = answer(network, factor)
        expect(isinstance(twin, nn.Module), f"Expected a network, found {shorten(twin)}.")
        now = network.state_dict()
        same = all(torch.equal(before[name], now[name]) for name in before)
        expect(
            same,
            "Your function changes the network it was given. Take a copy: copy.deepcopy(network).",
        )
        _check_lengths(network, twin, factor)
        largest = (twin.train()(inputs) - copy.deepcopy(network).train()(inputs)).abs().max().item()
        expect(
            largest < 1e-3,
            f"Factor {factor}: the outputs differ by up to {largest:.3g}. They must stay the same.",
        )


def _small_network():
    norm = nn.BatchNorm1d
    return nn.Sequential(
        *(nn.Linear(6, 5), norm(5), nn.ReLU()),
        *(nn.Linear(5, 5), norm(5), nn.ReLU()),
        nn.Linear(5, 3),
    )


def _check_lengths(network, twin, factor):
    """The weights that are to be written differently are, and the others are as they were."""
    for layer, times in ((0, 1 / factor), (3, 1), (4, factor), (6, 1 / factor)):
        ratio = (twin[layer].weight / network[layer].weight).detach()
        told = (
            f"factor {factor}: network[{layer}].weight should become {times:.3g} "
            "times as large, it becomes"
        )
        expect(np.allclose(ratio, times, rtol=1e-4), f"With {told} {ratio.mean():.3g} times.")


EXERCISES = (
    Exercise(
        id="batch-or-rate",
        importance=3,
        task="The controls that separate training too short, the batch and the learning rate.",
        difficulty=2,
        minutes=8,
        hint="Five trainings are enough. Compare two that differ in one thing. The first result "
        "compares two leads.",
        reference=batch_or_rate,
        verify=verify_batch_or_rate,
    ),
    Exercise(
        id="ghost-norm",
        importance=3,
        task="Ghost batch normalization as a layer: groups in training, full "
        "statistics at inference.",
        difficulty=3,
        minutes=15,
        hint="x.unflatten(0, (-1, size)) has shape (ghosts, size, features), and flatten(0, 1) "
        "takes it back. "
        "Take the statistics over dimension 1.",
        reference=GhostNorm,
        verify=verify_ghost_norm,
        imports="import torch\nfrom torch import nn",
    ),
    Exercise(
        id="hessian-product",
        importance=3,
        task="The Hessian of any network times a vector, by differentiating twice.",
        difficulty=2,
        minutes=10,
        hint="The gradient with create_graph=True, flat, times v, is one number. Differentiate "
        "that number.",
        reference=hessian_product,
        verify=verify_hessian_product,
        imports="import torch",
    ),
    Exercise(
        id="power-iteration",
        task="The eigenvalue of largest size, and its direction, from products alone.",
        difficulty=2,
        minutes=8,
        hint="Make v 1 long, multiply, take the result as the next v. The eigenvalue is v @ (H v).",
        reference=power_iteration,
        verify=verify_power_iteration,
    ),
    Exercise(
        id="rewritten",
        importance=3,
        task="The control that decides: the same function, written with other weights.",
        difficulty=2,
        minutes=7,
        hint="Work on a deep copy, under torch.no_grad(). Batch norm makes up for layer 0 by "
        "itself. For what layer 6 "
        "loses, look at layer 4, the batch norm before it: weight and bias.",
        reference=rewritten,
        verify=verify_rewritten,
        imports="import copy\n\nimport torch",
    ),
)
