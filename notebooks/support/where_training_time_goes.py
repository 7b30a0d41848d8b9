"""For the lesson on where training time goes: photos, a flame chart, the table, a head.

Each function serves one cell of the lesson; the cell shows what goes in and what comes out.
"""

import io
import os
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from PIL import Image

from labkit.data import load
from labkit.ledger import published, recorded
from labkit.measure.stats import Interval, bootstrap_paired
from labkit.models import build
from labkit.train import TrainConfig, fit, right_answers
from labkit.train.by_name import training

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch.profiler's notes of its own

PUBLISHED = {
    "forward_s": "forward",
    "backward_s": "backward",
    "optimizer_s": "optimizer",
    "data_s": "data",
    "total_s": "total",
}
VARIANTS = ["baseline", "pinned memory", "cuDNN autotuner", "TorchScript", "all", "fused optimizer"]


def camera_photos(count, side=512):
    """Make pictures of clothes as a camera leaves them: JPEG files with many pixels.

    returns  ([bytes of a file], (count,) int64 labels)
    """
    data = load("fashion-mnist", "train", limit=count)
    return [_as_jpeg(image[0].numpy(), side) for image in data.images], data.labels


def _as_jpeg(pixels, side):
    """Return the bytes of one JPEG file, with `side` pixels a side."""
    file = io.BytesIO()
    large = Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR).convert("RGB")
    large.save(file, "JPEG", quality=90)
    return file.getvalue()


class Photos(torch.utils.data.Dataset):
    """An endless data set of (photo, label): after the last photo, the first follows.

    files, labels  as `camera_photos` returns them
    load           opens a file when it is asked for: bytes -> tensor
    """

    def __init__(self, files, labels, load):
        self.files, self.labels, self.load = files, labels, load

    def __len__(self):
        return 10**6

    def __getitem__(self, number):
        number %= len(self.files)
        return self.load(self.files[number]), self.labels[number]


def convnext(side=64, batch=4):
    """Return the published ConvNeXt, whose layers are named in profiles, with images and labels.

    A hook before and after each layer opens and closes a `record_function` with its name.
    """
    torch.manual_seed(0)
    network, _ = build("convnext-homebrew", classes=200)
    for name, layer in network.named_modules():
        if name:  # the network itself calls all others
            _name_in_profiles(layer, _shown_name(name, layer))
    return network.train(), torch.randn(batch, 3, side, side), torch.randint(200, (batch,))


def _shown_name(name, layer):
    """Return a layer's name in profiles: its own name if that is a word, else its class.

    So depthwise, norm and mlp keep their names.
    """
    last = name.rpartition(".")[-1]
    return last if last.isalpha() else type(layer).__name__


def _name_in_profiles(layer, name):
    """Let a profile show the forward pass of a layer under its name."""
    opened = []

    def before(*_):
        opened.append(torch.profiler.record_function(name))
        opened[-1].__enter__()

    def after(*_):
        opened.pop().__exit__(None, None, None)

    layer.register_forward_pre_hook(before)
    layer.register_forward_hook(after)


def boxes(profiler, narrowest=0.0005):
    """Return what torch.profiler saw on the CPU, as boxes (depth, start, width, name) in ms.

    narrowest  share of the whole below which a box is left out
    """
    events = [event for event in profiler.events() if event.device_type.name == "CPU"]
    spans = [(event.time_range.start, event.time_range.end, event.name) for event in events]
    spans = sorted(spans, key=lambda span: (span[0], -span[1]))
    begin, end = spans[0][0], max(stop for _, stop, _ in spans)
    drawn, open_until = [], []
    for start, stop, name in spans:
        while open_until and open_until[-1] <= start:
            open_until.pop()
        if stop - start >= narrowest * (end - begin):
            start_ms, width_ms = (start - begin) / 1e3, (stop - start) / 1e3
            drawn.append((len(open_until), start_ms, width_ms, _short(name)))
        open_until.append(stop)
    return drawn


def _short(name):
    """Return the name of an operator without the prefixes of torch."""
    name = name.removeprefix("autograd::engine::evaluate_function: ").removeprefix("aten::")
    return name.removeprefix("torch::autograd::")


def phases_beside():
    """Return the published seconds of each phase, above those that were recorded elsewhere.

    returns  a DataFrame with a row for each place and variant; a row that needs a GPU says so in
             its total
    """
    tables = {"published, a GPU": published.table("training-phases").set_index("variant")}
    rows = recorded("trainings", experiment="training-phases")
    for hardware, own in rows[rows["profile"] == "lab"].groupby("hardware"):
        newest = own.drop_duplicates("variant", keep="last").set_index("variant")
        tables[f"recorded, {hardware}"] = newest.reindex(VARIANTS)
    chosen = {place: rows[list(PUBLISHED)] for place, rows in tables.items()}
    table = pd.concat(chosen, names=["place", "variant"])
    table = table.rename(columns=PUBLISHED).astype(float)
    unmeasured = table.isna()
    table = table.map("{:.0f} s".format).mask(unmeasured, "")
    table["total"] = table["total"].mask(unmeasured["total"], "needs a GPU")
    return table


class Taught(NamedTuple):
    """The result of `teach`.

    seconds  seconds of training
    phases   {phase: seconds}
    right    (N,) bool: which test images the network gets right
    """

    seconds: float
    phases: dict
    right: np.ndarray


def teach(head_only, *, learning_rate, passes, images, seed=0):
    """Let an EfficientNet-Lite0 with ImageNet's weights learn clothes. Returns `Taught`.

    head_only      True: only the last layer learns
    learning_rate  learning rate of Adam; the best of three, found with another seed
    passes         number of passes over the images
    images         number of images to learn from, and to test on
    """
    form = {"optimizer": "adam", "update": "fused", "weight_decay": 0.0, "schedule": "constant"}
    form |= {"pretrained": True, "head_only": head_only, "learning_rate": learning_rate}
    config = TrainConfig(**form, batch=20, size=32, channels_last=True, phases="events")
    job = training("efficientnet-lite0", "fashion-mnist", config, limit=images)
    for layer in job.network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):  # keeps ImageNet's statistics, both ways
            layer.eval().train = _stay
    seconds, phases = 0.0, Counter()
    for number in range(passes):
        one_pass = replace(job.config, seed=seed + number)  # another order of the images
        history = fit(job.network, job.train, one_pass, device=job.device)
        seconds += history.seconds
        phases.update(history.epoch_phases[0])
    right = right_answers(job.network, job.test, device=job.device, size=32)
    return Taught(seconds, dict(phases), right)


def _stay(mode=True):
    """Stand in for `train` of a layer that is to stay in eval mode."""


def lead(first: Taught, second: Taught) -> Interval:
    """Return how many points more of the test images the first gets right than the second.

    The `Interval` is that of other test images.
    """
    return bootstrap_paired(100.0 * second.right, 100.0 * first.right)
