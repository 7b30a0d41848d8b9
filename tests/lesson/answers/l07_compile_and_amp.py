"""Answers to the exercises of lesson 07: wrong ones that must be rejected, right ones written differently."""

import math

from labkit.lesson.exercises.l07_compile_and_amp import next_scale


def python_if(x):
    return x * 2 if x.mean() > 0 else x / 2


def item_and_if(x):
    return x * (2 if x.mean().item() > 0 else 0.5)


def where_on_each(x):
    import torch

    return torch.where(x > 0, x * 2, x / 2)


def a_mean_of_zero_counts_as_above(x):
    import torch

    return torch.where(x.mean() >= 0, x * 2, x / 2)


def always_double(x):
    return x * 2


def through_numpy(x):
    import torch

    return torch.from_numpy(x.numpy() * (2 if x.tolist()[0] > 0 else 0.5))


def never_grow(scale, good_steps, overflowed, interval=2000):
    return (scale / 2, 0) if overflowed else (scale, good_steps + 1)


def forget_to_count_anew(scale, good_steps, overflowed, interval=2000):
    if overflowed:
        return scale / 2, good_steps
    return (scale * 2, 0) if good_steps + 1 == interval else (scale, good_steps + 1)


def grow_every_step(scale, good_steps, overflowed, interval=2000):
    return (scale / 2, 0) if overflowed else (scale * 2, good_steps + 1)


def turned_around(scale, good_steps, overflowed, interval=2000):
    return (scale * 2, 0) if overflowed else next_scale(scale, good_steps, False, interval)


def one_too_late(scale, good_steps, overflowed, interval=2000):
    if overflowed:
        return scale / 2, 0
    return (scale * 2, 0) if good_steps == interval else (scale, good_steps + 1)


def count_the_epochs(compile_s, eager_epoch_s, compiled_epoch_s):
    if compiled_epoch_s >= eager_epoch_s:
        return None
    epoch, won = 1, eager_epoch_s - compiled_epoch_s
    while won < compile_s:
        epoch, won = epoch + 1, won + eager_epoch_s - compiled_epoch_s
    return epoch


def by_a_factor(x):
    import torch

    return x * torch.where(x.mean() > 0, 2.0, 0.5)


def by_a_mask(x):
    positive = (x.mean() > 0).to(x.dtype)
    return x * (2 * positive + (1 - positive) / 2)


def scale_in_a_list(scale, good_steps, overflowed, interval=2000):
    if not overflowed:
        good_steps += 1
        return [scale * 2, 0] if good_steps >= interval else [scale, good_steps]
    return [scale * 0.5, 0]


def scale_by_a_factor(scale, good_steps, overflowed, interval=2000):
    full = good_steps + 1 >= interval
    factor = 0.5 if overflowed else 2.0 if full else 1.0
    return scale * factor, 0 if overflowed or full else good_steps + 1


def clip_first(loss, weights, optimizer, scale, max_norm):
    import torch

    (loss * scale).backward()
    norm = torch.nn.utils.clip_grad_norm_(weights, max_norm)
    for weight in weights:
        weight.grad /= scale
    if not norm.isfinite():
        return True
    optimizer.step()
    return False


def never_divide(loss, weights, optimizer, scale, max_norm):
    import torch

    (loss * scale).backward()
    norm = torch.nn.utils.clip_grad_norm_(weights, max_norm)
    if norm.isfinite():
        optimizer.step()
    return not norm.isfinite()


def step_anyway(loss, weights, optimizer, scale, max_norm):
    import torch

    (loss * scale).backward()
    for weight in weights:
        weight.grad /= scale
    norm = torch.nn.utils.clip_grad_norm_(weights, max_norm)
    optimizer.step()
    return not norm.isfinite()


def no_scale(loss, weights, optimizer, scale, max_norm):
    import torch

    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(weights, max_norm)
    if norm.isfinite():
        optimizer.step()
    return not norm.isfinite()


