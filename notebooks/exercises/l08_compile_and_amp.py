"""Exercises of the lesson on compiling and half precision: a control, a crossing, a break, a
scaler, an AMP step.
"""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched


class SixteenBits(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = copy.deepcopy(network).bfloat16()

    def forward(self, images):
        return self.network(images.bfloat16()).float()


def verify_sixteen_bits(answer):
    random = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 3))
    dtypes, expected = [], copy.deepcopy(network).bfloat16()
    twin = answer(network)
    for layer in (layer for layer in twin.modules() if isinstance(layer, nn.Linear)):
        layer.register_forward_hook(
            lambda layer, inputs, output: dtypes.append((inputs[0].dtype, output.dtype))
        )
    x = torch.randn(4, 6, generator=random)
    before = x.clone()
    scores = twin(x)
    kind = f"{shorten(scores)}, {getattr(scores, 'dtype', type(scores).__name__)}"
    expect(
        isinstance(scores, torch.Tensor) and scores.dtype == torch.float32,
        f"Scores in fp32, found {kind}.",
    )
    expect(torch.equal(x, before), "The images were changed; convert a copy.")
    expect(
        next(network.parameters()).dtype == torch.float32,
        "The network that was handed in changed its weights.",
    )
    weights = [str(weight.dtype) for weight in twin.parameters()]
    told = (
        f"Three weights of the copy, all in torch.bfloat16; found {weights}. Is the copy a field "
        "of the module?"
    )
    expect(weights == ["torch.bfloat16"] * 3, told)
    expect(
        len(dtypes) == 2, f"Both linear layers run once for a batch; {len(dtypes)} calls were seen."
    )
    shown = [str(dtype) for pair in dtypes for dtype in pair]
    expect(
        set(shown) == {"torch.bfloat16"},
        f"Between the layers all numbers have 16 bits; found {shown}.",
    )
    distance = (scores - expected(x.bfloat16()).float()).abs().max().item()
    expect(distance < 1e-2, f"The scores of four images are off by up to {distance:.3g}.")
    scores.sum().backward()
    lost = [weight for weight in twin.parameters() if weight.grad is None]
    expect(not lost, "After backward every weight of the copy has a gradient; some have none.")


def break_even(first, second):
    (price_1, each_1), (price_2, each_2) = first, second
    if each_2 > each_1 or (each_2 == each_1 and price_2 > price_1):
        return None
    if each_2 == each_1:
        return 1
    return max(1, math.ceil((price_2 - price_1) / (each_1 - each_2)))


def verify_break_even(answer):
    cases = {
        "dearer to begin, cheaper for each": ((2, 0.75), (12, 0.25), 20),
        "between two whole numbers": ((3, 1.5), (11, 0.25), 7),
        "just after a whole number": ((2, 0.75), (12.0003, 0.25), 21),
        "dearer to begin, and for each": ((2, 0.5), (12, 0.75), None),
        "cheaper to begin, but dearer for each: it wins first and loses in the end": (
            (12, 0.25),
            (2, 0.75),
            None,
        ),
        "cheaper in both": ((12, 0.75), (2, 0.25), 1),
        "the same to begin, cheaper for each": ((5, 0.75), (5, 0.5), 1),
        "dearer to begin, the same for each": ((2, 0.5), (12, 0.5), None),
        "the same in both": ((7, 0.5), (7, 0.5), 1),
        "paid within the first": ((0, 45), (30, 10), 1),
        "won only after ten thousand": ((1.3, 0.75), (431.7, 0.71), 10760),
        # 300.1 * 2**12 = 1229209.6
        "won only after a million": ((0, 0.5 + 2**-12), (300.1, 0.5), 1229210),
    }
    for case, (first, second, wanted) in cases.items():
        found = answer(first, second)
        if wanted is None:
            expect(
                found is None,
                f"{case}, {first} and {second}: expected None, found {shorten(found)}.",
            )
        else:
            expect(
                found is not None, f"{case}, {first} and {second}: expected {wanted}, found None."
            )
            expect_close(found, wanted, f"{case}, {first} and {second}")


