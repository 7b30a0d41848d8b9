"""Exercises of lesson 06: when compiling has paid, a function without a graph break, and the rule of the loss scale."""

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

    for values in ([1.0, 2.0, -1.0], [-3.0, 1.0, 0.5], [0.0, 0.0, 0.0]):
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
)
