"""Exercises of lesson 07: where two lines of cost cross, no graph break, a clipped step with loss scaling."""

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten


def break_even(first, second):
    import math

    (fixed_1, each_1), (fixed_2, each_2) = first, second
    if each_2 > each_1 or (each_2 == each_1 and fixed_2 > fixed_1):
        return None
    return 1 if each_2 == each_1 else max(1, math.ceil((fixed_2 - fixed_1) / (each_1 - each_2)))


def verify_break_even(answer):
    cases = {
        "dearer to begin, cheaper for each": ((2, 0.75), (12, 0.25), 20),
        "between two whole numbers": ((3, 1.5), (11, 0.25), 7),
        "dearer to begin, and for each": ((2, 0.5), (12, 0.75), None),
        "cheaper to begin, but dearer for each: it wins first and loses in the end": ((12, 0.25), (2, 0.75), None),
        "cheaper in both": ((12, 0.75), (2, 0.25), 1),
        "the same to begin, cheaper for each": ((5, 0.75), (5, 0.5), 1),
        "dearer to begin, the same for each": ((2, 0.5), (12, 0.5), None),
        "the same in both": ((7, 0.5), (7, 0.5), 1),
        "paid within the first": ((0, 45), (30, 10), 1),
    }
    for case, (first, second, wanted) in cases.items():
        found = answer(first, second)
        if wanted is None:
            expect(found is None, f"{case}, {first} and {second}: expected None, found {shorten(found)}.")
        else:
            expect(found is not None, f"{case}, {first} and {second}: expected {wanted}, found None.")
            expect_close(found, wanted, f"{case}, {first} and {second}")


def one_graph(x):
    import torch

    return torch.where(x.mean() > 0, x * 2, x / 2)


def verify_one_graph(answer):
    import torch

    for values in ([1.0, 2.0, -1.0], [-3.0, 1.0, 0.5], [2.0, -1.0, -1.0]):  # a mean above 0, below 0, exactly 0
        x = torch.tensor(values)
        wanted, found = (x * 2 if x.mean() > 0 else x / 2), answer(x.clone())
        expect(isinstance(found, torch.Tensor) and found.shape == x.shape, f"Expected 3 numbers: {shorten(found)}.")
        expect(torch.equal(found, wanted), f"x = {values}: expected {wanted.tolist()}, found {found.tolist()}.")
    graphs = torch._dynamo.explain(answer)(torch.ones(3))
    torch._dynamo.reset()
    reasons = "; ".join(str(each.reason) for each in graphs.break_reasons)[:200]
    expect(graphs.graph_count == 1, f"One graph is wanted; yours has {graphs.graph_count}: {reasons}")


def clipped_step(loss, weights, optimizer, scale, max_norm):
    import torch

    (loss * scale).backward()
    for weight in weights:
        weight.grad.div_(scale)
    norm = torch.nn.utils.clip_grad_norm_(weights, max_norm)
    if not norm.isfinite():
        return True
    optimizer.step()
    return False


def verify_clipped_step(answer):
    for slope, scale, max_norm in ((3.0, 1024.0, 1.0), (0.5, 1024.0, 1.0), (-40.0, 64.0, 2.5), (2.0, 1.0, 0.25)):
        case = f"a gradient of {slope:g} and {4 * slope / 3:g}, scale {scale:g}, max_norm {max_norm:g}"
        long = abs(slope) * 5 / 3  # of (slope, 4/3 slope) together
        moved = [-part * min(1, max_norm / long) for part in (slope, slope * 4 / 3)]
        found, overflowed, used = _step_taken(answer, slope, scale, max_norm)
        expect(not overflowed, f"{case}: nothing overflows here, and you returned {shorten(overflowed)}.")
        expect(max(used) > 0, f"{case}: backward was never called on the loss.")
        expect_close(used[-1], scale, f"{case}: the factor with which the loss went backward")
        for number, (got, wanted) in enumerate(zip(found, moved, strict=True)):
            expect_close(got, wanted, f"{case}: the step of weight {number}, learning rate 1", tolerance=1e-4)
    for slope in (float("inf"), float("nan")):
        found, overflowed, _ = _step_taken(answer, slope, 1024.0, 1.0)
        expect(bool(overflowed), f"A gradient of {slope} is an overflow; you returned {shorten(overflowed)}.")
        expect(found == [0, 0], f"After an overflow no weight may change; yours moved by {found}.")


def _step_taken(answer, slope, scale, max_norm):
    """(how far two weights moved in a step with learning rate 1, what was returned, factors of the backward passes)."""
    import torch

    weights, seen = [torch.nn.Parameter(torch.tensor([0.0])) for _ in range(2)], []
    loss = slope * weights[0].sum() + slope * 4 / 3 * weights[1].sum()
    loss.register_hook(lambda grad: seen.append(float(grad)))
    optimizer = torch.optim.SGD(weights, lr=1.0)
    overflowed = answer(loss, weights, optimizer, scale, max_norm)
    return [float(weight.detach()) for weight in weights], overflowed, seen or [0.0]


EXERCISES = (
    Exercise(
        id="break-even",
        task="Write from how many on the way that is dearer to begin is the cheaper one.",
        difficulty=2,
        minutes=7,
        hint="Each wins the difference of the two `each`. After how many is that the difference of the two `fixed`?",
        reference=break_even,
        verify=verify_break_even,
    ),
    Exercise(
        id="one-graph",
        task="Rewrite a branch on a value, so that it stays in one graph.",
        difficulty=2,
        minutes=6,
        hint="Compute both sides and let torch.where choose; the condition stays a tensor.",
        reference=one_graph,
        verify=verify_one_graph,
    ),
    Exercise(
        id="clipped-step",
        task="Write one fp16 step with loss scaling, gradient clipping, and no step after an overflow.",
        difficulty=3,
        minutes=12,
        hint="Scale the loss, go backward, divide the gradients, and only then clip. Is the norm finite?",
        reference=clipped_step,
        verify=verify_clipped_step,
    ),
)