def checked(x):
    """The function of the lesson that is to become one graph."""
    if x.dim() == 1:
        x = x[None]
    if x.abs().max() > 1e4:
        x = x.clamp(-1e4, 1e4)
    if x.mean() > 0:
        return x * 2
    return x / 2


def mended(x):
    if x.dim() == 1:
        x = x[None]
    x = x.clamp(-1e4, 1e4)
    return torch.where(x.mean() > 0, x * 2, x / 2)


def verify_mended(answer):
    cases = {
        "a mean above 0": [[1.3, 2.1, -1.7]],
        "a mean below 0": [[-3.1, 1.2, 0.5]],
        "a mean of exactly 0": [[2.0, -1.0, -1.0]],
        "two rows, the mean of one of them below 0": [[1.7, -0.4, 2.2], [-3.5, -0.9, 1.1]],
        "one axis": [1.0, 2.0, 3.0],
        "20,000 among small numbers": [[2e4, 1.0, -1.0]],
        "-30,000, whose mean is below 0": [[-3e4, 1.0, 2.0]],
        "20,000 and -30,000: the mean is taken after clamping": [[2e4, -3e4, 4.0]],
        "an infinite number": [[float("inf"), 1.4, -2.3]],
    }
    for case, values in cases.items():
        for dtype in (torch.float32, torch.float64, torch.float16):
            x = torch.tensor(values, dtype=dtype)
            expected, found = checked(x.clone()), untouched(answer)(x.clone())
            kind = f"{tuple(expected.shape)}, {dtype}"
            right = isinstance(found, torch.Tensor) and (found.shape, found.dtype) == (
                expected.shape,
                dtype,
            )
            shown = (
                f"{tuple(found.shape)}, {found.dtype}"
                if isinstance(found, torch.Tensor)
                else shorten(found)
            )
            expect(right, f"{case}: expected a torch tensor of shape {kind}; found {shown}.")
            told = f"{case}, x = {values}: expected {expected.tolist()}, found {found.tolist()}."
            expect(torch.equal(found, expected), told)
    graphs = torch._dynamo.explain(answer)(torch.ones(2, 3)).graph_count
    torch._dynamo.reset()
    why = (
        "Something in it needs the value of a tensor, as `if`, `float(...)` and `.item()` do, or "
        "leaves torch."
    )
    expect(graphs == 1, f"One graph is wanted; yours has {graphs}. {why}")


class LossScaler:
    def __init__(self, factor=2.0**16, interval=2000):
        self.factor, self.interval = factor, interval
        self.good_steps, self.overflow = 0, False

    def scale(self, loss):
        return loss * self.factor

    def unscale_(self, optimizer):
        self.overflow = False
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.grad /= self.factor
                    if not weight.grad.isfinite().all():
                        self.overflow = True

    def step(self, optimizer):
        if not self.overflow:
            optimizer.step()

    def update(self):
        if self.overflow:
            self.factor /= 2
            self.good_steps = 0
            return
        self.good_steps += 1
        if self.good_steps == self.interval:
            self.factor *= 2
            self.good_steps = 0


def verify_loss_scaler(answer):
    scaler, weights, optimizer = _scaler_of(answer, factor=64.0, interval=3)
    loss = sum(slope * weight.sum() for slope, weight in zip((3.0, 0.5), weights, strict=True))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    for weight, slope in zip(weights, (3.0, 0.5), strict=True):
        case = f"slope {slope:g}, scaled by 64: the gradient after unscale_"
        expect_close(weight.grad.flatten()[0].item(), slope, case)
    before = [weight.detach().clone() for weight in weights]
    scaler.step(optimizer)
    for old, weight, slope in zip(before, weights, (3.0, 0.5), strict=True):
        moved = (old - weight.detach()).flatten()[0].item()
        expect_close(
            moved, slope, f"how far a step of learning rate 1 moves a weight of slope {slope:g}"
        )
    for steps, interval in (
        ("good good good bad good good bad good good good good", 3),
        ("good bad good", 1),
    ):
        _check_factors(answer, steps.split(), interval)
    for slopes in ((math.inf, 0.3), (0.3, -math.inf), (0.3, math.nan)):
        _check_overflow(answer, slopes)
    _check_frozen(answer)


