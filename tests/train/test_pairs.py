"""All pairs of the switches that touch weights, statistics or order: each training against a plain
loop.

The plain loop below is written out with torch alone. Left out: `compile` and `torchscript`, which
take seconds for each network and change nothing but rounding (test_fit.py compares them alone), and
fp16, whose scaler has a test of its own.
"""

import copy
import itertools
import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn

from labkit.errors import LabError
from labkit.methods.recompute import with_recompute
from labkit.train import TrainConfig, epoch_seed, fit

BATCH, SIDE, EPOCHS, IMAGES = 16, 12, 2, 32
BASE = {
    "optimizer": "sgd",
    "schedule": "constant",
    "learning_rate": 0.05,
    "batch": BATCH,
    "epochs": EPOCHS,
}
SWITCHES = {
    "average of the weights": {"ema": 0.8},
    "batch in parts": {"accumulate": 2},
    "ghost batch norm": {"ghost_size": 4},
    "clipping": {"clip": 0.05},
    "momentum of batch norm": {"norm_momentum": 0.4},
    "label smoothing": {"label_smoothing": 0.2},
    "bf16": {"amp": "bf16"},
    "cosine": {"schedule": "cosine"},
    "one cycle": {"schedule": "onecycle"},
    "warm-up": {"warmup": "gradual", "warmup_epochs": 1.5},
    "adamw": {"optimizer": "adamw"},
    "muon": {"optimizer": "muon"},
    "schedule-free": {"optimizer": "schedule_free"},
    "growing images": {"first_size": 8},
    "NHWC": {"channels_last": True},
    "augmented images": {"augment": True},
    "head alone": {"head_only": True},
    "recomputed activations": {},  # of the network
}
REFUSED = {
    ("average of the weights", "schedule-free"): "averages already",
    ("cosine", "schedule-free"): "has no schedule cosine",
    ("one cycle", "schedule-free"): "has no schedule onecycle",
    ("one cycle", "warm-up"): "warm-up of its own",
}
IDLE = {
    ("ghost batch norm", "head alone"): "ghost_size",
    ("momentum of batch norm", "head alone"): "norm_momentum",
}
PAIRS = [
    pair
    for pair in itertools.combinations(SWITCHES, 2)
    if not SWITCHES[pair[0]].keys() & SWITCHES[pair[1]].keys()
]


class Pictures:
    """Made-up pictures with the two things that the loop asks of a set: its length and its
    batches.
    """

    def __init__(self):
        random = torch.Generator().manual_seed(0)
        self.labels = torch.arange(IMAGES) % 4
        self.images = (
            torch.randn(IMAGES, 1, SIDE, SIDE, generator=random) + self.labels.view(-1, 1, 1, 1) / 3
        )

    def __len__(self):
        return IMAGES

    def batches(self, batch, *, seed, augment=False, size=None, channels_last=False, **_):
        random = torch.Generator().manual_seed(seed)
        for chosen in torch.randperm(IMAGES, generator=random).split(batch):
            images = self.images[chosen]
            if augment:
                mirrored = torch.rand(len(chosen), generator=random) < 0.5
                images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(3), images)
            images = images if size in (None, SIDE) else F.adaptive_avg_pool2d(images, size)
            layout = torch.channels_last if channels_last else torch.contiguous_format
            yield images.contiguous(memory_format=layout), self.labels[chosen]


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.SiLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    )


class InGroups(nn.Module):
    """Batch norm of each group of a batch by itself."""

    def __init__(self, norm, group):
        super().__init__()
        self.norm, self.group = norm, group

    def forward(self, x):
        norm = self.norm
        if not self.training:
            return norm(x)
        outputs, statistics = [], []
        for part in x.split(self.group):
            mean, var = torch.zeros_like(norm.running_mean), torch.ones_like(norm.running_var)
            outputs.append(
                F.batch_norm(part, mean, var, norm.weight, norm.bias, True, 1.0, norm.eps)
            )
            statistics.append(torch.stack([mean, var]))
        mean, var = torch.stack(statistics).mean(0)
        norm.num_batches_tracked += 1
        share = 1 / norm.num_batches_tracked if norm.momentum is None else norm.momentum
        norm.running_mean += share * (mean - norm.running_mean)
        norm.running_var += share * (var - norm.running_var)
        return torch.cat(outputs)


