"""Answers to the exercises on compiling and half precision: wrong ones that differ by one property,
right ones written differently."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F


class Control(nn.Module):
    """A copy in 16 bits as its subclasses spoil it."""

    def __init__(self, network):
        super().__init__()
        self.network = copy.deepcopy(network).bfloat16()

    def forward(self, images):
        return self.network(images.bfloat16()).float()


class ChangesTheOriginal(Control):
    def __init__(self, network):
        super().__init__(network)
        self.network = network.bfloat16()


class BySevenBits(Control):
    def __init__(self, network):
        super().__init__(network)
        self.network = copy.deepcopy(network).half()

    def forward(self, images):
        return self.network(images.half()).float()


class ByAutocast(Control):
    """Weights stay in fp32, so they are converted at each call: not the control."""

    def __init__(self, network):
        super().__init__(network)
        self.network = copy.deepcopy(network)

    def forward(self, images):
        with torch.autocast("cpu", torch.bfloat16):
            return self.network(images).float()


class ScoresInSixteenBits(Control):
    def forward(self, images):
        return self.network(images.bfloat16())


class RunsTwice(Control):
    def forward(self, images):
        self.network(images.bfloat16())
        return super().forward(images)


class HiddenInAList(Control):
    """An optimizer would not see its weights."""

    def __init__(self, network):
        nn.Module.__init__(self)
        self.hidden = [copy.deepcopy(network).bfloat16()]

    def forward(self, images):
        return self.hidden[0](images.bfloat16()).float()


class WithoutGradient(Control):
    @torch.no_grad()
    def forward(self, images):
        return self.network(images.bfloat16()).float().requires_grad_()


class ByTo(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.add_module("twin", copy.deepcopy(network).to(torch.bfloat16))

    def forward(self, images):
        return self.twin(images.to(torch.bfloat16)).to(images.dtype)


def as_sequential(network):
    class To(nn.Module):
        def __init__(self, dtype):
            super().__init__()
            self.dtype = dtype

        def forward(self, x):
            return x.type(self.dtype)

    return nn.Sequential(To(torch.bfloat16), copy.deepcopy(network).bfloat16(), To(torch.float32))


def gains(first, second):
    """(what the second costs more to begin, what it saves for each)."""
    return second[0] - first[0], first[1] - second[1]


def rounds_down(first, second):
    extra, saved = gains(first, second)
    return max(1, int(extra / saved)) if saved > 0 else 1 if saved == 0 and extra <= 0 else None


def adds_nearly_one(first, second):
    extra, saved = gains(first, second)
    return (
        max(1, int(extra / saved + 0.999))
        if saved > 0
        else 1
        if saved == 0 and extra <= 0
        else None
    )


def takes_the_length(first, second):
    extra, saved = gains(first, second)
    return max(1, math.ceil(abs(extra / saved))) if saved else 1 if extra <= 0 else None


def one_too_many(first, second):
    extra, saved = gains(first, second)
    return (
        max(1, math.floor(extra / saved) + 1)
        if saved > 0
        else 1
        if saved == 0 and extra <= 0
        else None
    )


def never_if_equal(first, second):
    extra, saved = gains(first, second)
    return max(1, math.ceil(extra / saved)) if saved > 0 else None


def may_be_zero_or_less(first, second):
    extra, saved = gains(first, second)
    return math.ceil(extra / saved) if saved > 0 else 1 if saved == 0 and extra <= 0 else None


def within_a_hundred(first, second):
    extra, saved = gains(first, second)
    return next((n for n in range(1, 101) if extra <= n * saved and saved >= 0), None)


def within_a_million(first, second):
    extra, saved = gains(first, second)
    found = math.ceil(extra / saved) if saved > 0 else 1 if saved == 0 and extra <= 0 else None
    return None if found is None or found > 1_000_000 else max(1, found)


def first_win(first, second):
    """Not "from which on": a win at the beginning counts, though it is lost later."""
    extra, saved = gains(first, second)
    if saved <= 0:
        return 1 if extra <= saved else None
    return max(1, math.ceil(extra / saved))


def count_up(first, second):
    extra, saved = gains(first, second)
    if saved < 0 or (saved == 0 and extra > 0):
        return None
    n = 1
    while n * saved < extra:
        n += 1
    return n


def by_floor_division(first, second):
    extra, saved = gains(first, second)
    if saved > 0:
        return max(1, int(-(-extra // saved)))
    return None if saved < 0 or extra > 0 else 1


def two_rows(x):
    return x[None] if x.dim() == 1 else x


def mended_by(clamped=lambda x: x.clamp(-1e4, 1e4), chosen=None, rows=two_rows):
    """An answer with one piece of its own."""

    def answer(x):
        x = clamped(rows(x))
        return chosen(x) if chosen else torch.where(x.mean() > 0, x * 2, x / 2)

    return answer


def keeps_the_first_if(x):
    x = two_rows(x)
    if x.abs().max() > 1e4:
        x = x.clamp(-1e4, 1e4)
    return torch.where(x.mean() > 0, x * 2, x / 2)


def through_numpy(x):
    x = two_rows(x).clamp(-1e4, 1e4)
    return x * (2 if x.numpy().mean() > 0 else 0.5)


def mean_before_clamping(x):
    x = two_rows(x)
    clamped = x.clamp(-1e4, 1e4)
    return torch.where(x.mean() > 0, clamped * 2, clamped / 2)


def in_place(x):
    x = two_rows(x).clamp_(-1e4, 1e4)
    return torch.where(x.mean() > 0, x * 2, x / 2)


def by_a_factor(x):
    x = x.reshape(-1, x.shape[-1]).minimum(torch.tensor(1e4, dtype=x.dtype))
    x = x.maximum(torch.tensor(-1e4, dtype=x.dtype))
    return x * torch.where(x.mean() > 0, 2.0, 0.5)


def by_a_mask(x):
    x = torch.clip(x if x.dim() == 2 else x.unsqueeze(0), -1e4, 1e4)
    positive = (x.mean() > 0).to(x.dtype)
    return x * (2 * positive + (1 - positive) / 2)


class Scaler:
    """A right scaler, piece by piece, for others to spoil."""

    def __init__(self, factor=2.0**16, interval=2000):
        self.factor, self.interval = factor, interval
        self.good_steps, self.overflow = 0, False

    def scale(self, loss):
        return loss * self.factor

    def weights_of(self, optimizer):
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        return [weight for weight in weights if weight.grad is not None]

    def divide(self, optimizer):
        for weight in self.weights_of(optimizer):
            weight.grad.div_(self.factor)

    def overflowed(self, optimizer):
        return not all(bool(weight.grad.isfinite().all()) for weight in self.weights_of(optimizer))

    def unscale_(self, optimizer):
        self.divide(optimizer)
        self.overflow = self.overflowed(optimizer)

    def step(self, optimizer):
        if not self.overflow:
            optimizer.step()

    def update(self):
        self.good_steps = 0 if self.overflow else self.good_steps + 1
        if self.overflow:
            self.factor /= 2
        elif self.good_steps == self.interval:
            self.factor, self.good_steps = 2 * self.factor, 0


class NeverDivides(Scaler):
    def divide(self, optimizer):
        pass


class FirstGroupOnly(Scaler):
    def weights_of(self, optimizer):
        return [weight for weight in optimizer.param_groups[0]["params"] if weight.grad is not None]


class FailsWithoutGradient(Scaler):
    def weights_of(self, optimizer):
        return [weight for group in optimizer.param_groups for weight in group["params"]]


class LooksForInfinityOnly(Scaler):
    def overflowed(self, optimizer):
        return any(bool(weight.grad.isinf().any()) for weight in self.weights_of(optimizer))


class LooksAtTheLastWeight(Scaler):
    def unscale_(self, optimizer):
        self.divide(optimizer)
        for weight in self.weights_of(optimizer):
            self.overflow = not bool(weight.grad.isfinite().all())


class NeverForgets(Scaler):
    def unscale_(self, optimizer):
        self.divide(optimizer)
        self.overflow = self.overflow or self.overflowed(optimizer)


class StepsAnyway(Scaler):
    def step(self, optimizer):
        optimizer.step()


class StepsWithZeros(Scaler):
    """After an overflow all gradients are 0, and the optimizer steps: its momentum moves the
    weights.
    """

    def step(self, optimizer):
        if self.overflow:
            for weight in self.weights_of(optimizer):
                weight.grad.zero_()
        optimizer.step()


class NeverDoubles(Scaler):
    def update(self):
        if self.overflow:
            self.factor /= 2


class NeverHalves(Scaler):
    def update(self):
        factor = self.factor
        super().update()
        self.factor = max(self.factor, factor)


class CountsOverAnOverflow(Scaler):
    def update(self):
        good_steps = self.good_steps
        super().update()
        if self.overflow:
            self.good_steps = good_steps


class DoublesOneLate(Scaler):
    def update(self):
        self.interval += 1
        super().update()
        self.interval -= 1


class DoublesForEver(Scaler):
    """The count of good steps is not begun anew."""

    def update(self):
        self.good_steps = 0 if self.overflow else self.good_steps + 1
        if self.overflow:
            self.factor /= 2
        elif self.good_steps >= self.interval:
            self.factor *= 2


class ByTheNorm(Scaler):
    """One norm of all gradients tells an overflow; a new tensor holds each divided gradient."""

    def unscale_(self, optimizer):
        norms = [torch.zeros(())]
        for weight in self.weights_of(optimizer):
            weight.grad = weight.grad / self.factor
            norms.append(weight.grad.norm())
        self.overflow = not math.isfinite(sum(map(float, norms)))


class ByForeach(Scaler):
    def divide(self, optimizer):
        torch._foreach_mul_([weight.grad for weight in self.weights_of(optimizer)], 1 / self.factor)

    def update(self):
        if self.overflow:
            self.factor, self.good_steps = self.factor * 0.5, 0
        else:
            self.good_steps = (self.good_steps + 1) % self.interval
            self.factor *= 2 if self.good_steps == 0 else 1


def step_of(
    clear=True,
    dtype=torch.float16,
    scaled=True,
    order=("unscale", "clip"),
    take="scaler",
    updated=True,
    result=lambda loss, scaler: loss.detach(),
):
    """An answer to `amp-step` with one piece of its own."""

    def answer(network, optimizer, scaler, images, labels, max_norm=1.0):
        if clear:
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype or torch.float16, enabled=dtype is not None):
            loss = F.cross_entropy(network(images), labels)
        (scaler.scale(loss) if scaled else loss).backward()
        for part in order:
            if part == "unscale":
                scaler.unscale_(optimizer)
            elif part == "clip":
                nn.utils.clip_grad_norm_(network.parameters(), max_norm)
            else:
                for weight in network.parameters():
                    nn.utils.clip_grad_norm_([weight], max_norm)
        scaler.step(optimizer) if take == "scaler" else optimizer.step()
        if updated:
            scaler.update()
        return result(loss, scaler)

    return answer


def by_own_arithmetic(network, optimizer, scaler, images, labels, max_norm=1.0):
    network.zero_grad(set_to_none=True)
    with torch.amp.autocast(device_type="cpu", dtype=torch.half):
        scores = network(images)
    loss = F.cross_entropy(scores.float(), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    length = torch.cat([weight.grad.flatten() for weight in network.parameters()]).norm()
    for weight in network.parameters():
        weight.grad *= (max_norm / length).clamp(max=1)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


WRONG = {
    "SixteenBits": {
        "converts the network that was handed in": ChangesTheOriginal,
        "takes fp16": BySevenBits,
        "leaves converting to autocast": ByAutocast,
        "returns scores of 16 bits": ScoresInSixteenBits,
        "runs the network twice": RunsTwice,
        "hides the copy from the optimizer": HiddenInAList,
        "has no gradients": WithoutGradient,
    },
    "break-even": {
        "rounds down": rounds_down,
        "adds nearly one, then rounds down": adds_nearly_one,
        "takes the length of the quotient": takes_the_length,
        "counts one too many": one_too_many,
        "says never where both cost the same for each": never_if_equal,
        "may say 0 or less": may_be_zero_or_less,
        "counts a win that is lost later": first_win,
        "looks at a hundred only": within_a_hundred,
        "looks at a million only": within_a_million,
    },
    "mended": {
        "keeps the if on the largest": keeps_the_first_if,
        "reads the mean with item()": mended_by(
            chosen=lambda x: x * (2 if x.mean().item() > 0 else 0.5)
        ),
        "chooses for each element": mended_by(chosen=lambda x: torch.where(x > 0, x * 2, x / 2)),
        "doubles at a mean of 0": mended_by(
            chosen=lambda x: torch.where(x.mean() >= 0, x * 2, x / 2)
        ),
        "takes the mean of each row": mended_by(
            chosen=lambda x: torch.where(x.mean(-1, keepdim=True) > 0, x * 2, x / 2)
        ),
        "always doubles": mended_by(chosen=lambda x: x * 2),
        "does not clamp": mended_by(clamped=lambda x: x),
        "clamps on one side": mended_by(clamped=lambda x: x.clamp(max=1e4)),
        "drops the new axis": mended_by(rows=lambda x: x),
        "takes the mean before it clamps": mean_before_clamping,
        "goes through NumPy": through_numpy,
        "writes into its input": in_place,
        "returns float64": mended_by(
            chosen=lambda x: torch.where(x.mean() > 0, x * 2, x / 2).double()
        ),
    },
    "LossScaler": {
        "never divides": NeverDivides,
        "takes the first group": FirstGroupOnly,
        "fails where a weight has no gradient": FailsWithoutGradient,
        "looks for inf, not for NaN": LooksForInfinityOnly,
        "lets the last weight decide": LooksAtTheLastWeight,
        "never forgets an overflow": NeverForgets,
        "steps after an overflow": StepsAnyway,
        "steps with gradients of 0 after an overflow": StepsWithZeros,
        "never doubles": NeverDoubles,
        "never halves": NeverHalves,
        "goes on counting after an overflow": CountsOverAnOverflow,
        "doubles one step late": DoublesOneLate,
        "doubles at every step after the interval": DoublesForEver,
    },
    "amp-step": {
        "clips before it divides": step_of(order=("clip", "unscale")),
        "clips, and leaves dividing to the scaler": step_of(order=("clip",)),
        "does not clip": step_of(order=("unscale",)),
        "clips each weight alone": step_of(order=("unscale", "each")),
        "keeps old gradients": step_of(clear=False),
        "computes in fp32": step_of(dtype=None),
        "computes in bf16": step_of(dtype=torch.bfloat16),
        "does not scale the loss": step_of(scaled=False),
        "steps after an overflow": step_of(take="optimizer"),
        "never updates the scale": step_of(updated=False),
        "returns the scaled loss": step_of(
            result=lambda loss, scaler: loss.detach() * scaler.get_scale()
        ),
        "returns nothing": step_of(result=lambda loss, scaler: None),
    },
}

RIGHT = {
    "SixteenBits": {"by to and add_module": ByTo, "as a Sequential": as_sequential},
    "break-even": {
        "one by one": count_up,
        "by negative floor division": by_floor_division,
    },
    "mended": {
        "a factor chosen by torch.where": by_a_factor,
        "by a mask": by_a_mask,
    },
    "LossScaler": {"by one norm": ByTheNorm, "by foreach": ByForeach},
    "amp-step": {
        "clips by its own arithmetic": by_own_arithmetic,
        "returns a number": step_of(result=lambda loss, scaler: loss.item()),
    },
}
