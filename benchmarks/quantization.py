"""INT8 on networks of today, beside the tools people use: what is lost, what runs in integers, how long it takes.

About 15 minutes; `--quick` under one, with the small networks. Each network is quantized plainly, and by `--keep auto`
(`labkit.quantize.automatic`), which leaves in float what it takes to hold the limit; beside them stand, on the same
calibration data, `onnxruntime.quantization`, and NVIDIA's modelopt and NNCF where they are installed. All answers are
those of the file as it is written. The weights are trained here for a few seconds, but those of EfficientNet-Lite0 and
MiniLM, which are real: so other answers count, not the accuracy of a published network.
"""

import argparse
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from deploy_inputs import crops
from figures import Figures
from quantization_peers import PEERS, run

from labkit import export, models, text
from labkit.data import load
from labkit.errors import LabError
from labkit.models import minilm
from labkit.quantize import Again, Calibration, Limit, automatic, in_int8, kept, logits, observe, prepared
from labkit.quantize.numbers import sqnr_db

POINTS, LEAST_IN_INT8 = 0.5, 80  # at most so many points of other answers, with at least so many % in INT8
AGREEMENT = 99  # % of nearest neighbours kept, for sentence vectors
SEEN, JUDGED, TESTED = 128, 512, 1000


@dataclass(frozen=True)
class Case:
    """A network as a file, and three parts of its data that share no example.

    seen    what ranges are observed on
    judged  what `automatic` judges its choice on
    tested  what the figures are measured on
    vectors the outputs are vectors of sentences, and no classes
    """

    name: str
    path: Path
    seen: Calibration
    judged: Calibration
    tested: Calibration
    vectors: bool = False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the small networks: under a minute")
    parser.add_argument("--only", help="one network: " + ", ".join(CASES))
    options, figures = parser.parse_args(), Figures()
    warnings.filterwarnings("ignore")
    for name, make in CASES.items():
        if options.only == name or (options.only is None and (name in QUICK or not options.quick)):
            with tempfile.TemporaryDirectory() as folder:
                figures.part(name, one, make, name, Path(folder), options.quick)
    figures.exit()


def one(figures, make, name, folder, quick):
    """All figures of one network."""
    case = make(name, folder, quick)
    exact, model = logits(case.path, case.tested), prepared(case.path)
    seen = observe(model, case.seen)
    told(figures, case, "plain", exact, logits(in_int8(model, seen), case.tested))
    for peer in PEERS:
        try:
            seconds = run(peer, case.path, folder / f"{peer}.onnx", case.seen)
        except Exception as error:  # a peer that fails is a line, and not the end
            print(f"# {name} {peer}: {' '.join(str(error).split())[:200]}")
            continue
        told(figures, case, peer, exact, logits(folder / f"{peer}.onnx", case.tested))
        figures.add(f"{name}_{peer}_seconds", seconds, unit="s")
    ours(figures, case, exact, folder)


def ours(figures, case, exact, folder):
    """What `--keep auto` makes of it: its targets are those of the command."""
    begin = time.perf_counter()
    limit = Limit(points=100, db=25) if case.vectors else Limit(points=POINTS)
    try:
        path = automatic(case.path, folder / "auto.onnx", case.seen, case.judged, limit=limit)
    except LabError as error:
        print(f"# {case.name}: {error.what}")
        figures.add(f"{case.name}_auto_in_int8", 0, at_least=LEAST_IN_INT8, unit="%")
        return
    seconds = time.perf_counter() - begin
    share = (100 - AGREEMENT if case.vectors else POINTS) / 100
    slack = 200 * np.sqrt(share * (1 - share) / case.tested.count)  # two standard errors of a count of so many
    target = {"at_least": AGREEMENT - slack} if case.vectors else {"at_most": POINTS + slack}
    told(figures, case, "auto", exact, logits(path, case.tested), **target)
    reasons, share = kept(path)
    figures.add(f"{case.name}_auto_in_int8", 100 * share, at_least=LEAST_IN_INT8, unit="%")
    figures.add(f"{case.name}_auto_nodes_in_float", len(reasons))
    figures.add(f"{case.name}_auto_size", 100 * path.stat().st_size / case.path.stat().st_size, unit="%")
    figures.add(f"{case.name}_auto_seconds", seconds, unit="s")


