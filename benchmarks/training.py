"""What the training techniques cost and gain here: compile with bf16, ghost batch norm, LARS; more
on a GPU.

    python benchmarks/training.py [--quick] [--cpu-time] [--only step|ghost|lars|convnext]
    python benchmarks/training.py --only tiny --images tiny-imagenet-200.zip [--epochs 5] [--record
    FILE.json]

Full: about ten minutes. Quick: under a minute. All ratios come from interleaved rounds of arms that
compute the same: steps with a learning rate of 0, which do all the work and leave the weights
alone. On a busy machine --cpu-time helps: one thread, and the time it was given instead of the time
that passed. The part `tiny` trains the published network on Tiny-ImageNet, or on a subset of its
zip: on two cores, 45 minutes for 16,000 images and five epochs.
"""

import argparse
import copy
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torchvision
from figures import Figures
from torch import nn
from torch.nn import functional as F

from labkit import device as devices
from labkit import models
from labkit.data import ImageSet
from labkit.data._published import published
from labkit.data._readers import tiny_imagenet
from labkit.experiments.convnext_training import (
    VARIANTS,
    one_step,
    order_of_turn,
    timed_step,
    training_arm,
)
from labkit.files import sha256
from labkit.ledger._record import page_of, write_page
from labkit.ledger.rows import Training
from labkit.measure import Clock, Plan, compare
from labkit.measure.stats import mean_ratio
from labkit.methods.ghost_batch_norm import ghost_batch_norm
from labkit.methods.lars import LARS
from labkit.train import accuracy

GHOSTS = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller measurements, under a minute"
    )
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument(
        "--cpu-time", action="store_true", help="one thread of the CPU, and its own time"
    )
    parser.add_argument(
        "--images",
        type=Path,
        help="tiny: the zip of Tiny-ImageNet; without it the part is left out",
    )
    parser.add_argument("--epochs", type=int, default=5, help="tiny: passes over its images")
    parser.add_argument(
        "--record", type=Path, help="tiny: keep what was found, as results of this machine"
    )
    options, figures = parser.parse_args(), Figures()
    options.device = options.clock = devices.pick("cpu" if options.cpu_time else None)
    if options.cpu_time:
        torch.set_num_threads(1)
        options.clock = Clock(now=time.thread_time)
    for name, part in PARTS.items():
        if options.only in (None, name):
            figures.part(name, part, options)
    figures.exit()


def ratio_line(figures, name, row, **target):
    """One figure, and how sure it is."""
    figures.add(name, row.median, unit="x", **target)
    print(
        f"# {row.low:.3f} to {row.high:.3f}, floor {row.floor:.3f}, {row.baseline_ms:.3g} to "
        f"{row.arm_ms:.3g} ms"
    )


# --- one training step ---


def step_arm(
    model, x, y, *, compiled=False, amp=False, channels_last=False, tf32=False, fused=False
):
    """A function that does a training step of a copy of `model` with learning rate 0 and returns
    the loss.
    """
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model, x = (
        copy.deepcopy(model).train().to(memory_format=layout),
        x.contiguous(memory_format=layout),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=fused, foreach=not fused)
    network = torch.compile(model, dynamic=False) if compiled else model

    def step():
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        return one_step(network, optimizer, x, y, amp=amp)

    return step


def step(figures, options):
    """Compile and bf16 against eager fp32, on this device."""
    device, plan = options.device, Plan(seconds=4 if options.quick else 40)
    bf16 = devices.multiplies_bf16(device)
    for name, batch in (
        [("vgg-small", 64)] if options.quick else [("convnext-mini", 128), ("cnn-large", 64)]
    ):
        model, x = models.build(name)[0].to(device), models.example(name, batch).to(device)
        y = torch.arange(batch, device=device) % 10
        make = partial(step_arm, model, x, y)
        arms = {"eager fp32": make(), "compile fp32": make(compiled=True)}
        if bf16 or not options.quick:  # without instructions for it, bf16 is emulated, slowly
            arms |= {"bf16": make(amp=True), "compile bf16": make(compiled=True, amp=True)}
            arms |= {
                "compile bf16 channels_last": make(
                    compiled=True, amp=True, channels_last=True, fused=True
                )
            }
        arms |= {"compile fp32 channels_last": make(compiled=True, channels_last=True, fused=True)}
        found = compare(arms, tolerance=5e-2, device=options.clock, plan=plan)
        best = max(
            filter(lambda arm: bf16 and "compile bf16" in arm, arms),
            key=lambda arm: found[arm].median,
            default="",
        )
        for arm in list(arms)[1:]:
            goal = {"at_least": 2.5} if arm == best else {}
            ratio_line(figures, f"step_{name}_{arm}".replace(" ", "_"), found[arm], **goal)
        if not bf16:
            print(
                f"# no target for bf16: this CPU has {' '.join(devices.cpu_isa())}, and no "
                "instructions for bf16"
            )


# --- ghost batch norm ---


def batch_norm(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, training=True)


