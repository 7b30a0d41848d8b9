"""Exercises of lesson 07: no graph break, the rule of the loss scale, a clipped step, when compiling pays."""

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten


def break_even_epoch(compile_s, eager_epoch_s, compiled_epoch_s):
    import math

    saved = eager_epoch_s - compiled_epoch_s
    return max(1, math.ceil(compile_s / saved)) if saved > 0 else None


def verify_break_even(answer):
    cases = {
        (60, 10, 9): 60,
        (61, 10, 8): 31,
        (3, 10, 6): 1,
        (0, 10, 9): 1,
        (60, 10, 10): None,
        (60, 10, 11): None,
        (45, 150, 105): 1,
        (46, 150, 105): 2,
    }
    for (compiling, eager, compiled), wanted in cases.items():
        case = f"{compiling} s of compiling, {eager} s an epoch before, {compiled} s after"
        found = answer(compiling, eager, compiled)
        if wanted is None:
            expect(found is None, f"{case}: it never pays, so None; found {shorten(found)}.")
        else:
            expect(found is not None, f"{case}: expected epoch {wanted}, found None.")
            expect_close(found, wanted, case)


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


def next_scale(scale, good_steps, overflowed, interval=2000):
    if overflowed:
        return scale / 2, 0
    if good_steps + 1 == interval:
        return scale * 2, 0
    return scale, good_steps + 1


def verify_next_scale(answer):
    cases = {
        "an overflow": ((65536.0, 7, True, 2000), (32768.0, 0)),
        "a good step": ((65536.0, 7, False, 2000), (65536.0, 8)),
        "the last good step of an interval": ((65536.0, 1999, False, 2000), (131072.0, 0)),
        "one before it": ((65536.0, 1998, False, 2000), (65536.0, 1999)),
        "an overflow in the last step of an interval": ((8.0, 2, True, 3), (4.0, 0)),
    }
    for case, (given, wanted) in cases.items():
        found = answer(*given)
        is_pair = isinstance(found, (tuple, list)) and len(found) == 2
        expect(is_pair, f"{case}: expected (scale, good_steps), found {shorten(found)}.")
        expect(tuple(found) == wanted, f"{case}: expected {wanted}, found {shorten(found)}.")
    bad_steps, scale, good = {3, 4, 11}, 2.0**16, 0
    for step in range(20):
        scale, good = answer(scale, good, step in bad_steps, 4)
    # 3 overflows halve it; the runs of good steps 0-2, 5-10 and 12-19 hold 0, 1 and 2 whole intervals of 4
    expect_close(scale, 2.0**16, "The scale after 20 steps with overflows in steps 3, 4 and 11, interval 4")


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
        id="break-even-epoch",
        task="Write after which epoch the seconds spent on compiling are won back.",
        difficulty=1,
        minutes=6,
        hint="Every epoch wins the difference. After how many whole epochs is that at least the compile time?",
        reference=break_even_epoch,
        verify=verify_break_even,
    ),
    Exercise(
        id="one-graph",
        task="Rewrite a branch on a value, so that it stays in one graph.",
        difficulty=2,
        minutes=8,
        hint="Compute both sides and let torch.where choose; the condition stays a tensor.",
        reference=one_graph,
        verify=verify_one_graph,
    ),
    Exercise(
        id="next-scale",
        task="Write the rule by which a gradient scaler changes its scale after each step.",
        difficulty=2,
        minutes=8,
        hint="Overflow: halve, count anew. Otherwise count; after `interval` good steps in a row: double, count anew.",
        reference=next_scale,
        verify=verify_next_scale,
    ),
    Exercise(
        id="clipped-step",
        task="Write one fp16 step with loss scaling, gradient clipping, and no step after an overflow.",
        difficulty=3,
        minutes=15,
        hint="Scale the loss, go backward, divide the gradients, and only then clip. Is the norm finite?",
        reference=clipped_step,
        verify=verify_clipped_step,
    ),
)
