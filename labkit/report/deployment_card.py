"""Write the deployment card of a network: what is delivered, and how well it was tested.

A card describes a network that a reader has handed in for lesson 20. It lies in a folder with the
network and a program that runs it without labkit.
"""

import json
import shutil
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
import onnx

from labkit import device, ledger
from labkit.capstone.exam import NOISE, SHIFT
from labkit.capstone.order import DATASET, REFERENCE, USD_PER_HOUR
from labkit.errors import LabError
from labkit.export.operators import HEAVY
from labkit.files import atomic_folder, write_text
from labkit.format import shown
from labkit.ledger.rows import Decision
from labkit.report.leaderboard import kind_of

DELIVERED = {
    "model.onnx",
    "predict.py",
    "requirements.txt",
    "images.npy",
    "labels.json",
    "card.html",
    "card.md",
}
PACKAGES = ("numpy", "onnxruntime")  # all that predict.py needs
LIMITS = (
    f"tried on pictures like those of {DATASET}, moved by up to {SHIFT} pixel, with noise of "
    f"deviation {NOISE} of 255; "
    "nothing is known of photographs, other sizes, or pictures turned round; it always answers "
    "one of its ten classes"
)


def precisions(path):
    """List the number formats of the weights in an ONNX file, layer by layer.

    Layers are convolutions and matrix products.

    returns  list of (name of the node, operator, format), in the order of the file. The format is
             "int8" for example, or "computed" for weights that are not stored in the file
    """
    graph = onnx.load(path).graph
    stored = {
        tensor.name: onnx.TensorProto.DataType.Name(tensor.data_type).lower()
        for tensor in graph.initializer
    }
    layers = []
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in stored:
            stored[node.output[0]] = stored[node.input[0]]
        if node.op_type in HEAVY:
            weight = node.input[1] if len(node.input) > 1 else ""
            layers.append((node.name, node.op_type, stored.get(weight, "computed")))
    return layers


def _facts_of(row, layers):
    """Return the lines of a card as a list of (heading, text).

    row     a `rows.Scored` with all its numbers
    layers  what `precisions` returned for its file
    """
    facts = []
    # What it is for.
    for decision in ledger.find(Decision, run_key=row.run_key):
        facts.append(("Decision", f"{decision.text} It rests on {decision.because}."))
    facts.append(("Task", "one of ten kinds of clothes for a grey picture of 28 x 28 pixels"))
    facts.append(
        ("Data", f"{DATASET}: trained on training images, judged on changed copies of test images")
    )
    # How well it does.
    facts.append(("Accuracy", _accuracy_of(row)))
    facts.append(("Latency", _latency_of(row)))
    facts.append(("Machine", kind_of(device.describe())))
    # What is delivered.
    facts.append(("Size", f"{row.size_bytes / 1e3:,.1f} kB, sha256 {row.sha256}"))
    facts.append(("Engine", f"{row.engine}, {row.precision}"))
    counts = Counter(stored_in for _, _, stored_in in layers)
    facts.append(
        (
            "Precision per layer",
            ", ".join(f"{count} in {stored_in}" for stored_in, count in counts.items()),
        )
    )
    # What it costs, what it is worth, and where it ends.
    cost = f"{row.cost_per_million_usd:.3g} USD per million single calls"
    facts.append(("Cost", f"{cost}, at {USD_PER_HOUR:g} USD per hour"))
    points = f"score {row.points:.2f} [{row.points_low:.2f}, {row.points_high:.2f}]"
    facts.append(("Medal", f"{row.medal or 'none'}, {points}"))
    facts.append(("Limits", LIMITS))
    commit = (row.commit or "unknown")[:12]
    command = f"labkit submit model.onnx --engine {row.engine}, at commit {commit}"
    without_labkit = "pip install -r requirements.txt, then python predict.py"
    facts.append(("Run it again", f"{command}; without labkit: {without_labkit}"))
    return facts


