"""Exercises of lesson 13: error feedback in a matrix, scales that blocks share, straight-through."""

import torch

from labkit.lesson.exercises import Exercise, expect, shorten, untouched


def error_feedback(w, scale, top, u):
    w, rounded = w.clone(), w.clone()
    for j in range(w.shape[1]):
        rounded[:, j] = (w[:, j] / scale[:, j]).round().clamp(-top, top) * scale[:, j]
        error = (w[:, j] - rounded[:, j]) / u[j, j]
        w[:, j + 1 :] -= error[:, None] * u[j, j + 1 :]
    return rounded


def verify_error_feedback(answer):
    answer, random = untouched(answer), torch.Generator().manual_seed(5)
    cases = {"one row": (1, 3, 7), "columns that saturate": (4, 6, 1), "more rows than columns": (11, 5, 3)}
    for name, (rows, columns, top) in cases.items():
        w = torch.randn(rows, columns, generator=random, dtype=torch.float64)
        x = torch.randn(40, columns, generator=random, dtype=torch.float64) + 0.7
        u = torch.linalg.cholesky(torch.linalg.inv(x.T @ x), upper=True)
        scale = 0.05 + 0.4 * torch.rand(rows, columns, generator=random, dtype=torch.float64)
        found, wanted = answer(w.clone(), scale.clone(), top, u.clone()), error_feedback(w, scale, top, u)
        case = f"{name}, {rows} x {columns}, top {top}"
        _expect_like(found, wanted, case)
        steps = found / scale
        whole = float((steps - steps.round()).abs().max()) < 1e-6 and float(steps.abs().max()) < top + 1e-6
        expect(whole, f"{case}: a value is not one of scale x {{-top, ..., top}}.")
        for column in range(columns):
            off = float((steps[:, column] - (wanted / scale)[:, column]).abs().max())
            before = "it comes first, so nothing was passed on to it" if column == 0 else "columns before it are right"
            expect(off < 0.5, f"{case}: column {column} is {off:.0f} steps off; {before}.")


def _expect_like(found, wanted, case):
    expect(isinstance(found, torch.Tensor), f"{case}: expected a torch tensor, found {shorten(found)}.")
    shapes = f"expected the shape {tuple(wanted.shape)}, found {tuple(found.shape)}."
    expect(found.shape == wanted.shape, f"{case}: {shapes}")
    expect(found.dtype == wanted.dtype, f"{case}: expected {wanted.dtype} as given, found {found.dtype}.")


def shared_scales(blocks):
    import torch

    largest = blocks.abs().amax(1, keepdim=True)
    exponent = torch.floor(torch.log2(largest.double())) - 2  # in float32 the logarithm of 7.9999995 is 3
    return torch.where(largest > 0, torch.exp2(exponent), 1.0).to(blocks.dtype)


def verify_shared_scales(answer):
    answer = untouched(answer)
    cases = {  # the value of largest size in a block of 5, and the scale
        "largest value 6.5": (6.5, 1.0),
        "largest value 4": (4.0, 1.0),
        "largest value 3.9": (3.9, 0.5),
        "largest value 7.99": (7.99, 1.0),
        "a negative largest value, -9": (-9.0, 2.0),
        "tiny values": (0.0011, 2.0**-12),
        "large values": (1000.3, 128.0),
        "largest value 8192, an exact power of two": (8192.0, 2048.0),  # ln(m) / ln(2) in float32 falls short
        "largest value 32768, an exact power of two": (32768.0, 8192.0),
        "values below a millionth, which are no zeros": (5e-8, 2.0**-27),
        "zeros": (0.0, 1.0),
    }
    rest = torch.tensor([0.1, -0.7, 0.0, 0.3])
    blocks = torch.stack(
        [largest * torch.cat([rest, torch.ones(1)]).roll(n) for n, (largest, _) in enumerate(cases.values())]
    )
    found, wanted = answer(blocks.clone()), torch.tensor([[scale] for _, scale in cases.values()])
    _expect_like(found, wanted, f"blocks ({len(cases)}, 5)")
    for name, mine, yours in zip(cases, wanted.flatten().tolist(), found.flatten().tolist(), strict=True):
        expect(mine == yours, f"A block with {name}: the scale is {mine:g}, found {yours:g}.")


