"""Time the phases of training ResNet-50 on images of CIFAR's size.

The phases are data, forward, backward and optimizer. They are measured in seconds of an epoch.
"""

import time
import warnings
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from labkit import device as devices
from labkit.gpu.arms import Arm
from labkit.gpu.bench import Bench
from labkit.gpu.resnet import ResNet
from labkit.gpu.timing import SEED, interval

IMAGES = 50_000  # size of CIFAR-100's training set
CLASSES = 100
SIDE = 32  # pixels
BATCH = 128
PHASES = ("data", "forward", "backward", "optimizer")
# {variant: its switches}; "all" without AMP, as in the published table
VARIANTS = {
    "baseline": (),
    "pinned memory": ("pinned",),
    "cuDNN autotuner": ("autotuner",),
    "TorchScript": ("script",),
    "AMP": ("amp",),
    "all": ("pinned", "autotuner", "script"),
    "all + AMP": ("pinned", "autotuner", "script", "amp"),
}


class RandomImages(Dataset):
    """A data set of random images, which are converted to floats and normalised one by one.

    CIFAR's images are loaded in the same way. An item is (float32 (3, 32, 32), label).

    count  number of items; there are 512 different images, which repeat
    """

    def __init__(self, count: int):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randint(
            256, (512, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator
        )
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        image = self.images[number % len(self.images)].float().div_(255).sub_(0.5).div_(0.25)
        return image, number % CLASSES


class Trainer:
    """One variant of the training: a network, an optimizer, and a loader that never ends.

    bench     the `Bench`
    switches  options of the variant, a value of `VARIANTS` such as ("pinned", "amp")
    """

    def __init__(self, bench: Bench, switches: tuple):
        torch.manual_seed(0)
        if bench.tiny:
            network = ResNet((1, 1), width=4, classes=CLASSES)
        else:
            network = ResNet(classes=CLASSES)
        network = network.to(bench.device).train()
        self.bench = bench
        self.switches = switches
        self.network = scripted(network) if "script" in switches else network
        self.optimizer = torch.optim.Adam(network.parameters(), 1e-3)
        self.amp = "amp" in switches
        self.scaler = torch.amp.GradScaler(bench.device.type, enabled=self.amp and bench.on_gpu)
        workers = bench.size(min(4, devices.usable_cores()), 1)
        self.loader = DataLoader(
            RandomImages(2**30),
            bench.size(BATCH, 4),
            num_workers=workers,
            pin_memory="pinned" in switches and bench.on_gpu,
        )
        self.batches = iter(self.loader)

    def steps(self, count: int) -> np.ndarray:
        """Train for some steps, and return the seconds of each phase per step.

        Returns an array (5,): the four `PHASES`, then the whole step. Data loading is timed by the
        CPU's clock: it ends when the copy of the batch to the GPU has begun. The other phases are
        timed by CUDA events on a GPU, so that nothing waits between them. The whole is timed until
        the GPU has finished.

        count  number of steps
        """
        torch.backends.cudnn.benchmark = "autotuner" in self.switches
        self.bench.stopwatch.wait()
        start = time.perf_counter()
        data_s = 0.0
        steps = []  # the marks of each step
        for _ in range(count):
            data_start = time.perf_counter()
            images, labels = next(self.batches)
            images = images.to(self.bench.device, non_blocking=True)
            labels = labels.to(self.bench.device, non_blocking=True)
            data_s += time.perf_counter() - data_start
            steps.append(self.step(images, labels))
        self.bench.stopwatch.wait()
        total_s = time.perf_counter() - start

        phase_seconds = []
        for phase in range(3):
            phase_seconds.append(sum(seconds(marks[phase], marks[phase + 1]) for marks in steps))
        return np.array([data_s, *phase_seconds, total_s]) / count

    def step(self, images, labels):
        """Do one step. Returns four `mark`s: before the forward pass, and at the end of each phase.

        images, labels  a batch on the device
        """
        amp_dtype = torch.float16 if self.bench.on_gpu else torch.bfloat16
        marks = [mark(self.bench)]
        with torch.autocast(self.bench.device.type, amp_dtype) if self.amp else nullcontext():
            loss = F.cross_entropy(self.network(images), labels)
        marks.append(mark(self.bench))
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        marks.append(mark(self.bench))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        marks.append(mark(self.bench))
        return marks


def mark(bench):
    """Mark the present moment: return a CUDA event on a GPU, else the CPU's clock in seconds."""
    if not bench.on_gpu:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds(first, second):
    """Return the seconds between two marks.

    The GPU must have passed both already.
    """
    if isinstance(first, float):
        return second - first
    return first.elapsed_time(second) / 1e3


def scripted(network: nn.Module) -> nn.Module:
    """Return a network as TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        return torch.jit.script(network)


def phases(bench: Bench) -> None:
    """Train each variant for some steps, and write its phases to the journal.

    First each variant is trained alone, then all take turns in random order.
    """
    arms = {variant: arm_of(bench, variant) for variant in VARIANTS}
    bench.plan(arms.values())
    trainers = {}
    peaks = {}
    for variant, switches in VARIANTS.items():
        bench.begin(arms[variant])
        try:
            trainers[variant], peaks[variant] = warm_trainer(bench, switches)
            write(
                bench, arms[variant], [trainers[variant].steps(bench.size(10, 2))], peaks[variant]
            )
        # any error, such as a torch without TorchScript, is the reason in the row
        except Exception as error:
            trainers.pop(variant, None)
            bench.failed(arms[variant], "epoch", error)
    try:
        in_turn(bench, arms, trainers, peaks)
    finally:
        torch.backends.cudnn.benchmark = False


def arm_of(bench, variant):
    """Return the `Arm` of a variant.

    variant  a key of `VARIANTS`
    """
    amp = "amp-fp16" if bench.on_gpu else "amp-bf16"
    precision = amp if "amp" in VARIANTS[variant] else "fp32"
    common = {"experiment": "training-phases", "batch": bench.size(BATCH, 4), "image_size": SIDE}
    return Arm(variant=variant, precision=precision, network="resnet50", **common)


def warm_trainer(bench, switches):
    """Make a `Trainer` and train it until it is warm.

    Returns (the `Trainer`, its peak of GPU memory in bytes). The peak is None on a CPU.
    """
    bench.clean()
    earlier_bytes = bench.allocated_bytes()
    trainer = Trainer(bench, switches)
    trainer.steps(bench.size(8, 1))  # TorchScript is optimised in its first calls
    return trainer, bench.peak_bytes(lambda: trainer.steps(2), above=earlier_bytes)


def in_turn(bench, arms, trainers, peaks):
    """Train all variants in turn until the deadline, then write their rows.

    A turn is a block of steps; the order is random. These rows replace the rows of the variants
    that were trained alone.

    arms      {variant: its `Arm`}
    trainers  {variant: its `Trainer`}
    peaks     {variant: peak of GPU memory in bytes, or None}
    """
    generator = np.random.default_rng(SEED)
    names = list(trainers)
    blocks = {variant: [] for variant in names}
    for _ in range(bench.size(15, 1)):
        if time.monotonic() > bench.end - bench.size(8, 0):
            break
        for index in generator.permutation(len(names)):
            variant = names[index]
            # not counted: the loader prepared these batches while other variants trained
            trainers[variant].steps(bench.size(10, 1))
            blocks[variant].append(trainers[variant].steps(bench.size(20, 1)))
    for variant, rows in blocks.items():
        if rows:
            write(bench, arms[variant], rows, peaks[variant], in_turn=True)


def write(bench, arm, blocks, peak_bytes, *, in_turn=False):
    """Write the row of a variant: the seconds of an epoch of 50,000 images, and of its phases.

    They are computed from the medians over the blocks.

    blocks   a list with the result of `Trainer.steps` for each block
    in_turn  True if the variants took turns
    """
    epochs = IMAGES / arm.batch * np.array(blocks)  # (blocks, 5): seconds of an epoch
    total = interval(epochs[:, -1])
    phase_medians = np.median(epochs[:, :-1], axis=0).tolist()
    phase_fields = {
        f"{phase}_s": median for phase, median in zip(PHASES, phase_medians, strict=True)
    }
    description = f"random images of {SIDE} x {SIDE} pixels from loader processes; "
    description += f"extrapolated from {len(blocks)} blocks of steps to {IMAGES:,} images"
    bench.row(
        arm,
        "epoch",
        total.median,
        "s",
        low=total.low,
        high=total.high,
        samples=total.samples,
        peak_bytes=peak_bytes,
        images=IMAGES,
        how=description,
        in_turn=in_turn,
        **phase_fields,
    )
