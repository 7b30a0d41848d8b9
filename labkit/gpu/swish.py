"""Time three forms of FastSwish: separate operators, a backward pass by hand, Triton kernels."""

import functools
from collections.abc import Callable

import torch

from labkit.errors import LabError
from labkit.gpu.arms import Arm
from labkit.gpu.bench import Bench
from labkit.gpu.convnext import NETWORK, training_step
from labkit.gpu.measuring import measure
from labkit.methods.fastswish import FastSwish, form

FORMS = {"naive": "naive", "custom backward": "function", "Triton": "triton"}
# tensors read or written: x and y; then also x, the gradient of y and the gradient of x
PASSES = {"forward": 2, "forward and backward": 5}
MAX_DIFFERENCE = 1e-5  # largest difference of two forms in fp32


def fastswish(bench: Bench) -> None:
    """Measure FastSwish on a large tensor, and in the training of a ConvNeXt.

    On the tensor, time and bandwidth are measured, in comparison with copying and ReLU. In the
    training, the time of a step and its memory are measured.
    """
    x = 3 * torch.randn(bench.size(2**26, 2**12), generator=torch.Generator().manual_seed(0)).to(
        bench.device
    )
    for quantity in PASSES:
        also = functools.partial(write_bandwidth, x.numel(), quantity)
        measure(
            bench, [alone(bench, x, quantity)], quantity, also=also, seconds=0.3, race_seconds=3.0
        )
    del x
    bench.clean()
    batch, *sides = bench.size((128, 64, 224), (2, 16))
    for side in sides:
        measure(
            bench,
            [in_training(bench, batch, side)],
            "step",
            also=write_memory,
            seconds=0.3,
            race_seconds=3.0,
        )


def functions(bench):
    """Return the activations: {name: function () -> the activation, a function of a tensor}."""
    makers = {"ReLU": lambda: torch.relu}
    for name, form_name in FORMS.items():
        makers[f"FastSwish, {name}"] = functools.partial(checked, bench, form_name)
    makers["FastSwish, naive, compiled"] = lambda: bench.compiled(form("naive"))
    return makers


def checked(bench: Bench, name: str) -> Callable:
    """Return a form of FastSwish, after a comparison of its values with those of the naive form.

    name    name of the form, such as "triton"
    Raises  LabError: the values differ
    """
    function = form(name)
    x = torch.linspace(-8, 5, 4099, device=bench.device)
    difference = (function(x) - form("naive")(x)).abs().max().item()
    if not difference <= MAX_DIFFERENCE:
        raise LabError(
            "This form computes something else.",
            expected=f"within {MAX_DIFFERENCE}",
            found=f"{difference:.2g}",
        )
    return function


def alone(bench, x, quantity):
    """Return the arms for the large tensor: {`Arm`: function () that makes the arm's function}.

    The first arm is copying; then comes each activation.

    x         the tensor
    quantity  "forward" or "forward and backward"
    """
    common = {"experiment": "fastswish"}
    group = {
        Arm(variant="copying", **common): lambda: functools.partial(torch.empty_like(x).copy_, x)
    }
    make = forward_of if quantity == "forward" else forward_and_backward_of
    for name, function in functions(bench).items():
        arm = Arm(variant=name, compiled="compiled" in name, **common)
        group[arm] = functools.partial(make, function, x)
    return group


def forward_of(make: Callable, x: torch.Tensor) -> Callable:
    """Return a function () that calls an activation on x.

    make  function () -> the activation
    """
    function = make()

    def run():
        with torch.no_grad():
            return function(x)

    return run


def forward_and_backward_of(make: Callable, x: torch.Tensor) -> Callable:
    """Return a function () that runs an activation forward and backward, and returns the gradient.

    make  function () -> the activation
    """
    function = make()
    inputs = x.detach().clone().requires_grad_()
    output_gradient = torch.ones_like(x)

    def run():
        return torch.autograd.grad(function(inputs), inputs, output_gradient)[0]

    return run


def write_bandwidth(count, quantity, bench, arm, timing, fields):
    """Write the row of an arm's bandwidth in GB/s: the bytes it reads and writes, over its time.

    The bytes are those that the operation must read and write at least.

    count     numbers in the tensor, each in fp32
    quantity  "forward" or "forward and backward"
    arm       the `Arm`
    timing    the `Timing` of a call in ms
    fields    further fields of the arm's row, {name: value}
    """
    passes = PASSES["forward"] if arm.variant == "copying" else PASSES[quantity]
    gigabytes = 4 * count * passes / 1e9

    def per_second(ms):
        return None if ms is None else 1e3 * gigabytes / ms

    bench.row(
        arm,
        f"{quantity}, bandwidth",
        per_second(timing.median),
        "GB/s",
        low=per_second(timing.high),
        high=per_second(timing.low),
        samples=timing.samples,
        in_turn=fields["in_turn"],
    )


def in_training(bench, batch, side):
    """Return the arms for the training: {`Arm`: function () that makes the arm's training step}.

    A ConvNeXt is trained with ReLU, and with each form of FastSwish.

    batch, side  batch size, and pixels a side
    """
    common = {"experiment": "fastswish", "batch": batch, "image_size": side, "network": NETWORK}
    activations = {"ReLU": torch.nn.ReLU}
    for name, form_name in FORMS.items():
        activations[f"FastSwish, {name}"] = functools.partial(FastSwish, form_name)
    group = {}
    for name, activation in activations.items():
        arm = Arm(variant=name, **common)
        group[arm] = functools.partial(training_step, bench, batch, side, activation=activation)
    return group


def write_memory(bench, arm, timing, fields):
    """Write the row of an arm's memory: the largest memory of a training step, in bytes.

    Weights and the optimizer's state are included.

    timing  not used
    fields  further fields of the arm's row, {name: value}; "peak_bytes" is the memory, None on a
            CPU
    """
    peak_bytes = fields["peak_bytes"]
    reason = None if peak_bytes else "only a GPU's allocator counts it"
    bench.row(arm, "memory", peak_bytes, "bytes", peak_bytes=peak_bytes, reason=reason)