def _scaler_of(answer, *, factor, interval, momentum=0.0):
    """An answer's scaler, two weights in two groups, and their optimizer with a learning rate of
    1.
    """
    weights = [nn.Parameter(torch.ones(shape)) for shape in ((1,), (2, 2))]
    optimizer = torch.optim.SGD(
        [{"params": [weight]} for weight in weights], lr=1.0, momentum=momentum
    )
    return answer(factor, interval), weights, optimizer


def _take_step(scaler, weights, optimizer, slopes):
    """One step with gradients of these slopes, as backward of the scaled loss leaves them."""
    for weight, slope in zip(weights, slopes, strict=True):
        weight.grad = torch.full_like(weight, slope * scaler.factor)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


def _check_factors(answer, steps, interval):
    """The factor halves after a bad step and doubles after so many good ones in a row."""
    scaler, weights, optimizer = _scaler_of(answer, factor=64.0, interval=interval)
    factor, good, expected, found = 64.0, 0, [], []
    for kind in steps:
        _take_step(scaler, weights, optimizer, (0.1 if kind == "good" else math.inf, 0.1))
        good = good + 1 if kind == "good" else 0
        factor = factor / 2 if kind == "bad" else factor
        if good == interval:
            factor, good = factor * 2, 0
        expected.append(factor)
        found.append(scaler.factor)
    told = f"interval {interval}, factor 64 at first, steps {' '.join(steps)}: the factor should be"
    expect(found == expected, f"{told} {expected} after them, it is {found}.")


def _check_overflow(answer, slopes):
    """No weight moves after an overflow, not even by the optimizer's momentum; the next step is
    taken.
    """
    scaler, weights, optimizer = _scaler_of(answer, factor=64.0, interval=100, momentum=0.9)
    _take_step(scaler, weights, optimizer, (1.0, 1.0))
    before = [weight.detach().clone() for weight in weights]
    _take_step(scaler, weights, optimizer, slopes)
    stayed = all(torch.equal(old, weight) for old, weight in zip(before, weights, strict=True))
    expect(
        stayed,
        f"Gradients of {slopes[0]:g} and {slopes[1]:g}: the step must be skipped, "
        "and the weights moved.",
    )
    _take_step(scaler, weights, optimizer, (1.0, 1.0))
    moved = not any(torch.equal(old, weight) for old, weight in zip(before, weights, strict=True))
    expect(
        moved,
        "The step after an overflow has good gradients, and must be taken: forget the overflow.",
    )


def _check_frozen(answer):
    scaler, weights, optimizer = _scaler_of(answer, factor=64.0, interval=100)
    weights[0].grad, weights[1].grad = None, torch.full((2, 2), 64.0)
    try:
        scaler.unscale_(optimizer)
    except (AttributeError, TypeError) as error:
        raise Wrong(
            f"A weight whose gradient is None (a frozen layer) has to be skipped: {error}"
        ) from None
    scaler.step(optimizer)
    expect(
        float(weights[0].detach()) == 1.0,
        "A weight whose gradient is None (a frozen layer) stays as it is.",
    )


