"""Exercises of lesson 04: what a faster part is worth, an update in place, phases."""

from functools import partial

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
        given = dict(phases)
        found = answer(given, machine.now, machine.synchronize)
        expect(calls == list(times), f"Run each phase once, in order: {list(times)}; yours ran {calls}.")
        expect(given == phases, "Your function changes `phases`. The caller still needs its functions.")
        is_one = isinstance(found, dict) and set(found) == set(times)
        expect(is_one, f"Expected a dict with {list(times)}, found {shorten(found)}.")
        for place, (name, seconds) in enumerate(times.items()):
            queue = "" if place else " (0.2 s of earlier work was still in the queue)"
            expect_close(found[name], seconds, f"Seconds of {name}{queue}", tolerance=0.06)
    machine = SimulatedMachine(jitter=0, launch=0.3e-3)
    pieces = {name: [machine.work(1e-3)] * count for name, count in {"forward": 40, "backward": 80}.items()}
    found = answer({name: partial(_put, works) for name, works in pieces.items()}, machine.now, machine.synchronize)
    for name, works in pieces.items():
        said = f"Seconds of {name}, {len(works)} pieces of 1 ms (the device begins while later ones are put in)"
        expect_close(found[name], 1e-3 * len(works), said, tolerance=0.06)


def _put(works):
    for work in works:
        work()


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
    cases |= {(0.37, 2.5): 1 / 0.778, (0.3, 0.75): 1 / 1.1}  # a factor below 1 is slower
    for (share, factor), wanted in cases.items():
        expect_close(answer(share, factor), wanted, f"speedup_of_the_whole({share}, {factor})")


def adam_in_place(weight, grad, mean, square, step, buffer, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    mean.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    buffer.copy_(square).div_(1 - beta2**step).sqrt_().add_(eps)
    weight.addcdiv_(mean, buffer, value=-lr / (1 - beta1**step))


def verify_adam_in_place(answer):
    import torch

    from labkit.measure import memory

    random = torch.Generator().manual_seed(0)
    cases = (
        ((3, 5), 1, {}),
        ((7,), 4, {"lr": 0.03, "beta1": 0.7, "beta2": 0.95}),
        ((2, 3, 4), 2, {"lr": 2, "eps": 0.5}),
    )
    for shape, step, settings in cases:
        given = [torch.rand(shape, generator=random) + 0.1 for _ in range(4)]
        wanted = [each.clone() for each in given]
        adam_in_place(*wanted, step, torch.empty(shape), **settings)
        answer(*given, step, torch.full(shape, torch.nan), **settings)  # the buffer may hold anything
        case = f"of shape {shape} after step {step}" + "".join(f", {name} {each}" for name, each in settings.items())
        for name, mine, right in zip(("weight", "grad", "mean", "square"), given, wanted, strict=True):
            off = float((mine - right).abs().max())
            expect(off < 1e-5, f"{name} {case} is {off:.2g} from where it should be (the buffer came full of nan).")
        buffer = torch.zeros(shape)
        made = memory(lambda given=given, step=step, buffer=buffer: answer(*given, step, buffer)).tensor_bytes
        expect(made < buffer.nbytes, f"The update of {buffer.nbytes} B makes {made} B of new tensors. Which line does?")


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
        id="adam-in-place",
        task="Write Adam's update of one tensor so that it makes no new tensor of its size.",
        difficulty=2,
        minutes=12,
        hint="Operations that end in _ write into their tensor: sqrt_(), add_(eps). First bring the square into the "
        "buffer: copy_, or torch.div(..., out=buffer). A number that divides the mean can go into addcdiv_'s value.",
        reference=adam_in_place,
        verify=verify_adam_in_place,
    ),
)