def never_clip(loss, weights, optimizer, scale, max_norm):
    (loss * scale).backward()
    for weight in weights:
        weight.grad /= scale
    if all(weight.grad.isfinite().all() for weight in weights):
        optimizer.step()
        return False
    return True


def clip_each_alone(loss, weights, optimizer, scale, max_norm):
    import torch

    (loss * scale).backward()
    norms = []
    for weight in weights:
        weight.grad /= scale
        norms.append(torch.nn.utils.clip_grad_norm_([weight], max_norm))
    if all(norm.isfinite() for norm in norms):
        optimizer.step()
        return False
    return True


def look_for_infinity_only(loss, weights, optimizer, scale, max_norm):
    import torch

    (loss * scale).backward()
    if any(weight.grad.isinf().any() for weight in weights):
        return True
    for weight in weights:
        weight.grad /= scale
    torch.nn.utils.clip_grad_norm_(weights, max_norm)
    optimizer.step()
    return False


def clip_to_a_scaled_norm(loss, weights, optimizer, scale, max_norm):
    import torch

    (scale * loss).backward()
    norm = torch.nn.utils.clip_grad_norm_(weights, max_norm * scale)
    if bool(norm.isfinite()):
        for weight in weights:
            weight.grad = weight.grad / scale
        optimizer.step()
        return False
    return True


def clip_by_own_arithmetic(loss, weights, optimizer, scale, max_norm):
    import torch

    (loss * scale).backward()
    true = [weight.grad / scale for weight in weights]
    long = torch.sqrt(sum((each**2).sum() for each in true))
    if torch.isinf(long) or torch.isnan(long):
        optimizer.zero_grad()
        return True
    for weight, each in zip(weights, true, strict=True):
        weight.grad = each * min(1.0, max_norm / float(long))
    optimizer.step()
    return False


def with_grad_scaler(loss, weights, optimizer, scale, max_norm):
    import torch

    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(weights, max_norm)
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() < scale


WRONG = {
    "break-even-epoch": {
        "rounds down": lambda c, e, s: int(c / (e - s)) or 1 if e > s else None,
        "divides by the epoch, not by what it saves": lambda c, e, s: math.ceil(c / e) or 1 if e > s else None,
        "forgets that it may never pay": lambda c, e, s: max(1, math.ceil(c / abs(e - s))) if e != s else None,
        "counts one epoch too many": lambda c, e, s: math.floor(c / (e - s)) + 1 if e > s else None,
    },
    "one-graph": {
        "keeps the if": python_if,
        "reads the number with item()": item_and_if,
        "chooses for each element": where_on_each,
        "doubles at a mean of 0": a_mean_of_zero_counts_as_above,
        "drops the branch": always_double,
        "goes through NumPy": through_numpy,
    },
    "next-scale": {
        "never grows again": never_grow,
        "does not count anew after an overflow": forget_to_count_anew,
        "grows after every good step": grow_every_step,
        "turns halving and doubling around": turned_around,
        "grows one step too late": one_too_late,
    },
    "clipped-step": {
        "clips before it divides": clip_first,
        "never divides": never_divide,
        "steps after an overflow": step_anyway,
        "does not scale the loss": no_scale,
        "does not clip": never_clip,
        "clips each weight alone": clip_each_alone,
        "looks for inf, not for NaN": look_for_infinity_only,
        "returns whether it stepped": lambda *given: not clip_to_a_scaled_norm(*given),
    },
}

RIGHT = {
    "break-even-epoch": {
        "epoch by epoch": count_the_epochs,
        "by negative floor division": lambda c, e, s: max(1, int(-(-c // (e - s)))) if e > s else None,
    },
    "one-graph": {
        "a factor chosen by torch.where": by_a_factor,
        "by a mask": by_a_mask,
    },
    "next-scale": {
        "in a list": scale_in_a_list,
        "by a factor": scale_by_a_factor,
    },
    "clipped-step": {
        "clips the scaled gradient to a scaled norm": clip_to_a_scaled_norm,
        "clips by its own arithmetic": clip_by_own_arithmetic,
        "with GradScaler": with_grad_scaler,
    },
}