def _accuracy_of(row):
    """Return the accuracy of a `rows.Scored` with its interval, in words."""
    interval = f"95 %: {100 * row.accuracy_low:.1f} to {100 * row.accuracy_high:.1f} %"
    text = f"{100 * row.accuracy:.1f} % ({interval}) of changed copies of test images"
    if row.accuracy_originals is not None:
        text += f"; {100 * row.accuracy_originals:.1f} % as they are"
    return f"{text} (seed {row.seed})"


def _latency_of(row):
    """Return the latency of a `rows.Scored`, and its ratio to the reference's latency, in words."""
    spread = (
        f"{shown(row.latency_p50_ms / 1e3, 's')} (p50), "
        f"{shown(row.latency_p95_ms / 1e3, 's')} (p95)"
    )
    share = (
        f"{row.latency:.2f} [{row.latency_low:.2f}, {row.latency_high:.2f}] of that of {REFERENCE}"
    )
    return f"{spread}, one picture per call, one thread; p95 without the floor of a call is {share}"


def write_card(row: Any, path: str | Path, folder: str | Path) -> Path:
    """Write the card of a network that was handed in, and all that is delivered, into a folder.

    The folder holds model.onnx, predict.py, requirements.txt, images.npy and labels.json (ten test
    images), card.html and card.md. Running it needs neither labkit nor torch.

    row      a `rows.Scored` with all its numbers
    path     ONNX file of the network
    folder   a new folder, an empty one, or one with an earlier card and no other files. An earlier
             card is replaced
    returns  the folder
    Raises   LabError for a folder with other files
    """
    folder = Path(folder)
    _require_no_other_files(folder)
    templates = Path(__file__).parent.parent / "templates"
    with atomic_folder(folder) as new_folder:
        # The network and the pages about it.
        shutil.copyfile(path, new_folder / "model.onnx")
        layers = precisions(path)
        facts = _facts_of(row, layers)
        for page in ("card.html", "card.md"):
            template = jinja2.Template(
                (templates / page).read_text(encoding="utf-8"), autoescape=True
            )
            write_text(
                new_folder / page, template.render(name=row.name, facts=facts, layers=layers)
            )

        # A program that runs it, the packages that it needs, and ten images.
        shutil.copyfile(templates / "predict.txt", new_folder / "predict.py")
        requirements = [f"# Python {sys.version.split()[0]}"]
        for package in PACKAGES:
            requirements.append(f"{package}=={version(package)}")
        write_text(new_folder / "requirements.txt", "\n".join(requirements) + "\n")
        _write_examples(new_folder)
    return folder


def _require_no_other_files(folder):
    """Raise LabError if a folder holds files that do not belong to a card: they would be lost.

    folder  a path, which need not exist
    """
    names = set()
    if folder.is_dir():
        names = {file.name for file in folder.iterdir()}
    elif folder.exists():
        names = {folder.name}
    foreign_files = sorted(names - DELIVERED)
    if foreign_files or (names and "card.html" not in names):
        raise LabError(
            "A card goes into a folder of its own.",
            expected="a new folder, or one with an earlier card and nothing else",
            found=f"{folder} with {', '.join(foreign_files or sorted(names))[:200]}",
            fix="name another folder, or move those files away",
        )


def _write_examples(folder):
    """Write ten test images into a folder, with all that a program needs to use them.

    images.npy holds the images as bytes. labels.json holds the names of the classes, the mean and
    the deviation by which a network wants the images scaled, and the labels.
    """
    import numpy as np

    from labkit.data import load

    test = load(DATASET, "test", limit=10)
    np.save(folder / "images.npy", test.images.numpy())
    description = {
        "classes": test.classes,
        "mean": test.mean[0],
        "std": test.std[0],
        "labels": test.labels.tolist(),
    }
    write_text(folder / "labels.json", json.dumps(description, indent=1) + "\n")
