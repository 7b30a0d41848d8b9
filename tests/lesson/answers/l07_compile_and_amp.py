"""Answers to the exercises of lesson 07: wrong ones that must be rejected, right ones written differently."""

import math


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


def by_the_mean(mean, *, dtype=None, in_place=False):
    """An answer that looks at another mean, returns another dtype, or writes into its input."""

    def answer(x):
        import torch

        if in_place:
            return x.mul_(torch.where(x.mean() > 0, 2.0, 0.5))
        found = torch.where(mean(x) > 0, x * 2, x / 2)
        return found if dtype is None else found.to(getattr(torch, dtype))

    return answer


def by_a_tensor_of_one_number(x):
    import torch

    return x * torch.where(x.mean() > 0, torch.tensor([2.0]), torch.tensor([0.5]))


def gains(first, second):
    """(what the second costs more to begin, what it saves for each)."""
    return second[0] - first[0], first[1] - second[1]


def rounds_down(first, second):
    extra, saved = gains(first, second)
    return max(1, int(extra / saved)) if saved > 0 else 1 if saved == 0 and extra <= 0 else None


def adds_nearly_one(first, second):
    extra, saved = gains(first, second)
    return max(1, int(extra / saved + 0.999)) if saved > 0 else 1 if saved == 0 and extra <= 0 else None


def takes_the_length(first, second):
    extra, saved = gains(first, second)
    return max(1, math.ceil(abs(extra / saved))) if saved else 1 if extra <= 0 else None


def one_too_many(first, second):
    extra, saved = gains(first, second)
    return max(1, math.floor(extra / saved) + 1) if saved > 0 else 1 if saved == 0 and extra <= 0 else None


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


def by_a_factor(x):
    import torch

    return x * torch.where(x.mean() > 0, 2.0, 0.5)


def add_both_ways(x):
    positive = (x.mean() > 0).to(x.dtype)
    return (x * 2) * positive + (x / 2) * (1 - positive)


def by_a_mask(x):
    positive = (x.mean() > 0).to(x.dtype)
    return x * (2 * positive + (1 - positive) / 2)


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


def step_without_gradients(loss, weights, optimizer, scale, max_norm):
    """After an overflow all gradients are 0, and the optimizer steps: its momentum moves the weights."""
    import torch

    (loss * scale).backward()
    for weight in weights:
        weight.grad /= scale
    overflow = not all(bool(weight.grad.isfinite().all()) for weight in weights)
    if overflow:
        for weight in weights:
            weight.grad.zero_()
    torch.nn.utils.clip_grad_norm_(weights, max_norm)
    optimizer.step()
    return overflow


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


def overflow_seen_by(look):
    """An answer that takes a step unless `look(weights, scaled loss)` finds an overflow."""

    def answer(loss, weights, optimizer, scale, max_norm):
        import torch

        (loss * scale).backward()
        overflowed = not bool(look(weights, loss * scale).isfinite().all())
        for weight in weights:
            weight.grad /= scale
        torch.nn.utils.clip_grad_norm_(weights, max_norm)
        if not overflowed:
            optimizer.step()
        return overflowed

    return answer


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
    "one-graph": {
        "keeps the if": python_if,
        "reads the number with item()": item_and_if,
        "chooses for each element": where_on_each,
        "doubles at a mean of 0": a_mean_of_zero_counts_as_above,
        "drops the branch": always_double,
        "goes through NumPy": through_numpy,
        "takes the mean of each row": by_the_mean(lambda x: x.mean(-1, keepdim=True)),
        "takes the mean of each column": by_the_mean(lambda x: x.mean(0)),
        "writes into its input": by_the_mean(None, in_place=True),
        "returns float64": by_the_mean(lambda x: x.mean(), dtype="float64"),
        "returns float32": by_the_mean(lambda x: x.mean(), dtype="float32"),
        "adds both ways, one times 0": add_both_ways,
        "a factor of one number, float32": by_a_tensor_of_one_number,
    },
    "clipped-step": {
        "clips before it divides": clip_first,
        "never divides": never_divide,
        "steps after an overflow": step_anyway,
        "does not scale the loss": no_scale,
        "steps with gradients of 0 after an overflow": step_without_gradients,
        "does not clip": never_clip,
        "clips each weight alone": clip_each_alone,
        "looks for inf, not for NaN": look_for_infinity_only,
        "returns nothing after a step": lambda *given: clip_by_own_arithmetic(*given) or None,
        "returns whether it stepped": lambda *given: not clip_to_a_scaled_norm(*given),
        "looks at the first weight": overflow_seen_by(lambda weights, loss: weights[0].grad),
        "looks at the last weight": overflow_seen_by(lambda weights, loss: weights[-1].grad),
        "looks at the loss": overflow_seen_by(lambda weights, loss: loss),
    },
}

RIGHT = {
    "break-even": {
        "one by one": count_up,
        "by negative floor division": by_floor_division,
    },
    "one-graph": {
        "a factor chosen by torch.where": by_a_factor,
        "by a mask": by_a_mask,
    },
    "clipped-step": {
        "clips the scaled gradient to a scaled norm": clip_to_a_scaled_norm,
        "clips by its own arithmetic": clip_by_own_arithmetic,
        "with GradScaler": with_grad_scaler,
    },
}
