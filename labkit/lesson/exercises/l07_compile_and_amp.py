"""Exercises of lesson 07: where two lines of cost cross, no graph break, a clipped step with loss scaling."""

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten, untouched


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
        "just after a whole number": ((2, 0.75), (12.0003, 0.25), 21),
        "dearer to begin, and for each": ((2, 0.5), (12, 0.75), None),
        "cheaper to begin, but dearer for each: it wins first and loses in the end": ((12, 0.25), (2, 0.75), None),
        "cheaper in both": ((12, 0.75), (2, 0.25), 1),
        "the same to begin, cheaper for each": ((5, 0.75), (5, 0.5), 1),
        "dearer to begin, the same for each": ((2, 0.5), (12, 0.5), None),
        "the same in both": ((7, 0.5), (7, 0.5), 1),
        "paid within the first": ((0, 45), (30, 10), 1),
        "won only after ten thousand": ((1.3, 0.75), (431.7, 0.71), 10760),
        "won only after a million": ((0, 0.5 + 2**-12), (300.1, 0.5), 1229210),  # 300.1 * 2**12 = 1229209.6
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

    cases = {
        "a mean above 0": [1.3, 2.1, -1.7],
        "a mean below 0": [-3.1, 1.2, 0.5],
        "a mean of exactly 0": [2.0, -1.0, -1.0],
        "two rows, the mean of one of them below 0": [[1.7, -0.4, 2.2], [-3.5, -0.9, 1.1]],
        "an infinite number, which times 0 is NaN": [float("inf"), 1.4, -2.3],
    }
    for case, values in cases.items():
        for dtype in (torch.float32, torch.float64, torch.float16):
            x = torch.tensor(values, dtype=dtype)
            wanted, found = (x * 2 if x.mean() > 0 else x / 2), untouched(answer)(x.clone())
            right = isinstance(found, torch.Tensor) and (found.shape, found.dtype) == (x.shape, dtype)
            kind = f"a torch tensor of shape {tuple(x.shape)}, {dtype}"
            which = f" of shape {tuple(found.shape)}, {found.dtype}" if isinstance(found, torch.Tensor) else ""
            expect(right, f"{case}: expected {kind}; found {shorten(found)}{which}.")
            words = f"{case}, x = {values}: expected {wanted.tolist()}, found {found.tolist()}."
            expect(torch.equal(found, wanted), words)
    graphs = torch._dynamo.explain(answer)(torch.ones(3)).graph_count
    torch._dynamo.reset()
    why = "Something in it needs the value of a tensor, as `if`, `float(...)` and `.item()` do, or leaves torch."
    expect(graphs == 1, f"One graph is wanted; yours has {graphs}. {why}")


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
    cases = ((3.1, 4.2, 1024.0, 1.3), (0.5, 0.2, 1024.0, 1.3), (-40.3, 7.0, 64.0, 2.5), (2.0, 0.0, 1.0, 0.25))
    for *slopes, scale, max_norm in cases:
        case = f"gradients of {slopes[0]:g} (once) and {slopes[1]:g} (4 times), scale {scale:g}, max_norm {max_norm:g}"
        long = (slopes[0] ** 2 + 4 * slopes[1] ** 2) ** 0.5  # of all five together
        moved = [-part * min(1, max_norm / long) for part in slopes]
        found, overflowed, used = _step_taken(answer, slopes, scale, max_norm)
        no = overflowed is not None and not overflowed
        expect(no, f"{case}: nothing overflows here, so expected False; you returned {shorten(overflowed)}.")
        expect(max(used) > 0, f"{case}: backward was never called on the loss.")
        expect_close(used[-1], scale, f"{case}: the factor with which the loss went backward")
        for number, (got, wanted) in enumerate(zip(found, moved, strict=True)):
            expect_close(got, wanted, f"{case}: the step of weight {number}, learning rate 1", tolerance=1e-4)
    for slope in (1e37, -1e37, float("nan")):  # times 1024, the first two are beyond float32; the loss stays 0
        for slopes in ((slope, 0.3), (0.3, slope)):
            found, overflowed, _ = _step_taken(answer, slopes, 1024.0, 1.3, momentum=0.9)
            which = f"gradients of {slopes[0]:g} and {slopes[1]:g}, scale 1024"
            expect(bool(overflowed), f"{which}: an overflow in one of them counts; you returned {shorten(overflowed)}.")
            why = " The optimizer has momentum, so a step moves them even when gradients are 0."
            why *= all(abs(each + 0.9) < 1e-3 for each in found)
            expect(found == [0, 0], f"{which}: after an overflow no weight may change; yours moved by {found}.{why}")


def _step_taken(answer, slopes, scale, max_norm, *, momentum=0.0):
    """(how far two weights moved in a step with learning rate 1, what was returned, factors of the backward passes)."""
    import torch

    weights, seen = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((1,), (2, 2))], []
    loss = sum(slope * weight.sum() for slope, weight in zip(slopes, weights, strict=True))
    loss.register_hook(lambda grad: seen.append(float(grad)))
    optimizer = torch.optim.SGD(weights, lr=1.0, momentum=momentum)
    if momentum:  # from a step before
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        optimizer.step()
        optimizer.zero_grad()
        for weight in weights:
            weight.data.zero_()
    overflowed = answer(loss, weights, optimizer, scale, max_norm)
    return [float(weight.detach().mean()) for weight in weights], overflowed, seen or [0.0]


EXERCISES = (
    Exercise(
        id="break-even",
        task="Write from how many on the way that is dearer to begin is the cheaper one.",
        difficulty=2,
        minutes=7,
        hint="Each row wins the difference of the two `each`. After how many do these reach that of the two `fixed`?",
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
