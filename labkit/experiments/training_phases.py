"""ResNet-50 on images of CIFAR-100's shape: seconds of data, forward, backward and optimizer, one
change at a time.

There is a row for each line of the published table (pinned memory, cuDNN autotuner, TorchScript,
all of them), and one more that the table lacks: the same Adam as a fused kernel.

Steps of batch 64 at 32 x 32 pixels are timed; in each turn every variant trains one step. Twenty
epochs of 50,000 images have 15,620 steps, so their time is 15,620 times the median step. The clock
waits for the device between the phases. On a CPU with one thread it is the thread's own clock,
which stands still while another program has the core.

Images are those of CIFAR-100 where `labkit data get cifar100` has brought them here, else random
ones of their shape. Weights are random. Neither changes a time. Without a GPU, a variant that needs
one is a row with the reason and no time.

By default it times for five minutes. `quick`: a ResNet-18, batch 8.

Source  the published table "training-phases" of `labkit.ledger.published`
"""

import copy
import time

import numpy as np
import torch
import torchvision
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from labkit import data
from labkit import device as devices
from labkit.errors import DataError, LabError
from labkit.ledger.rows import Training
from labkit.train import scripted

MINUTES = 5
STUDY = "training-phases"
VARIANTS = {
    "baseline": (),
    "pinned memory": ("pinned",),
    "cuDNN autotuner": ("autotuner",),
    "TorchScript": ("script",),
    "all": ("pinned", "autotuner", "script"),
    "fused optimizer": ("fused",),
}
GPU_ONLY = {
    "pinned": "pinned memory is for copies to a GPU, and there is none",
    "autotuner": "cuDNN's autotuner needs a GPU, and there is none",
}
IMAGES, EPOCHS, CLASSES, SIDE = 50_000, 20, 100, 32
FIRST, FEWEST = 3, 3  # steps of a variant that warm up; the fewest steps that count


class Pictures(Dataset):
    """An endless data set of (image as floats, label): after the last image, the first one follows.

    An image is converted from bytes to floats when it is read.

    images  uint8 (N, 3, H, W)
    labels  int64 (N,)
    """

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return 2**30  # a loader never comes to an end

    def __getitem__(self, number):
        number %= len(self.images)
        return self.images[number].float().div_(255).sub_(0.5).div_(0.25), self.labels[number]


