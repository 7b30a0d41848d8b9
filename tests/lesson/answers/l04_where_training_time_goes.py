"""Answers to the exercises of lesson 04: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np
import torch

from labkit.lesson.exercises.l04_where_training_time_goes import phase_times


def never_wait(phases, now, synchronize):
    seconds = {}
    for name, run in phases.items():
        begin = now()
        run()
        seconds[name] = now() - begin
    return seconds


def wait_at_the_end_only(phases, now, synchronize):
    seconds, synchronized = {}, list(phases)[-1]
    synchronize()
    for name, run in phases.items():
        begin = now()
        run()
        if name == synchronized:
            synchronize()
        seconds[name] = now() - begin
    return seconds


def start_with_a_full_queue(phases, now, synchronize):
    seconds = {}
    for name, run in phases.items():
        begin = now()
        run()
        synchronize()
        seconds[name] = now() - begin
    return seconds


def wait_before_instead_of_after(phases, now, synchronize):
    seconds = {}
    for name, run in phases.items():
        synchronize()
        begin = now()
        run()
        seconds[name] = now() - begin
    return seconds


def without_the_time_to_start(phases, now, synchronize):
    synchronize()
    seconds = {}
    for name, run in phases.items():
        run()
        begin = now()
        synchronize()
        seconds[name] = now() - begin
    return seconds


def warm_up_first(phases, now, synchronize):
    for run in phases.values():
        run()
    return phase_times(phases, now, synchronize)


def one_phase_at_a_time(phases, now, synchronize):
    def seconds(run):
        synchronize()
        begin = now()
        run()
        synchronize()
        return now() - begin

    return {name: seconds(run) for name, run in phases.items()}


def from_the_stamps(phases, now, synchronize):
    synchronize()
    stamps = [now()]
    for run in phases.values():
        run()
        synchronize()
        stamps.append(now())
    return dict(zip(phases, np.diff(stamps), strict=True))


def as_text(phases, now, synchronize):
    return {name: str(seconds) for name, seconds in phase_times(phases, now, synchronize).items()}


def adam(weight, grad, mean, square, step, buffer, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, *, slip=None):
    """Adam in place, with a mistake by name."""
    if slip == "hard-coded":
        beta1, beta2 = 0.9, 0.999
    first = 1 if slip == "mean not corrected" else 1 - beta1 ** (step + (slip == "step from 0"))
    second = 1 if slip == "square not corrected" else 1 - beta2**step
    mean.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2)
    if slip == "grad squared in place":
        square.add_(grad.mul_(grad), alpha=1 - beta2)
    else:
        square.addcmul_(grad, grad, value=1 - beta2)
    if slip == "square as buffer":
        buffer = square
    if slip == "adds to the buffer":
        buffer.add_(square)
    else:
        torch.div(square, second, out=buffer)
    inside = slip == "eps inside"
    buffer.add_(eps * inside).sqrt_().add_(eps * (not inside))
    if slip == "mean corrected in place":
        weight.addcdiv_(mean.div_(first), buffer, value=-lr)
    elif slip == "new mean":
        weight.addcdiv_(mean / first, buffer, value=-lr)
    elif slip == "new weight":
        weight = weight - lr * mean / first / buffer
    else:
        weight.addcdiv_(mean, buffer, value=-lr / first)


def adam_slip(slip):
    return lambda *given, **settings: adam(*given, **settings, slip=slip)


def adam_with_new_tensors(weight, grad, mean, square, step, buffer, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    mean.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    weight.addcdiv_(mean / (1 - beta1**step), (square / (1 - beta2**step)).sqrt().add(eps), value=-lr)


def adam_in_two_halves(weight, grad, mean, square, step, buffer, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    mean.lerp_(grad, 1 - beta1)
    torch.mul(grad, grad, out=buffer)
    square.lerp_(buffer, 1 - beta2)
    torch.sqrt(square, out=buffer)
    buffer.div_(math.sqrt(1 - beta2**step)).add_(eps)
    torch.div(mean, buffer, out=buffer)
    weight.sub_(buffer, alpha=lr / (1 - beta1**step))


def empty_the_phases(phases, now, synchronize):
    found = one_phase_at_a_time(phases, now, synchronize)
    phases.clear()
    return found


def seconds_over_the_functions(phases, now, synchronize):
    seconds = phase_times(phases, now, synchronize)
    phases.update(seconds)
    return phases


WRONG = {
    "adam-in-place": {
        "makes new tensors": adam_with_new_tensors,
        **{
            slip: adam_slip(slip)
            for slip in (
                "hard-coded",
                "mean not corrected",
                "square not corrected",
                "step from 0",
                "grad squared in place",
                "square as buffer",
                "adds to the buffer",
                "eps inside",
                "mean corrected in place",
                "new mean",
                "new weight",
            )
        },
    },
    "phase-times": {
        "gives text": as_text,
        "never waits": never_wait,
        "waits once, at the end": wait_at_the_end_only,
        "begins with a full queue": start_with_a_full_queue,
        "waits before the phase instead of after it": wait_before_instead_of_after,
        "runs each phase twice": warm_up_first,
        "starts the clock when all is in the queue": without_the_time_to_start,
        "empties the phases": empty_the_phases,
        "writes the seconds over the functions": seconds_over_the_functions,
    },
    "speedup-of-the-whole": {
        "forgets the rest": lambda share, factor: factor,
        "adds speeds instead of times": lambda share, factor: 1 - share + share * factor,
        "gives the time, not the speed": lambda share, factor: 1 - share + share / factor,
        "makes the part free": lambda share, factor: 1 / (1 - share) if share < 1 else factor,
        "takes whole factors only": lambda share, factor: 1 / (1 - share + share / (int(factor) or factor)),
        "never becomes slower": lambda share, factor: max(1.0, 1 / (1 - share + share / factor)),
    },
}

RIGHT = {
    "adam-in-place": {"by div and out": adam, "in two halves": adam_in_two_halves},
    "phase-times": {
        "one at a time": one_phase_at_a_time,
        "from time stamps": from_the_stamps,
    },
    "speedup-of-the-whole": {
        "in one fraction": lambda share, factor: factor / (factor * (1 - share) + share),
        "by the time that is left": lambda share, factor: (1 - share * (1 - 1 / factor)) ** -1,
    },
}
