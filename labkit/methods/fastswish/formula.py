"""What FastSwish computes: three pieces, their slope, and the slope computed from the value
alone.
"""

import torch

V = 0.1  # how far below zero it is at -3, where HardSwish is back at zero
K = (1 - V) / (2 * V)  # makes the slope of the tail that of the middle piece at -3
A = (3 - V) / 18  # the middle piece is x (A x + B): -V at -3 and 3 at 3
B = (3 + V) / 6
BOTTOM = -B / (2 * A)  # where it is lowest, near -1.6: the only place without a slope


def naive(x: torch.Tensor) -> torch.Tensor:
    """Join the three pieces, as they are written on paper, by `where`. Any shape, any float dtype.

    Each piece is given only arguments of its own range. Without that the values are the same, but
    not the gradients: `where` sends a gradient of 0 into the pieces not taken, and 0 times the
    infinite slope that the tail has at x = -3 + 1/K is NaN.
    """
    within = torch.where(x.abs() <= 3, x, 0.0)
    below = torch.where(x >= -3, -3.0, x)
    middle = within * (within * (3 - V) / 18 + (3 + V) / 6)
    tail = -V / (1 - K * (below + 3))
    return torch.where(x >= 3, x, torch.where(x >= -3, middle, tail))


def rewrite(x):
    """Compute the same in ten operators instead of eighteen.

    A 3 + B = 1 makes the upper two pieces x (1 - A max(3 - x, 0)). At -3 that is -V, the numerator
    of the tail, so everything is the upper part at max(x, -3) over 1 + K max(-3 - x, 0).
    """
    # not clamp(): versions of torch differ on its gradient at the limit
    within = torch.where(x < -3, -3.0, x)
    upper = within * torch.rsub((3 - within).relu(), 1, alpha=A)
    return upper / torch.rsub((-3 - x).relu(), 1, alpha=-K)


def slope(x: torch.Tensor) -> torch.Tensor:
    """Return the derivative at x; NaN where x is.

    The same trick: at -3 the slope of the middle piece is that of the tail, -V K.
    """
    inner = (2 * A * x.clamp(min=-3) + B) / (1 + K * (-3 - x).relu()) ** 2
    return torch.where(x >= 3, 1.0, inner)


@torch.no_grad()
def value(x):
    """Return `rewrite(x)`, worked out in place in two buffers."""
    within = x.clamp(min=-3)
    upper = (3 - within).relu_().mul_(-A).add_(1).mul_(within)
    del within
    return upper.div_((-3 - x).relu_().mul_(K).add_(1))


@torch.no_grad()
def gradient(grad, x):
    """Return `grad * slope(x)`, worked out in place in two buffers."""
    inner = x.clamp(min=-3).mul_(2 * A).add_(B).div_((-3 - x).relu_().mul_(K).add_(1).square_())
    return inner.masked_fill_(x >= 3, 1).mul_(grad)


def slope_from_value(y, left):
    """Compute the derivative from y = FastSwish(x) and from the side of the lowest point.

    left  bool, like y: whether x < BOTTOM
    The middle piece y = A x^2 + B x gives slope^2 = B^2 + 4 A y, the tail y = -V / (1 - K (x + 3))
    gives -(K / V) y^2. Near the bottom y hardly changes with x, so its rounding is magnified: in
    fp32 the error reaches 3e-4 there.
    """
    middle = (B * B + 4 * A * y).clamp(min=0).sqrt()
    falling = torch.where(y > -V, -(K / V) * y * y, -middle)
    return torch.where(left, falling, torch.where(y >= 3, 1.0, middle))
