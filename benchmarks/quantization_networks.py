"""The networks of `quantization.py`, each as a file with three parts of its data.

Their weights are trained here for one or two minutes at most, but those of the VGG, which comes
trained, and those of MiniLM, which are real. So other answers count, not the accuracy of a
published network.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from labkit import export, models, text
from labkit.data import load
from labkit.models import minilm
from labkit.models import trained as ready
from labkit.quantize import Calibration, LazyBatches

SEEN, JUDGED, TESTED = 128, 2000, 4000
TOKENS = 32  # of a paragraph
READY = ("vgg-medium",)  # comes trained
IMAGES = {"resnet18": 1500, "mobilenet_v3_small": 8000, "shufflenet_v2_x0_5": 8000}  # to train on


@dataclass(frozen=True)
class Case:
    """A network as a file, and three parts of its data that share no example.

    seen    what ranges are observed on
    judged  what `automatic` judges its choice on: by right answers where they are known
    tested  what the figures are measured on
    vectors the outputs are vectors of sentences, and no classes
    axis    of the first output, that holds the classes
    """

    name: str
    path: Path
    seen: Calibration
    judged: Calibration
    tested: Calibration
    vectors: bool = False
    axis: int = 1


class RowByRow(nn.Module):
    """A GRU that reads an image row by row: (N, 1, 28, 28) -> (N, 10)."""

    def __init__(self, width=128):
        super().__init__()
        self.rows, self.head = nn.GRU(28, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, images):
        return self.head(self.rows(images.flatten(1, 2))[0][:, -1])


def vision_transformer():
    """4 layers of width 96 on 16 patches: (N, 3, 32, 32) -> (N, 10)."""
    import torchvision

    sizes = {
        "image_size": 32,
        "patch_size": 8,
        "num_layers": 4,
        "num_heads": 4,
        "hidden_dim": 96,
        "mlp_dim": 384,
    }
    return torchvision.models.VisionTransformer(**sizes, num_classes=10)


def torchvision_network(name):
    import torchvision

    network = getattr(torchvision.models, name)(num_classes=10)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 0.1  # a few seconds are too short for slower averages
    return network


def made(name):
    """(a network for images, its channels, pixels a side)."""
    if name in models.names():
        return models.build(name)[0], 1, 28
    if name == "gru":
        return RowByRow(), 1, 28
    return (vision_transformer(), 3, 32) if name == "vit" else (torchvision_network(name), 3, 64)


def trained(name, folder, quick):
    """A network for images, trained on Fashion-MNIST."""
    torch.manual_seed(0)
    network, channels, side = made(name)
    if name in READY:
        network, _ = ready.trained(name)
    else:
        images = load("fashion-mnist", "train", limit=2000 if quick else IMAGES.get(name, 5000))
        fit_images(network, images, channels, side)
    path = export.to_onnx(
        network.eval(), torch.zeros(2, channels, side, side), folder / "fp32.onnx"
    )
    new = pictures(load("fashion-mnist", "test").subset(SEEN + JUDGED + TESTED), side, channels)
    others = new.after(SEEN)  # the network was trained on none of them
    return Case(name, path, new.first(SEEN), others.first(JUDGED), others.after(JUDGED))


def fit_images(network, images, channels, side):
    """Train for one epoch; the rate ends at 0, so that the averages of batch norm fit the
    weights.
    """
    form = {"memory_format": torch.channels_last}  # several times faster with grouped convolutions
    network.to(**form)
    batches = list(images.batches(32, seed=0, size=side))
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=len(batches))
    for part, labels in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            network(part.expand(-1, channels, -1, -1).contiguous(**form)), labels
        ).backward()
        optimizer.step()
        schedule.step()


def pictures(images, side, channels):
    """A `Calibration` with images of this size; grey as colour where there are three channels."""
    grey = Calibration.of(images, count=len(images), size=side)
    batches = LazyBatches(lambda: (np.repeat(part, channels, 1) for part in grey.batches))
    return Calibration(batches, grey.source, grey.labels)


def sentences(name, folder, quick):
    """MiniLM with its real weights, on the paragraphs of the course."""
    tokens, labels = paragraphs()
    path = export.to_onnx(
        models.build(name)[0].eval(), torch.from_numpy(tokens[:2]), folder / "fp32.onnx"
    )
    return Case(
        name, path, *read(tokens, labels, slice(96), slice(96, 224), slice(224, 624)), vectors=True
    )


def paragraphs():
    """((N, TOKENS) int64, (N,) 1 for the second half of the lessons): the course's paragraphs in
    random order.
    """
    held = text.paragraphs()
    rows = minilm.tokens([each.text for each in held], longest=TOKENS)
    order = np.random.default_rng(0).permutation(len(rows))
    return text.padded(rows, TOKENS).numpy()[order], np.array(
        [each.lesson >= "12" for each in held], np.int64
    )[order]


def read(tokens, labels, *parts):
    """Each part as a `Calibration` of batches of about 32."""
    found = [(tokens[part], labels[part]) for part in parts]
    source = "paragraphs of the course"
    return [
        Calibration(tuple(np.array_split(some, len(some) // 32)), source, right)
        for some, right in found
    ]


CASES = dict.fromkeys(("cnn-medium", "gru", "mobilenet-mini", "shufflenet-mini", "vit"), trained)
CASES |= dict.fromkeys(
    ("resnet18", "vgg-medium", "mobilenet_v3_small", "shufflenet_v2_x0_5"), trained
)
CASES |= {"minilm": sentences}