def amp_step(network, optimizer, scaler, images, labels, max_norm=1.0):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, torch.float16):
        loss = F.cross_entropy(network(images), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(network.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def verify_amp_step(answer):
    for max_norm, case in ((1e6, "nothing to clip"), (0.05, "gradients longer than max_norm")):
        expected, found = (_trained(step, max_norm=max_norm) for step in (amp_step, answer))
        expect(
            found.dtypes == {torch.float16},
            f"{case}: autocast should compute in fp16, found {_names(found)}.",
        )
        told = f"{case}: after three steps"
        expect_close(
            found.losses[0],
            expected.losses[0],
            f"{case}: the loss that is returned, not scaled",
            tolerance=1e-2,
        )
        expect_close(
            found.moved,
            expected.moved,
            f"{told} the distance from the first weights",
            tolerance=1e-2,
        )
        expect(
            found.factor == expected.factor,
            f"{told} the scale is {expected.factor:g}, found {found.factor:g}.",
        )
    found = _trained(answer, max_norm=1.0, size=1e30)
    expect(
        found.moved == 0,
        f"Gradients overflow: no weight may move, they moved by {found.moved:.3g}.",
    )
    expect(
        found.factor < 1024,
        "Gradients overflow: the scaler's update() should have lowered the scale.",
    )


class _Trained:
    """What three steps of an answer did to a small network."""

    def __init__(self):
        self.dtypes, self.losses, self.moved, self.factor = set(), [], 0.0, 0.0


def _names(trained):
    return sorted(str(dtype) for dtype in trained.dtypes)


def _trained(step, *, max_norm, size=1.0):
    """`_Trained` of three steps with torch's own scaler, gradients of an earlier step still in
    place.
    """
    random = torch.Generator().manual_seed(0)
    network = nn.Linear(6, 3)
    for weight in network.parameters():
        weight.data.uniform_(-0.4, 0.4, generator=random)
    start = torch.cat([weight.detach().flatten().clone() for weight in network.parameters()])
    for weight in network.parameters():
        weight.grad = torch.full_like(weight, 1e4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    result = _Trained()
    network.register_forward_hook(lambda layer, inputs, output: result.dtypes.add(output.dtype))
    images = size * torch.randn(8, 6, generator=random)
    labels = torch.randint(3, (8,), generator=random)
    for _ in range(3):
        try:
            loss = step(network, optimizer, scaler, images, labels, max_norm)
        except (AssertionError, RuntimeError) as error:
            raise Wrong(f"PyTorch's own scaler refuses this order of calls: {error}") from None
        expect(loss is not None, "Return the loss: nothing came back.")
        result.losses.append(loss.item() if isinstance(loss, torch.Tensor) else loss)
    end = torch.cat([weight.detach().flatten() for weight in network.parameters()])
    result.moved, result.factor = float((end - start).norm()), scaler.get_scale()
    return result


EXERCISES = (
    Exercise(
        id="SixteenBits",
        importance=2,
        task="The control that decides: a copy of a network in 16 bits throughout, so that "
        "nothing is converted.",
        difficulty=1,
        minutes=4,
        hint="copy.deepcopy(network).bfloat16() in __init__; images.bfloat16() and "
        ".float() in forward.",
        reference=SixteenBits,
        verify=verify_sixteen_bits,
        imports="import copy\n\nfrom torch import nn",
    ),
    Exercise(
        id="break-even",
        importance=3,
        task="Write from how many on the way that is dearer to begin is the cheaper one.",
        difficulty=2,
        minutes=7,
        hint="Each row wins the difference of the two `each`. After how many do these reach that "
        "of the two prices?",
        reference=break_even,
        verify=verify_break_even,
        imports="import math",
    ),
    Exercise(
        id="mended",
        importance=3,
        task="Find what breaks the graph, and write the function as one graph with "
        "the same results.",
        difficulty=2,
        minutes=8,
        hint="Which `if` asks for the value of a tensor? Clamp always; let torch.where choose "
        "between two tensors.",
        reference=mended,
        verify=verify_mended,
        imports="import torch",
    ),
    Exercise(
        id="LossScaler",
        importance=3,
        task="Write a gradient scaler: divide, look for overflow, skip the step, find the factor.",
        difficulty=3,
        minutes=15,
        hint="unscale_: two loops, groups and weights; skip weights whose .grad is None. update: "
        "halve, or count.",
        reference=LossScaler,
        verify=verify_loss_scaler,
    ),
    Exercise(
        id="amp-step",
        importance=3,
        task="One training step in fp16, with loss scaling and gradient clipping.",
        difficulty=2,
        minutes=8,
        hint="zero_grad, autocast around network and loss, scale and backward, unscale_, clip, "
        "step, update.",
        reference=amp_step,
        verify=verify_amp_step,
        imports="import torch\nfrom torch import nn\nfrom torch.nn import functional as F",
    ),
)
