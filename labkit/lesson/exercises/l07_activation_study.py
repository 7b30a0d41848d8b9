"""Exercises of lesson 07: write a backward pass, predict the memory, fuse two kernels."""

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten

POINTS = (-19.0, -5.5, -3.2, -2.9, -1.7, -1.5, 0.0, 1.0, 2.9, 3.1)  # each piece, near each seam


def lean_fastswish(x):
    import torch

    def choose(x, upper, middle, tail):
        return torch.where(x >= 3, upper, torch.where(x >= -3, middle, tail))

    class Lean(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return choose(x, x, x * (x * (3 - 0.1) / 18 + (3 + 0.1) / 6), -0.1 / (1 - 4.5 * (x + 3)))

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * choose(x, 1.0, x * (3 - 0.1) / 9 + (3 + 0.1) / 6, -0.1 * 4.5 / (1 - 4.5 * (x + 3)) ** 2)

    return Lean.apply(x)


def verify_lean_fastswish(answer):
    import torch

    from labkit.measure import saved_for_backward
    from labkit.methods.fastswish import naive

    x = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    y = answer(x)
    expect(isinstance(y, torch.Tensor) and y.shape == x.shape, f"Expected a tensor like x, found {shorten(y)}.")
    error = (y - naive(x)).detach().abs()
    at, wanted, found = (float(part[error.argmax()]) for part in (x.detach(), naive(x.detach()), y.detach()))
    expect(error.max() <= 1e-12, f"The value at {at:g} should be {wanted:.6g}; yours is {found:.6g}.")
    check_gradient(answer, x)
    inner = torch.randn(4096, requires_grad=True) * 2  # kept by nobody else
    saved, relu = (saved_for_backward(fn, inner) for fn in (answer, torch.relu))
    saved += _bytes_on_ctx(answer(inner), inner) if saved else 0
    expect(saved > 0, "Nothing was saved by ctx.save_for_backward: what else hangs on ctx is not counted, nor freed.")
    expect(
        saved <= 1.07 * relu, f"You keep {saved / relu:.3g} times the bytes that ReLU keeps; 1.07 times is the limit."
    )


def _bytes_on_ctx(y, x):
    """Bytes of the tensors that hang on the `ctx` of the functions behind y, x itself left out."""
    import torch

    waiting, seen, places = [y.grad_fn], set(), {x.untyped_storage().data_ptr()}
    count = 0
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
        for value in vars(node).values() if hasattr(node, "__dict__") else ():
            if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in places:
                places.add(value.untyped_storage().data_ptr())
                count += value.untyped_storage().nbytes()
    return count


def check_gradient(function, x):
    """gradcheck; when it fails, the gradient against differences of the values says where."""
    import torch

    try:
        if torch.autograd.gradcheck(function, x, raise_exception=False):
            return
        (found,) = torch.autograd.grad(function(x).sum(), x)
        (doubled,) = torch.autograd.grad(2 * function(x).sum(), x)
    except RuntimeError as error:
        raise Wrong(f"The backward pass raised: {error}") from None
    above, below = (function(x.detach() + step).detach() for step in (1e-6, -1e-6))
    wanted = (above - below) / 2e-6
    if torch.allclose(found, wanted, atol=1e-4) and not torch.allclose(doubled, 2 * wanted, atol=1e-4):
        raise Wrong(
            "The slopes are right, but your backward ignores the gradient that comes in: twice that gradient must give "
            "twice the result. Multiply the slope by `grad`."
        )
    worst = int((found - wanted).abs().argmax())
    raise Wrong(
        f"gradcheck fails, most at x = {POINTS[worst]}: there the slope is {float(wanted[worst]):.4g}, "
        f"and your backward says {float(found[worst]):.4g} for an incoming gradient of 1."
    )


def hidden_bytes(way, images, height, width, channels, itemsize):
    tensor = images * height * width * channels * itemsize
    bits = images * height * width * channels / 8
    return {"relu": tensor, "gelu": 2 * tensor, "recomputed": tensor, "output and a bit": tensor + bits}[way]


def measured_bytes(way, images, height, width, channels, itemsize):
    """What autograd really keeps of the activation and the layer after it."""
    import torch

    from labkit.measure import saved_for_backward
    from labkit.methods import fastswish

    dtype = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[itemsize]
    linear = torch.nn.Linear(channels, 8, dtype=dtype)
    pair = {
        "relu": lambda: torch.nn.Sequential(torch.nn.ReLU(), linear),
        "gelu": lambda: torch.nn.Sequential(torch.nn.GELU(), linear),
        "recomputed": lambda: fastswish.Recomputed(torch.nn.GELU(), linear),
        "output and a bit": lambda: torch.nn.Sequential(fastswish.FastSwish(fastswish.FROM_OUTPUT), linear),
    }[way]()
    x = torch.randn(images, height, width, channels, dtype=dtype, requires_grad=True) * 2
    return saved_for_backward(pair, x)


def verify_hidden_bytes(answer):
    for way in ("relu", "gelu", "recomputed", "output and a bit"):
        for shape in ((2, 7, 7, 96, 4), (3, 4, 8, 32, 2), (1, 5, 5, 16, 8)):
            images, height, width, channels, itemsize = shape
            what = f"{way!r}, {images} images of {height} x {width} with {channels} channels, {itemsize} bytes a number"
            expect_close(answer(way, *shape), measured_bytes(way, *shape), what)


def fused_kernel(load, store, places):
    x = load("x", places) + load("bias", places % 16)
    store("y", places, x * (x + 3).clip(0, 6) / 6)


def run_kernel(kernel, *, count=96, block=32, seed=0):
    """Run a kernel over all blocks: y, the numbers moved for each result, and what y should be."""
    import numpy as np

    random, moved = np.random.default_rng(seed), []
    x, bias = 3 * random.standard_normal(count), random.standard_normal(16)
    arrays = {"x": x.copy(), "bias": bias, "t": np.zeros(count), "y": np.zeros(count)}

    def load(name, places):
        moved.extend(places)
        return arrays[name][places]

    def store(name, places, values):
        moved.extend(places)
        arrays[name][places] = values

    for begin in range(0, count, block):
        kernel(load, store, np.arange(begin, begin + block))
    z = x + np.tile(bias, count // 16)
    return arrays["y"], len(moved) / count, z * np.clip(z + 3, 0, 6) / 6


def verify_fused_kernel(answer):
    import numpy as np

    for block in (16, 32, 96):
        found, moved, wanted = run_kernel(answer, block=block)
        worst = int(np.abs(found - wanted).argmax())
        fits = np.allclose(found, wanted)
        expect(fits, f"y[{worst}] should be {wanted[worst]:.4g}; with blocks of {block} yours is {found[worst]:.4g}.")
        expect(moved <= 3, f"Right, but {moved:.3g} numbers go to or from memory for each result; 3 are enough.")


EXERCISES = (
    Exercise(
        id="lean-fastswish",
        task="Write FastSwish as an autograd.Function whose backward pass keeps no more than ReLU's.",
        difficulty=3,
        minutes=20,
        hint=(
            "One tensor from which everything follows is enough: x. Differentiate the three pieces on paper, choose "
            "among them with torch.where, and multiply by the gradient that comes in."
        ),
        reference=lean_fastswish,
        verify=verify_lean_fastswish,
    ),
    Exercise(
        id="hidden-bytes",
        task="Predict the bytes that an activation and the linear layer after it keep for the backward pass.",
        difficulty=2,
        minutes=8,
        hint="Who needs x, who needs y? A tensor that two of them keep is there once. Eight bits are a byte.",
        reference=hidden_bytes,
        verify=verify_hidden_bytes,
    ),
    Exercise(
        id="fused-kernel",
        task="Make one kernel of two pointwise ones, so that the intermediate result never goes to memory.",
        difficulty=2,
        minutes=8,
        hint="What a kernel holds in a variable costs no memory traffic: load x and bias once, compute, store y once.",
        reference=fused_kernel,
        verify=verify_fused_kernel,
    ),
)
