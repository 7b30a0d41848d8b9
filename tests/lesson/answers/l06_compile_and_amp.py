"""Answers to the exercises of lesson 06: wrong ones that must be rejected, right ones written differently."""

import math

from labkit.lesson.exercises.l06_compile_and_amp import next_scale


def python_if(x):
    return x * 2 if x.mean() > 0 else x / 2


def item_and_if(x):
    return x * (2 if x.mean().item() > 0 else 0.5)


def where_on_each(x):
    import torch

    return torch.where(x > 0, x * 2, x / 2)


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
}

RIGHT = {
    "break-even-epoch": {},
    "one-graph": {},
    "next-scale": {},
}
