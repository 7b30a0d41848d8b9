"""The formula of FastSwish: its three pieces, and their slope from x or from the value alone."""

import torch

V = 0.1  # FastSwish of -3 is -V, where HardSwish is back at zero
K = (1 - V) / (2 * V)  # makes the slope of the tail that of the middle piece at -3
A = (3 - V) / 18  # the middle piece is x (A x + B): -V at -3 and 3 at 3
B = (3 + V) / 6
BOTTOM = -B / (2 * A)  # the lowest point, near -1.6: only there the slope is 0


def naive(x: torch.Tensor) -> torch.Tensor:
    """Compute the three pieces as they are written on paper and join them with `where`.

    x  any shape, any float dtype

    Each piece is computed only at arguments of its own range; elsewhere it gets a constant. Without
    these constants the values would be the same, but a gradient could be NaN: `where` sends a
    gradient of 0 into each piece that it does not take, and the slope of the tail at x = -3 + 1/K
    is infinite; 0 times infinity is NaN.
    """
    within = torch.where(x.abs() <= 3, x, 0.0)
    below = torch.where(x >= -3, -3.0, x)
    middle = within * (within * (3 - V) / 18 + (3 + V) / 6)
    tail = -V / (1 - K * (below + 3))
    return torch.where(x >= 3, x, torch.where(x >= -3, middle, tail))


def rewrite(x):
    """Compute FastSwish in ten operators, where `naive` needs eighteen.

    Because 3 A + B = 1, the two pieces above -3 are both x (1 - A max(3 - x, 0)). At x = -3 this
    expression is -V, the numerator of the tail. So FastSwish of x is the expression at max(x, -3),
    divided by 1 + K max(-3 - x, 0).
    """
    # not clamp(): versions of torch differ on its gradient at the limit
    within = torch.where(x < -3, -3.0, x)
    upper = within * torch.rsub((3 - within).relu(), 1, alpha=A)
    return upper / torch.rsub((-3 - x).relu(), 1, alpha=-K)


def slope(x: torch.Tensor) -> torch.Tensor:
    """Return the derivative at x; NaN where x is NaN.

    As in `rewrite`, one expression covers the middle piece and the tail, because both have the
    slope -V K at x = -3.
    """
    inner = (2 * A * x.clamp(min=-3) + B) / (1 + K * (-3 - x).relu()) ** 2
    return torch.where(x >= 3, 1.0, inner)


@torch.no_grad()
def value(x):
    """Return FastSwish of x by the formula of `rewrite`, with only two buffers of x's size."""
    within = x.clamp(min=-3)
    upper = (3 - within).relu_().mul_(-A).add_(1).mul_(within)
    del within
    return upper.div_((-3 - x).relu_().mul_(K).add_(1))


@torch.no_grad()
def gradient(grad, x):
    """Return `grad * slope(x)`, with only two buffers of x's size."""
    inner = x.clamp(min=-3).mul_(2 * A).add_(B).div_((-3 - x).relu_().mul_(K).add_(1).square_())
    return inner.masked_fill_(x >= 3, 1).mul_(grad)


def slope_from_value(y, left):
    """Return the derivative at x, from y = FastSwish(x) and the side of BOTTOM on which x lies.

    left  bool tensor, shaped like y: True where x < BOTTOM

    The middle piece y = A x^2 + B x gives slope^2 = B^2 + 4 A y. The tail y = -V / (1 - K (x + 3))
    gives slope = -(K / V) y^2. Near BOTTOM, y hardly changes with x, so a rounding error of y
    becomes a large error of the slope: up to 3e-4 in fp32.
    """
    middle = (B * B + 4 * A * y).clamp(min=0).sqrt()
    falling = torch.where(y > -V, -(K / V) * y * y, -middle)
    return torch.where(left, falling, torch.where(y >= 3, 1.0, middle))
