"""Exercises of lesson 04: phases, what a faster part is worth, loading in the background, a step in parts."""

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten
from labkit.measure import SimulatedMachine

TRUE = {"forward": 20e-3, "backward": 40e-3, "optimizer": 15e-3}  # seconds on the simulated device


def phase_times(phases, now, synchronize):
    seconds = {}
    synchronize()
    for name, run in phases.items():
        begin = now()
        run()
        synchronize()
        seconds[name] = now() - begin
    return seconds


def verify_phase_times(answer):
    for seed, times in enumerate((TRUE, {"load": 5e-3, "train": 50e-3}, {"a": 30e-3, "b": 1e-3, "c": 2e-3, "d": 9e-3})):
        machine, calls = SimulatedMachine(seed, jitter=0, launch=50e-6), []
        machine.work(0.2)()  # what an earlier step left in the queue
        phases = {name: noted(calls, name, machine.work(seconds)) for name, seconds in times.items()}
        found = answer(phases, machine.now, machine.synchronize)
        expect(calls == list(times), f"Run each phase once, in order: {list(times)}; yours ran {calls}.")
        expect(list(phases) == list(times), "Your function changes `phases`. The caller still needs them.")
        is_one = isinstance(found, dict) and set(found) == set(times)
        expect(is_one, f"Expected a dict with {list(times)}, found {shorten(found)}.")
        for place, (name, seconds) in enumerate(times.items()):
            queue = "" if place else " (0.2 s of earlier work was still in the queue)"
            expect_close(found[name], seconds, f"Seconds of {name}{queue}", tolerance=0.06)


def noted(calls, name, work):
    """`work`, which also writes `name` into `calls`."""

    def run():
        calls.append(name)
        return work()

    return run


def speedup_of_the_whole(share, factor):
    return 1 / (1 - share + share / factor)


def verify_speedup(answer):
    cases = {(0.5, 2): 4 / 3, (0.36, 1): 1.0, (1.0, 7): 7.0, (0.0, 100): 1.0, (0.36, 4): 1 / 0.73, (0.9, 10): 1 / 0.19}
    for (share, factor), wanted in cases.items():
        expect_close(answer(share, factor), wanted, f"speedup_of_the_whole({share}, {factor})")


def step_seconds(load, train, workers):
    return load + train if workers == 0 else max(load / workers, train)


def verify_step_seconds(answer):
    cases = {
        (10, 30, 0): 40,
        (10, 30, 1): 30,
        (90, 30, 1): 90,
        (90, 30, 2): 45,
        (90, 30, 3): 30,
        (90, 30, 8): 30,
        (9, 2, 4): 2.25,
    }
    for (load, train, workers), wanted in cases.items():
        expect_close(answer(load, train, workers), wanted, f"step_seconds({load}, {train}, {workers})")


def accumulated_step(model, optimizer, images, labels, parts):
    from torch.nn.functional import cross_entropy

    optimizer.zero_grad()
    total = 0.0
    for some, theirs in zip(images.chunk(parts), labels.chunk(parts), strict=True):
        loss = cross_entropy(model(some), theirs) / parts
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def verify_accumulated_step(answer):
    import numpy as np
    import torch
    from torch.nn.functional import cross_entropy

    random = torch.Generator().manual_seed(0)
    start, images = torch.randn(4, 6, generator=random), torch.randn(12, 6, generator=random)
    labels, largest, order = torch.randint(0, 4, (12,), generator=random), [], []
    for parts in (1, 3, 4):
        models = [torch.nn.Linear(6, 4) for _ in range(2)]
        for model in models:
            model.load_state_dict({"weight": start, "bias": torch.zeros(4)})
            cross_entropy(model(images.flip(0)), labels).backward()  # old gradients, which must not count
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9) for model in models]
        models[0].register_forward_pre_hook(lambda _, inputs: largest.append(len(inputs[0])))
        models[0].register_forward_pre_hook(lambda *_: order.append("forward"))
        models[0].weight.register_hook(lambda _: order.append("backward"))
        for step in (1, 2):
            whole = cross_entropy(models[1](images), labels)
            optimizers[1].zero_grad()
            whole.backward()
            optimizers[1].step()
            largest.clear()
            order.clear()
            loss = answer(models[0], optimizers[0], images, labels, parts)
            seen = f"With 12 images in {parts} parts"
            expect(sum(largest) == 12, f"{seen} the model should see each image once, it saw {sum(largest)}.")
            most = max(largest)
            expect(most == 12 // parts, f"{seen} it should see {12 // parts} at a time; yours showed it {most}.")
            kept = "all parts' activations are in memory at once. Call backward() for each part before the next one"
            expect(order == ["forward", "backward"] * parts, f"{seen} the passes were {', '.join(order)}: {kept}.")
            told = f"{seen} expected the loss as a number (a torch tensor's is .item()), found {shorten(loss)}."
            expect(isinstance(loss, (float, np.floating)), told)
            expect_close(loss, whole.item(), f"{seen}, the loss of step {step}", tolerance=1e-4)
            mine, theirs = (model.weight.detach() for model in models)
            off = float((mine - theirs).abs().max())
            expect(off < 1e-5, f"{seen}, after step {step} a weight is {off:.2g} from where the whole batch moves it.")


EXERCISES = (
    Exercise(
        id="phase-times",
        task="Write which phase of a step takes how long on a device that works through a queue.",
        difficulty=2,
        minutes=10,
        hint="The clock may start only when the queue is empty, and stop only when it is empty again; for every phase.",
        reference=phase_times,
        verify=verify_phase_times,
    ),
    Exercise(
        id="speedup-of-the-whole",
        task="Write how many times as fast the whole becomes when a part of it does.",
        difficulty=1,
        minutes=5,
        hint="Let the whole take 1. How long does the part take afterwards, and how long the rest?",
        reference=speedup_of_the_whole,
        verify=verify_speedup,
    ),
    Exercise(
        id="step-seconds",
        task="Write how long a step takes when worker processes load the next batches meanwhile.",
        difficulty=2,
        minutes=6,
        hint="With workers, loading and training go on at once and the slower sets the pace; without, they add up.",
        reference=step_seconds,
        verify=verify_step_seconds,
    ),
    Exercise(
        id="accumulated-step",
        task="Write a step of training that takes its batch in parts and moves the weights as the whole batch would.",
        difficulty=2,
        minutes=10,
        hint="Gradients of several backward() calls add up. What must each part's loss be divided by, and when is "
        "zero_grad() called, and when step()?",
        reference=accumulated_step,
        verify=verify_accumulated_step,
    ),
)