class PlainScheduleFree:
    """z descends, x is the mean of all z by the squares of their rates, the weights are y
    between the two.
    """

    def __init__(self, weights, momentum, decay):
        self.weights, self.momentum, self.decay, self.total = weights, momentum, decay, 0.0
        self.z = [weight.detach().clone() for weight in weights]
        self.x = [weight.detach().clone() for weight in weights]

    @torch.no_grad()
    def step(self, rate, _):
        self.total += rate**2
        for y, z, x in zip(self.weights, self.z, self.x, strict=True):
            z -= rate * (y.grad + self.decay * y)
            x += (z - x) * rate**2 / self.total
            y.copy_((1 - self.momentum) * z + self.momentum * x)


class PlainMuon:
    """AdamW, and for the matrices between the first and the last the orthogonal form of their
    momentum.
    """

    def __init__(self, weights, decay):
        matrices = [weight for weight in weights if weight.ndim > 1]
        self.hidden, self.decay = matrices[1:-1], decay
        inside = {id(weight) for weight in self.hidden}
        self.adamw = torch.optim.AdamW(
            [weight for weight in weights if id(weight) not in inside], weight_decay=decay
        )
        self.means = [torch.zeros_like(weight) for weight in self.hidden]

    @torch.no_grad()
    def step(self, rate, momentum):
        for group in self.adamw.param_groups:
            group["lr"], group["betas"] = rate, (momentum, 0.999)
        self.adamw.step()
        for weight, mean in zip(self.hidden, self.means, strict=True):
            mean += (1 - momentum) * (weight.grad - mean)
            slope = (weight.grad + momentum * (mean - weight.grad)).flatten(1)
            x = slope.bfloat16() / slope.bfloat16().norm()
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
            weight *= 1 - rate * self.decay
            weight -= rate * 0.2 * math.sqrt(max(slope.shape)) * x.float().view_as(weight)