class Trainer:
    """One variant of the training: a copy of the network, its optimizer, and its loader.

    network   the network to copy
    pictures  the training images, `Pictures`
    switches  what the variant changes: names out of "pinned", "autotuner", "script" and "fused"
    batch     images per step
    """

    def __init__(self, network, pictures, switches, *, batch, device):
        network = copy.deepcopy(network)
        fused = True if "fused" in switches else None  # None: torch's own choice, a loop on a CPU
        self.optimizer = torch.optim.Adam(network.parameters(), 1e-3, fused=fused)
        self.network = scripted(network) if "script" in switches else network
        self.autotuner, self.pinned, self.device = (
            "autotuner" in switches,
            "pinned" in switches,
            device,
        )
        self.batches = iter(DataLoader(pictures, batch, pin_memory=self.pinned))

    def step(self):
        """Train one step. Returns its phases as (4,) seconds: data, forward, backward, optimizer.

        After each phase, the clock waits until the device is idle.
        """
        torch.backends.cudnn.benchmark = self.autotuner
        marks = [_idle_at(self.device)]
        images, labels = (
            tensor.to(self.device, non_blocking=self.pinned) for tensor in next(self.batches)
        )
        marks.append(_idle_at(self.device))
        loss = cross_entropy(self.network(images), labels)
        marks.append(_idle_at(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        marks.append(_idle_at(self.device))
        self.optimizer.step()
        marks.append(_idle_at(self.device))
        return np.diff(marks)


def measure(scale):
    """Yield a `Training` for each variant."""
    name, batch = ("resnet18", 8) if scale.quick else ("resnet50", 64)
    network = (
        getattr(torchvision.models, name)(weights=None, num_classes=CLASSES)
        .to(scale.device)
        .train()
    )
    pictures, dataset = _pictures()
    fields = {"study": STUDY, "model": name, "network": name, "batch": batch, "dataset": dataset}
    fields |= {"device": str(scale.device), "threads": devices.threads()}

    # A variant that this machine cannot run is a row with the reason.
    trainers = {}
    for variant, switches in VARIANTS.items():
        try:
            _require_gpu(switches, scale.device)
            trainers[variant] = Trainer(
                network, pictures, switches, batch=batch, device=scale.device
            )
        except LabError as error:
            yield Training(variant=variant, reason=error.what, **fields)

    # The others take their steps in turn.
    steps = _in_turn(trainers, scale.seconds)
    torch.backends.cudnn.benchmark = False
    for variant, seconds in steps.items():
        yield _row(variant, seconds, fields)


def _pictures():
    """Return (the training images as `Pictures`, a text that describes the data set)."""
    try:
        photos = data.load("cifar100", "train", limit=4_096)
        return Pictures(photos.images, photos.labels), "CIFAR-100"
    except DataError:  # it is not here
        random = torch.Generator().manual_seed(0)
        images = torch.randint(256, (512, 3, SIDE, SIDE), dtype=torch.uint8, generator=random)
        labels = torch.randint(CLASSES, (512,), generator=random)
        return Pictures(images, labels), f"random images of CIFAR-100's shape, {SIDE} x {SIDE}"


def _require_gpu(switches, device):
    """Raise a LabError where a switch needs a GPU and the device is a CPU."""
    missing = [reason for switch, reason in GPU_ONLY.items() if switch in switches]
    if missing and device.type == "cpu":
        raise LabError(missing[0], expected="a GPU", found=str(device))


def _in_turn(trainers, seconds):
    """Time training steps of all variants. Returns {variant: (steps, 4) seconds of the phases}.

    In a turn, each variant trains one step; their order is random. Turns follow until the time is
    over, `FEWEST` at least.

    trainers  {variant: `Trainer`}
    seconds   seconds for all variants together
    """
    rng = np.random.default_rng(0)
    seconds_of_steps = {variant: [] for variant in trainers}
    for _ in range(FIRST):
        for trainer in trainers.values():
            trainer.step()
    end, turn = time.monotonic() + seconds, 0
    while turn < FEWEST or time.monotonic() < end:
        for variant in rng.permutation(list(trainers)):
            seconds_of_steps[variant].append(trainers[variant].step())
        turn += 1
    return {variant: np.array(steps) for variant, steps in seconds_of_steps.items()}


def _row(variant, seconds, fields):
    """Return the `Training` of twenty epochs: its time is their number of steps times the median.

    variant  one of `VARIANTS`
    seconds  (steps, 4) seconds of the phases of the steps that were timed
    fields   {field: value} of further fields, with "batch" and "dataset"
    """
    steps = EPOCHS * (IMAGES // fields["batch"])
    phases = dict(
        zip(
            ("data_s", "forward_s", "backward_s", "optimizer_s"),
            np.median(seconds, axis=0),
            strict=True,
        )
    )
    how = (
        f"{fields['dataset']}; {EPOCHS} epochs of {IMAGES:,} images from {len(seconds)} steps "
        "that were timed"
    )
    return Training(
        variant=variant,
        images=steps * fields["batch"],
        total_s=steps * float(np.median(seconds.sum(axis=1))),
        **{phase: steps * float(median) for phase, median in phases.items()},
        **fields | {"dataset": how},
    )


def _idle_at(device):
    """Wait until the device has done all its work, and return the time then, in seconds.

    On a CPU with one thread it is the time that this thread has computed.
    """
    devices.synchronize(device)
    own_clock = device.type == "cpu" and torch.get_num_threads() == 1
    return time.thread_time() if own_clock else time.perf_counter()