def told(figures, case, way, exact, found, **target):
    """SQNR, and other answers in points; or nearest neighbours kept in per cent."""
    figures.add(f"{case.name}_{way}_sqnr", sqnr_db(exact, found), unit="dB")
    if case.vectors:
        same = text.agreement(torch.from_numpy(exact), torch.from_numpy(found))
        figures.add(f"{case.name}_{way}_same_nearest", 100 * same.mean(), unit="%", **target)
    else:
        moved = 100 * np.mean(exact.argmax(-1) != found.argmax(-1))
        figures.add(f"{case.name}_{way}_other_answers", moved, unit="points", **target)


def trained(name, folder, quick):
    """A network of the course or of torchvision, trained for some seconds on Fashion-MNIST."""
    train, test = load("fashion-mnist", "train", limit=2000 if quick else 8000), load("fashion-mnist", "test")
    torch.manual_seed(0)
    side, channels = (28, 1) if name in models.names() else (64, 3)
    network = models.build(name)[0] if channels == 1 else torchvision_network(name)
    fit(network, train, side, channels)
    path = export.to_onnx(network.eval(), torch.zeros(2, channels, side, side), folder / "fp32.onnx")
    others = load("fashion-mnist", "train").subset(SEEN + JUDGED, seed=1)
    images = pictures(others, side, channels)
    tested = pictures(test.subset(TESTED), side, channels)
    return Case(name, path, images.first(SEEN), images.after(SEEN), tested)


def torchvision_network(name):
    import torchvision

    network = getattr(torchvision.models, name)(num_classes=10)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 0.1  # a few seconds are too short for slower averages
    return network


def fit(network, train, side, channels):
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    for images, labels in train.batches(64, seed=0, size=side):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images.expand(-1, channels, -1, -1)), labels).backward()
        optimizer.step()


def pictures(images, side, channels):
    """A `Calibration` with images of this size; grey as colour where there are three channels."""
    parts = images.batches(32, seed=0, size=side)
    return Calibration(Again(lambda: (np.repeat(part.numpy(), channels, 1) for part, _ in parts)), "fashion-mnist")


def lite0(name, folder, quick):
    """EfficientNet-Lite0 with its ImageNet weights, on pieces of one photograph."""
    network, _ = models.build(name)
    path = export.to_onnx(network.eval(), torch.zeros(2, 3, 224, 224), folder / "fp32.onnx")
    parts = [
        Again(lambda seed=seed, n=n: np.split(crops(n, 224, seed), n // 16)) for seed, n in enumerate((64, 96, 96))
    ]
    return Case(name, path, *(Calibration(part, "pieces of a photograph") for part in parts))


def sentences(name, folder, quick):
    """MiniLM with its real weights, on the paragraphs of the course."""
    rows = minilm.tokens([each.text for each in text.paragraphs()], longest=32)
    tokens = text.padded(rows, 32).numpy()[np.random.default_rng(0).permutation(len(rows))]
    path = export.to_onnx(models.build(name)[0].eval(), torch.from_numpy(tokens[:2]), folder / "fp32.onnx")
    parts = (tokens[:96], tokens[96:224], tokens[224:624])
    held = [Calibration(tuple(np.array_split(part, len(part) // 32)), "paragraphs of the course") for part in parts]
    return Case(name, path, *held, vectors=True)


CASES = dict.fromkeys(("cnn-medium", "mobilenet-mini", "shufflenet-mini", "resnet18", "vgg-medium"), trained)
CASES |= dict.fromkeys(("mobilenet_v3_small", "shufflenet_v2_x0_5"), trained)
CASES |= {"efficientnet-lite0": lite0, "minilm": sentences}
QUICK = ("cnn-medium", "mobilenet-mini")

if __name__ == "__main__":
    main()