class PlainTorch:
    """An optimizer of torch, with the rate and the momentum of each step."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self, rate, momentum):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
            if "betas" in group:
                group["betas"] = (momentum, 0.999)
            else:
                group["momentum"] = momentum
        self.optimizer.step()


def plain_optimizer(config, weights):
    decay = config.weight_decay
    return {
        "sgd": lambda: PlainTorch(torch.optim.SGD(weights, momentum=0.9, weight_decay=decay)),
        "adamw": lambda: PlainTorch(torch.optim.AdamW(weights, weight_decay=decay)),
        "muon": lambda: PlainMuon(weights, decay),
        "schedule_free": lambda: PlainScheduleFree(weights, config.momentum, decay),
    }[config.optimizer]()


def plain_rates(config):
    """[(rate, momentum)] of each step."""
    per_epoch = IMAGES // BATCH
    steps = EPOCHS * per_epoch
    if config.schedule == "onecycle":
        sgd = torch.optim.SGD([torch.zeros(1)], momentum=0.9)
        schedule = torch.optim.lr_scheduler.OneCycleLR(sgd, config.learning_rate, total_steps=steps)
        rates = []
        for step in range(steps):
            rates.append((sgd.param_groups[0]["lr"], sgd.param_groups[0]["momentum"]))
            sgd.step()
            if step < steps - 1:
                schedule.step()
        return rates
    warm = round(config.warmup_epochs * per_epoch)
    factors = [(step + 1) / warm for step in range(warm)]
    for step in range(steps - warm):
        cosine = (1 + math.cos(math.pi * step / (steps - warm))) / 2
        factors.append(cosine if config.schedule == "cosine" else 1.0)
    return [(config.learning_rate * factor, 0.9) for factor in factors]


def plain_norms(model, config):
    """Put into the model what the switches say of batch norm."""
    for place, layer in enumerate(model):
        if isinstance(layer, nn.BatchNorm2d):
            momentum = config.norm_momentum or layer.momentum
            layer.momentum = 1 - (1 - momentum) ** (1 / config.accumulate)
            if config.ghost_size:
                model[place] = InGroups(layer, config.ghost_size)


def plain_batches(config, epoch):
    side = [config.first_size or SIDE, SIDE][epoch]
    return Pictures().batches(BATCH, seed=epoch_seed(0, epoch), augment=config.augment, size=side)


def plain_clip(weights, largest):
    norm = math.sqrt(sum(float(weight.grad.double().square().sum()) for weight in weights))
    for weight in weights:
        weight.grad *= min(1.0, largest / norm)


def plain_training(model, config):
    """The loop with every switch written out: (losses, the model with the weights that are
    tested).
    """
    plain_norms(model, config)
    weights = list(model[-1].parameters() if config.head_only else model.parameters())
    for weight in model.parameters():
        weight.requires_grad_(any(weight is other for other in weights))
    optimizer, rates, losses = plain_optimizer(config, weights), iter(plain_rates(config)), []
    average = [weight.detach().clone() for weight in model.parameters()]
    model.train(not config.head_only)
    for epoch in range(EPOCHS):
        for images, labels in plain_batches(config, epoch):
            model.zero_grad()
            loss = 0.0
            for x, y in zip(
                images.chunk(config.accumulate), labels.chunk(config.accumulate), strict=True
            ):
                with torch.autocast("cpu", torch.bfloat16) if config.amp else nullcontext():
                    part = (
                        F.cross_entropy(model(x), y, label_smoothing=config.label_smoothing)
                        / config.accumulate
                    )
                part.backward()
                loss += part.item()
            losses.append(loss)
            if config.clip:
                plain_clip(weights, config.clip)
            optimizer.step(*next(rates))
            for mean, weight in zip(average, model.parameters(), strict=True):
                mean += (1 - (config.ema or 0)) * (weight.detach() - mean)
    return losses, plain_tested(model, config, optimizer, average)


@torch.no_grad()
def plain_tested(model, config, optimizer, average):
    """The model that is tested: where its weights are others than the last, statistics are
    counted anew.
    """
    if not config.ema and config.optimizer != "schedule_free":
        return model
    tested = copy.deepcopy(model)
    if config.ema:
        weights, values = tested.parameters(), average
    else:
        weights, values = (
            (weight for weight in tested.parameters() if weight.requires_grad),
            optimizer.x,
        )
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)
    if not config.head_only:
        batches = [
            images.chunk(config.accumulate) for images, _ in plain_batches(config, EPOCHS - 1)
        ]
        update_bn(itertools.chain(*batches), tested)
    return tested


def numbers(model):
    return [tensor.detach().float() for tensor in model.state_dict().values()]


def config_of(*names):
    return TrainConfig(
        **BASE | {key: value for name in names for key, value in SWITCHES[name].items()}
    )


def both_ways(*names):
    """(losses, numbers of the last, numbers of the tested network) of labkit's loop and of the
    plain one.
    """
    config, model, plain = config_of(*names), network(), network()
    if "recomputed activations" in names:
        with_recompute(model, nn.SiLU)
    history = fit(model, Pictures(), config, device="cpu")
    losses, tested = plain_training(plain, config)
    ours = history.losses, numbers(model), numbers(history.model or model)
    return ours, (losses, numbers(plain), numbers(tested))


def require_close(ours, theirs, names):
    """Compare as closely as rounding allows: products in bfloat16 have three digits."""
    coarse = {"bf16", "muon"} & {*names}
    bounds = {"rtol": 2e-2, "atol": 2e-3} if coarse else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(torch.tensor(ours[0]), torch.tensor(theirs[0]), **bounds)
    for part in (1, 2):
        for found, expected in zip(ours[part], theirs[part], strict=True):
            torch.testing.assert_close(found, expected, **bounds)


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_alone_is_that_of_the_plain_loop_and_does_something(name):
    ours, theirs = both_ways(name)
    require_close(ours, theirs, [name])
    off, _ = both_ways()
    same = all(map(torch.equal, ours[1] + ours[2], off[1] + off[2]))
    assert same == (name == "recomputed activations")


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_each_pair_of_switches_is_that_of_the_plain_loop_or_refused(pair):
    if pair in REFUSED:
        with pytest.raises(LabError, match=REFUSED[pair]):
            config_of(*pair)
        return
    require_close(*both_ways(*pair), pair)
    assert (
        set(config_of(*pair).idle("cpu")) == {IDLE[pair]}
        if pair in IDLE
        else not config_of(*pair).idle("cpu")
    )


def test_a_batch_in_parts_is_the_step_of_ghosts_of_their_size_and_of_the_whole_batch_without_batch_norm():
    def left(model, **settings):
        config = TrainConfig(**BASE | {"momentum": 0.0, **settings})
        return fit(model, Pictures(), config, device="cpu").losses, model

    parts, ghosts, whole = (
        left(network(), **how) for how in ({"accumulate": 4}, {"ghost_size": 4}, {})
    )
    assert parts[0] == pytest.approx(ghosts[0], rel=1e-5)
    for ours, theirs in zip(parts[1].parameters(), ghosts[1].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert parts[0] != pytest.approx(whole[0], rel=1e-3)
    # the running variance follows the parts as fast as it follows the ghosts, of which it takes a
    # plain mean
    torch.testing.assert_close(parts[1][1].running_var, ghosts[1][1].running_var, rtol=0.02, atol=0)
    without = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 4)
    )
    (losses, model), (same, other) = (
        left(copy.deepcopy(without), **how) for how in ({"accumulate": 4}, {})
    )
    assert losses == pytest.approx(same, rel=1e-5)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_parts_with_a_scaler_and_clipping_leave_out_a_step_that_overflows_as_plain_torch_does():
    """One batch is so large that its scaled gradient is infinite in float16; the loss itself is
    finite.
    """

    class Bright(Pictures):
        def batches(self, batch, *, seed, **how):
            for number, (images, labels) in enumerate(super().batches(batch, seed=seed, **how)):
                loud = seed == epoch_seed(0, 0) and number == 1  # the second step
                yield images * (300.0 if loud else 1.0), labels

    config = TrainConfig(**BASE | {"amp": "fp16", "accumulate": 4, "clip": 1.0})
    linear = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 4))
    model, plain = copy.deepcopy(linear), copy.deepcopy(linear)
    history = fit(model, Bright(), config, device="cpu")
    optimizer = torch.optim.SGD(
        plain.parameters(), lr=0.05, momentum=0.9, weight_decay=config.weight_decay
    )
    scaler, losses, scales, moved = torch.amp.GradScaler("cpu", init_scale=2.0**16), [], [], []
    for epoch in range(EPOCHS):
        for images, labels in Bright().batches(BATCH, seed=epoch_seed(0, epoch)):
            before = plain[1].weight.detach().clone()
            optimizer.zero_grad()
            parts = []
            for x, y in zip(images.chunk(4), labels.chunk(4), strict=True):
                with torch.autocast("cpu", torch.float16):
                    parts.append(F.cross_entropy(plain(x), y) / 4)
                scaler.scale(parts[-1]).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(sum(part.item() for part in parts))
            scales.append(scaler.get_scale())
            moved.append(not torch.equal(before, plain[1].weight))
    assert moved == [True, False, True, True]
    assert scales == [2.0**16, 2.0**15, 2.0**15, 2.0**15]
    assert history.losses == pytest.approx(losses, rel=1e-6)
    assert torch.equal(model[1].weight, plain[1].weight)
    assert torch.equal(model[1].bias, plain[1].bias)