def ghosts(x, weight, bias):
    return ghost_batch_norm(x, len(x) // GHOSTS, weight, bias)


def norm_arm(norm, *, inputs):
    """A function that goes forward and backward through a norm and returns all three gradients."""
    *learned, slope = inputs
    return lambda: torch.autograd.grad(norm(*learned), learned, slope)


def ghost(figures, options):
    """Ghost batch norm against batch norm, and compiled against eager, forward and backward."""
    # on a CPU the first and the last norm of vgg-small; a GPU is given enough to do
    sizes = {"first": (1024, 16, 14, 14), "last": (1024, 128, 1, 1)}
    sizes = sizes if options.device.type == "cpu" else {"large": (1024, 64, 28, 28), **sizes}
    sizes = dict(list(sizes.items())[:1]) if options.quick else sizes
    plan = Plan(seconds=2 if options.quick else 20)
    measure = partial(compare, tolerance=1e-3, device=options.clock, plan=plan)
    for name, size in sizes.items():
        for layout in (torch.contiguous_format, torch.channels_last):
            form = f"{name}_{str(layout).removeprefix('torch.').removesuffix('_format')}"
            make = partial(norm_arm, inputs=norm_inputs(size, layout, options.device))
            torch.compiler.reset()
            norm, ghosted = (make(torch.compile(fn, dynamic=False)) for fn in (batch_norm, ghosts))
            found = measure({"norm": norm, "ghosts": ghosted})["ghosts"]
            figures.add(f"ghost_compiled_cost_{form}", 1 / found.median, at_most=1.05, unit="x")
            print(
                f"# {1 / found.high:.3f} to {1 / found.low:.3f}, batch norm "
                f"{found.baseline_ms:.3g} ms"
            )
            found = measure({"norm": make(batch_norm), "ghosts": make(ghosts)})
            figures.add(f"ghost_eager_cost_{form}", 1 / found["ghosts"].median, unit="x")
            found = measure({"eager": make(ghosts), "compiled": ghosted})["compiled"]
            ratio_line(figures, f"ghost_compiled_against_eager_{form}", found)


def norm_inputs(size, layout, device):
    """(images, weight, bias, slope): all ghosts alike, so that a ghost has the statistics of the
    batch: arms agree.
    """
    count, *rest = size
    parts = (
        torch.randn(count // GHOSTS, *rest, device=device).repeat(GHOSTS, 1, 1, 1) for _ in range(2)
    )
    x, slope = (part.contiguous(memory_format=layout) for part in parts)
    weight, bias = (torch.rand(rest[0], device=device, requires_grad=True) for _ in range(2))
    return x.requires_grad_(), weight, bias, slope


# --- LARS ---


def resnet50_shapes(divisor):
    """The shapes of the first 160 tensors of ResNet-50, its widths divided."""
    with torch.device("meta"):
        weights = list(torchvision.models.resnet50().parameters())[:160]
    return [tuple(max(1, n // divisor) if n > 7 else n for n in weight.shape) for weight in weights]


def optimizer_arm(make, shapes, device):
    """A function that does a step with learning rate 0 and returns the sum of the first weights."""
    random = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, generator=random).to(device)) for shape in shapes]
    for weight in weights:
        weight.grad = torch.randn(weight.shape, generator=random).to(device)
    optimizer = make(weights, lr=0.0, momentum=0.9, weight_decay=1e-4)

    def step():
        optimizer.step()
        return weights[0].detach().sum()

    return step


def lars(figures, options):
    """A LARS step against SGD's and timm's, on 160 tensors: so small that calls decide, and as
    large as ResNet-50's.
    """
    from timm.optim import Lars

    device, plan = options.device, Plan(seconds=3 if options.quick else 20)
    makers = {
        "sgd": partial(torch.optim.SGD, foreach=True),
        "lars": LARS,
        "timm": Lars,  # as it is by default
        "timm foreach": partial(Lars, foreach=True),
    }
    measure = partial(compare, tolerance=1e-6, device=options.clock, plan=plan)
    for divisor in [16] if options.quick else [16, 1]:
        shapes = resnet50_shapes(divisor)
        arms = {name: optimizer_arm(make, shapes, device) for name, make in makers.items()}
        name = f"160_tensors_{sum(torch.Size(shape).numel() for shape in shapes)}_weights"
        found = measure({name: arms[name] for name in ("sgd", "lars")})["lars"]
        figures.add(f"lars_step_of_sgd_{name}", 1 / found.median, at_most=2, unit="x")
        print(f"# {1 / found.high:.3f} to {1 / found.low:.3f}, SGD {found.baseline_ms:.3g} ms")
        found = measure({name: arms[name] for name in ("timm", "timm foreach", "lars")})
        # with large tensors on a CPU every form waits for the same memory: no target there
        goal = {"at_least": 5} if divisor > 1 or device.type != "cpu" else {}
        ratio_line(figures, f"lars_against_timm_{name}", found["lars"], **goal)
        ratio_line(figures, f"timm_foreach_against_timm_{name}", found["timm foreach"])


# --- with a GPU ---


def convnext(figures, options, batch=128):
    """ConvNeXt-homebrew at 224 x 224: fp32 and TF32 against the best stack."""
    device = options.device
    if device.type == "cpu":
        print("# convnext: needs a GPU")
        return
    model, x = (
        models.build("convnext-homebrew")[0].to(device),
        models.example("convnext-homebrew", batch).to(device),
    )
    make = partial(step_arm, model, x, torch.arange(batch, device=device))
    best = make(compiled=True, amp=True, channels_last=True, tf32=True, fused=True)
    arms = {"fp32": make(), "tf32": make(tf32=True), "amp": make(amp=True), "best": best}
    plan = Plan(seconds=10 if options.quick else 60)
    found = compare(arms, tolerance=5e-2, device=options.clock, plan=plan)
    ratio_line(figures, "convnext_best_against_fp32", found["best"], at_least=6)
    ratio_line(figures, "convnext_amp_against_fp32", found["amp"])
    found = compare(
        {"tf32": arms["tf32"], "best": best}, tolerance=5e-2, device=options.clock, plan=plan
    )
    ratio_line(figures, "convnext_best_against_tf32", found["best"], at_least=2.5)


# --- the published network on its own images ---


def tiny(figures, options, batch=128):
    """ConvNeXt-homebrew on Tiny-ImageNet at 64 x 64 (published: 224 x 224), four ways: seconds
    and accuracy.
    """
    if options.images is None:
        print("# tiny: needs --images tiny-imagenet-200.zip, whole or a part in the same layout")
        return
    data, test = (_tiny_images(options.images, split) for split in ("train", "test"))
    print(
        f"# {len(data):,} images, {len(test):,} to test on, batch {batch}, "
        f"{torch.get_num_threads()} threads"
    )
    taken, right = _trained_in_turns(data, test, batch, options)
    # the first step of a way compiles: it counts as long as the others
    seconds = {
        way: [len(times) * np.mean(times[1:]), *map(np.sum, rest)]
        for way, (times, *rest) in taken.items()
    }
    seen = f"{data.name} at 64 x 64, {len(data):,} images, {options.epochs} epochs"
    network = "convnext-homebrew"
    about = {
        "study": "convnext-tiny-imagenet",
        "model": network,
        "network": network,
        "dataset": seen,
    }
    about |= {"images": len(data)}
    about |= {"device": str(options.device), "threads": torch.get_num_threads(), "batch": batch}
    rows = []
    for way in VARIANTS:
        total = float(np.mean(seconds[way]))
        figures.add(f"tiny_epoch_{way}".replace(" ", ""), total, unit="s")
        figures.add(f"tiny_accuracy_{way}".replace(" ", ""), right[way])
        print(
            f"# {mean_ratio(np.array(seconds['vanilla']), np.array(seconds[way]))} "
            "times as fast as vanilla"
        )
        rows.append(Training(variant=way, total_s=total, accuracy=right[way], **about))
    if options.record:
        machine = devices.describe()
        known = {"machines": [machine], "trainings": rows}
        about = {"profile": "lab", "commit": devices.commit(), "experiment": "convnext-training"}
        page = page_of(machine, known, hardware=machine.title, **about)
        write_page(options.record, page)


def _tiny_images(path, split):
    """A split of the zip as an ImageSet; a subset has another sha256 than the published file,
    and keeps its own.
    """
    entry, (images, labels, classes) = published("tiny-imagenet"), tiny_imagenet(split, path)
    about = {"name": entry.name, "mean": tuple(entry.mean), "std": tuple(entry.std)}
    return ImageSet(
        images=images, labels=labels, classes=classes, split=split, digest=sha256(path), **about
    )


def _trained_in_turns(data, test, batch, options):
    """({way: [[seconds of each step] of each epoch]}, {way: accuracy, 0 to 1}): all begin with the
    same weights.

    The ways take each batch in turns: what else the machine does meets all of them.
    """
    torch.manual_seed(0)
    first = models.build("convnext-homebrew", classes=len(data.classes))[0].to(options.device)
    arms = {
        way: training_arm(first, options.epochs * (len(data) // batch), **form)
        for way, form in VARIANTS.items()
    }
    taken, right = {way: [] for way in VARIANTS}, {}
    for epoch in range(options.epochs):
        for way, (network, _) in arms.items():
            network.train()
            taken[way].append([])
        for turn, (x, y) in enumerate(
            data.batches(batch, device=options.device, seed=epoch, drop_last=True)
        ):
            for way in order_of_turn(list(VARIANTS), turn):
                taken[way][-1].append(timed_step(arms[way][1], x, y))
        right = {
            way: accuracy(network, test, device=options.device)
            for way, (network, _) in arms.items()
        }
        print(
            f"# epoch {epoch + 1}: "
            + ", ".join(f"{way} {share:.4f}" for way, share in right.items()),
            flush=True,
        )
    return taken, right


PARTS = {"step": step, "ghost": ghost, "lars": lars, "convnext": convnext, "tiny": tiny}

if __name__ == "__main__":
    main()