def straight_through(x, scale, top):
    steps = (x / scale).clamp(-top, top)
    return (steps + (steps.round() - steps).detach()) * scale


def verify_straight_through(answer):
    answer = untouched(answer)
    cases = {  # the values, in steps, keep away from the ends: which gradient belongs to an end itself is a convention
        "a row of numbers, grid -1, 0, 1": (torch.tensor([-0.9, -0.2, 0.3, 0.6, 0.97]), 0.5, 1),
        "a row of numbers, 8 bits": (torch.linspace(-120.3, 120.4, 50), 0.013, 127),
        "numbers beyond both ends": (torch.tensor([-9.2, -3.7, -3.3, -2.9, 0.4, 1.2, 2.8, 3.2, 3.6, 7.7]), 0.25, 3),
        "weights with one scale per channel": (
            torch.linspace(-6.3, 6.4, 24).reshape(2, 3, 4),
            torch.tensor([0.1, 2.0]).reshape(2, 1, 1),
            7,
        ),
        "float64": (torch.linspace(-5.3, 5.4, 7, dtype=torch.float64), 0.37, 4),
    }
    for name, (steps, scale, top) in cases.items():
        x = (steps * scale).requires_grad_()
        found = answer(x, scale, top)
        expect(isinstance(found, torch.Tensor), f"On {name}: expected a torch tensor, found {shorten(found)}.")
        expect(found.shape == x.shape, f"On {name}: expected the shape {tuple(x.shape)}, found {tuple(found.shape)}.")
        expect(found.dtype == x.dtype, f"On {name}: expected {x.dtype} as x is, found {found.dtype}.")
        wanted = (steps.round().clamp(-top, top) * scale).detach()
        off = float(((found.detach() - wanted) / scale).abs().max())
        expect(off < 1e-3, f"On {name}: a value is {off:.2f} steps away from its grid point.")
        expect(found.requires_grad, f"On {name}: no gradient goes through your result: something is detached.")
        slope = torch.linspace(1, 2, x.numel(), dtype=x.dtype).reshape(x.shape)  # what a loss would hand back
        (gradient,) = torch.autograd.grad(found, x, slope, allow_unused=True)
        expect(gradient is not None, f"On {name}: your result does not depend on x.")
        inside = (steps.abs() <= top).to(x.dtype)
        for what, where in (("on the range of the grid", inside == 1), ("beyond its ends", inside == 0)):
            share = (gradient / slope)[where]
            expect(
                torch.allclose(share, inside[where], atol=1e-4),
                f"On {name}: {what} the gradient must be {int(what.startswith('on'))}, "
                f"yours is {shorten([round(float(each), 3) for each in share.flatten()[:4]])}.",
            )


EXERCISES = (
    Exercise(
        id="shared-scales",
        task="Find the power of two that each block of an MXFP4 matrix shares.",
        difficulty=1,
        minutes=5,
        hint="The block's largest value begins with 2^k: k = floor(log2). The largest of E2M1, 6, begins with 2^2.",
        reference=shared_scales,
        verify=verify_shared_scales,
    ),
    Exercise(
        id="error-feedback",
        task="Round a matrix column by column, and let the columns that follow make good for each error.",
        difficulty=3,
        minutes=15,
        hint="Work on a copy. Round column j; divide its error by u[j, j]; take that times u[j, j + 1:] off the rest.",
        reference=error_feedback,
        verify=verify_error_feedback,
    ),
    Exercise(
        id="straight-through",
        task="Round a tensor to a grid so that its gradient passes as if nothing had been rounded.",
        difficulty=2,
        minutes=10,
        hint="Count in steps: x / scale. Clamp, then round with a + (b - a).detach(), then multiply by the scale.",
        reference=straight_through,
        verify=verify_straight_through,
    ),
)
