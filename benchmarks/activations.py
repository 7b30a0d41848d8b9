"""FastSwish against its targets: bytes, memory, speed. About 10 minutes; `--quick` under one.

That its forms agree and compile is checked in tests/methods/test_fastswish.py.

Without a GPU its lines are left out, with the reason; with one, the Triton kernels are part of
every line.
"""

import argparse
import os
import sys

from figures import Figures

from labkit import device as devices

if not devices.runs_triton():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported; checks values, not speed

import torch

from labkit.engines import load
from labkit.measure import Plan, compare, latency, memory, saved_for_backward
from labkit.methods import fastswish as fs
from labkit.models import build, example

FORMS = [*fs.FORMS, fs.FROM_OUTPUT]
# the tolerance between networks with different activations: their answers may differ
DIFFERENT = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter measurements, under a minute")
    parser.add_argument("--only", help="one part: " + ", ".join(PARTS))
    options, figures = parser.parse_args(), Figures()
    device = devices.pick()
    for name, part in PARTS.items():
        if options.only in (None, name):
            figures.part(name, part, options.quick, device)
    figures.exit()


def word(form):
    return form.replace(" ", "_")


def saved(figures, quick, device):
    """Bytes kept by the activation and a linear layer after it, over ReLU's."""
    linear = torch.nn.Linear(1024, 16, device=device)
    x = torch.randn(64, 1024, device=device, requires_grad=True) * 2
    alone = {
        form: saved_for_backward(fs.form(form), x) / saved_for_backward(torch.relu, x)
        for form in FORMS
    }
    for form, times in alone.items():
        figures.add(f"saved_alone_{word(form)}", times, unit="x_relu")
    relu = saved_for_backward(torch.nn.Sequential(torch.nn.ReLU(), linear), x)
    pairs = {form: torch.nn.Sequential(fs.FastSwish(form), linear) for form in FORMS}
    pairs["recomputed"] = fs.Recomputed(fs.FastSwish(), linear)
    times = {name: saved_for_backward(pair, x) / relu for name, pair in pairs.items()}
    for name, value in times.items():
        figures.add(f"saved_{word(name)}", value, unit="x_relu")
    figures.add("saved_best_alone", min(alone.values()), at_most=1.07, unit="x_relu")
    figures.add("saved_best", min(times.values()), at_most=1.07, unit="x_relu")


def peak(figures, quick, device):
    """Peak memory of a training step of the small ConvNeXt over ReLU's: the allocator's on a
    GPU, else of tensors.
    """
    relu = training_peak(torch.nn.ReLU, device)
    lean = "triton" if devices.runs_triton() else "function"
    forms = ("naive", "function") if quick else FORMS
    for form in forms:
        if form != "triton" or devices.runs_triton():
            times = training_peak(lambda form=form: fs.FastSwish(form), device) / relu
            figures.add(f"peak_{word(form)}", times, unit="x_relu")
    best = training_peak(lambda: fs.FastSwish(lean), device, recompute=True) / relu
    figures.add("peak_recomputed", best, at_most=1.1, unit="x_relu")


def training_peak(activation, device, *, recompute=False):
    network = build("convnext-mini", activation=activation)[0].to(device)
    network = fs.with_recompute(network, fs.FastSwish) if recompute else network
    images = example("convnext-mini", 64).to(device)

    def step():
        network.zero_grad()
        network(images).square().mean().backward()

    row = memory(step, device=device, batch=64)
    return row.peak_bytes or row.tensor_bytes


def network(figures, quick, device):
    """Compiled inference with FastSwish over compiled ReLU, in pairs; at batch 1 too unless
    quick.
    """
    for size in (64,) if quick else (64, 1):
        images = example("convnext-mini", size).to(device)
        served = {
            name: load("inductor", build("convnext-mini", activation=make)[0].to(device), images)
            for name, make in (("fastswish", fs.FastSwish), ("relu", torch.nn.ReLU))
        }
        plan = Plan(seconds=4 if quick else 30)
        row = compare(served, inputs=[images], tolerance=DIFFERENT, device=device, plan=plan)[
            "relu"
        ]
        print(f"# {row.summary()}")
        figures.add(f"compiled_batch_{size}", row.median, at_most=1.05, unit="x_relu")


def bandwidth(figures, quick, device):
    """The Triton kernels against copying the same bytes, and against eager torch at every size."""
    if not devices.runs_triton():
        print("# bandwidth: Triton kernels are timed on a GPU only, and there is none")
        return
    from labkit.methods.fastswish import kernels

    plan = Plan(seconds=1 if quick else 5)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(2**26, device=device).to(dtype)
        grad, y = torch.randn_like(x), torch.empty_like(x)
        # a read and a write
        copied = latency(lambda y=y, x=x: y.copy_(x), device=device, plan=plan).p50_ms / 2
        forward = latency(lambda x=x: kernels.forward(x), device=device, plan=plan).p50_ms / 2
        backward = (
            latency(lambda g=grad, x=x: kernels.backward(g, x), device=device, plan=plan).p50_ms / 3
        )
        kind = str(dtype).removeprefix("torch.")
        figures.add(f"forward_of_copy_{kind}", 100 * copied / forward, at_least=90, unit="%")
        figures.add(f"backward_of_copy_{kind}", 100 * copied / backward, at_least=90, unit="%")
    for power in range(0, 28, 9 if quick else 3):
        against_eager(figures, 2**power, device, plan)


def against_eager(figures, size, device, plan):
    """Forward and backward of one size, Triton over the few-operator form in eager mode."""
    x = torch.randn(size, device=device, requires_grad=True)
    grad = torch.randn(size, device=device)

    def both(form):
        return lambda: torch.autograd.grad(form(x), x, grad)

    arms = {"eager": both(fs.form("rewrite")), "triton": both(fs.form("triton"))}
    row = compare(arms, tolerance=1e-5, device=device, plan=plan)["triton"]
    figures.add(f"triton_over_eager_{size}", row.median, at_least=1, unit="x")


PARTS = {
    "saved": saved,
    "peak": peak,
    "network": network,
    "bandwidth": bandwidth,
}

if __name__ == "__main__":
    sys.exit(main())
