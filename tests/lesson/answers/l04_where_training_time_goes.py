"""Answers to the exercises of lesson 04: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np
import torch
from torch.nn.functional import cross_entropy

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


def slower_of_the_two(load, train, workers):
    if not workers:
        return train + load
    share = load / workers
    return share if share > train else train


def steps(model, optimizer, images, labels, parts, *, scale=None, clear=True, each=False, whole=False, mean=True):
    """One step in parts, with a mistake for every argument."""
    if clear:
        optimizer.zero_grad()
    losses = []
    size = len(images) if whole else len(images) // parts
    for some, theirs in zip(images.split(size), labels.split(size), strict=True):
        loss = cross_entropy(model(some), theirs)
        (loss * (1 / parts if scale is None else scale)).backward()
        losses.append(loss.item())
        if each:
            optimizer.step()
    if not each:
        optimizer.step()
    return sum(losses) / (len(losses) if mean else 1)


def with_a_slip(**slip):
    return lambda *given: steps(*given, **slip)


def by_sums(model, optimizer, images, labels, parts):
    size, total = len(labels) // parts, 0.0
    optimizer.zero_grad(set_to_none=False)
    for begin in range(0, len(labels), size):
        some = slice(begin, begin + size)
        loss = cross_entropy(model(images[some]), labels[some], reduction="sum") / len(labels)
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    return total.item()


def one_backward_of_all(model, optimizer, images, labels, parts):
    optimizer.zero_grad()
    total = sum(
        cross_entropy(model(some), theirs) / parts
        for some, theirs in zip(images.chunk(parts), labels.chunk(parts), strict=True)
    )
    total.backward()
    optimizer.step()
    return total.item()


def all_forward_then_all_backward(model, optimizer, images, labels, parts):
    optimizer.zero_grad()
    chunks = zip(images.chunk(parts), labels.chunk(parts), strict=True)
    losses = [cross_entropy(model(some), theirs) / parts for some, theirs in chunks]
    for loss in losses:
        loss.backward()
    optimizer.step()
    return sum(loss.item() for loss in losses)


def gives_a_tensor(*given):
    return torch.tensor(steps(*given))


def fills_grad_by_hand(model, optimizer, images, labels, parts):
    weights, total = list(model.parameters()), 0.0
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    for some, theirs in zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True):
        loss = cross_entropy(model(some), theirs) * (len(some) / len(images))
        for weight, grad in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad += grad
        total += loss.item()
    optimizer.step()
    return total


def empty_the_phases(phases, now, synchronize):
    found = one_phase_at_a_time(phases, now, synchronize)
    phases.clear()
    return found


WRONG = {
    "accumulated-step": {
        "adds the parts' gradients without dividing": with_a_slip(scale=1.0),
        "keeps the old gradients": with_a_slip(clear=False),
        "updates after every part": with_a_slip(each=True),
        "takes the whole batch at once": with_a_slip(whole=True, scale=1.0),
        "returns the sum of the parts' losses": with_a_slip(mean=False),
        "adds the losses and goes backward once": one_backward_of_all,
        "goes forward through all parts first": all_forward_then_all_backward,
        "returns a tensor": gives_a_tensor,
    },
    "phase-times": {
        "gives text": as_text,
        "never waits": never_wait,
        "waits once, at the end": wait_at_the_end_only,
        "begins with a full queue": start_with_a_full_queue,
        "waits before the phase instead of after it": wait_before_instead_of_after,
        "runs each phase twice": warm_up_first,
        "empties the phases": empty_the_phases,
    },
    "speedup-of-the-whole": {
        "forgets the rest": lambda share, factor: factor,
        "adds speeds instead of times": lambda share, factor: 1 - share + share * factor,
        "gives the time, not the speed": lambda share, factor: 1 - share + share / factor,
        "makes the part free": lambda share, factor: 1 / (1 - share) if share < 1 else factor,
    },
    "step-seconds": {
        "divides whole numbers": lambda load, train, workers: (
            load + train if workers == 0 else max(load // workers, train)
        ),
        "rounds up": lambda load, train, workers: (
            load + train if workers == 0 else max(math.ceil(load / workers), train)
        ),
        "adds although they overlap": lambda load, train, workers: load / max(workers, 1) + train,
        "overlaps without workers": lambda load, train, workers: max(load / max(workers, 1), train),
        "takes the faster of the two": lambda load, train, workers: (
            load + train if workers == 0 else min(load / workers, train)
        ),
        "workers train too": lambda load, train, workers: (load + train) / (workers + 1),
    },
}

RIGHT = {
    "accumulated-step": {"by sums": by_sums, "by split": with_a_slip(), "fills .grad by hand": fills_grad_by_hand},
    "phase-times": {
        "one at a time": one_phase_at_a_time,
        "from time stamps": from_the_stamps,
    },
    "speedup-of-the-whole": {
        "in one fraction": lambda share, factor: factor / (factor * (1 - share) + share),
        "by the time that is left": lambda share, factor: (1 - share * (1 - 1 / factor)) ** -1,
    },
    "step-seconds": {
        "with an if": slower_of_the_two,
        "with sorted": lambda load, train, workers: sorted((load / workers, train))[1] if workers else load + train,
    },
}
