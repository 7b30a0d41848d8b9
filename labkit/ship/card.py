"""The deployment card: one page that says what is delivered and how well it is known; and a folder that runs alone."""

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
from labkit.export.operators import HEAVY
from labkit.files import write_text
from labkit.ledger.rows import Decision
from labkit.ledger.shown import shown
from labkit.ship.leaderboard import kind_of
from labkit.ship.order import DATASET, NOISE, REFERENCE, SHIFT, USD_PER_HOUR

PACKAGES = ("numpy", "onnxruntime")  # all that predict.py needs


def precisions(path):
    """[(node, operator, what its weights are stored in)] of the layers with weights of an ONNX file, in order."""
    graph = onnx.load(path).graph
    stored = {tensor.name: onnx.TensorProto.DataType.Name(tensor.data_type).lower() for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in stored:
            stored[node.output[0]] = stored[node.input[0]]
    layers = [node for node in graph.node if node.op_type in HEAVY]
    weights = [next(iter(node.input[1:]), "") for node in layers]
    return [(node.name, node.op_type, stored.get(name, "computed")) for node, name in zip(layers, weights, strict=True)]


def _facts_of(row, layers):
    """[(heading, text)] of a card for a `rows.Scored`, whose file has these `precisions`."""
    kinds = Counter(kind for _, _, kind in layers)
    spread = f"{shown(row.latency_p50_ms / 1e3, 's')} (p50), {shown(row.latency_p95_ms / 1e3, 's')} (p95)"
    share = f"p95 is {row.latency:.2f} [{row.latency_low:.2f}, {row.latency_high:.2f}] of that of {REFERENCE}"
    right = f"{100 * row.accuracy:.1f} % (95 %: {100 * row.accuracy_low:.1f} to {100 * row.accuracy_high:.1f} %)"
    before = "" if row.accuracy_originals is None else f"; {100 * row.accuracy_originals:.1f} % as they are"
    decided = ledger.find(Decision, run_key=row.run_key)
    return [
        *(("Decision", f"{each.text} It rests on {each.because}.") for each in decided),
        ("Task", "one of ten kinds of clothes for a grey picture of 28 x 28 pixels"),
        ("Data", f"{DATASET}: trained on training images, judged on changed copies of test images"),
        ("Accuracy", f"{right} of changed copies of test images{before} (seed {row.seed})"),
        ("Latency", f"{spread}, one picture per call, one thread; {share}"),
        ("Machine", kind_of(device.describe())),
        ("Size", f"{row.size_bytes / 1e3:,.1f} kB, sha256 {row.sha256}"),
        ("Engine", f"{row.engine}, {row.precision}"),
        ("Precision per layer", ", ".join(f"{count} in {kind}" for kind, count in kinds.items())),
        ("Cost", f"{row.cost_per_million_usd:.3g} USD per million single calls, at {USD_PER_HOUR:g} USD per hour"),
        ("Medal", f"{row.medal or 'none'}, score {row.points:.2f} [{row.points_low:.2f}, {row.points_high:.2f}]"),
        ("Limits", f"tried on pictures like those of {DATASET}, moved by up to {SHIFT} pixel, with noise of deviation "
         f"{NOISE} of 255; nothing is known of photographs, other sizes, or pictures turned round; it always answers "
         "one of its ten classes"),
        ("Run it again", f"labkit submit model.onnx --engine {row.engine}, at commit {(row.commit or 'unknown')[:12]}; "
         "without labkit: pip install -r requirements.txt, then python predict.py"),
    ]  # fmt: skip


def write_card(row: Any, path: str | Path, folder: str | Path) -> Path:
    """Write the card and all that is delivered into a folder; returns it.

    row   a `rows.Scored` with figures
    path  its ONNX file
    The folder holds model.onnx, predict.py, requirements.txt, images.npy and labels.json (ten test images), card.html
    and card.md. It needs neither labkit nor torch.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, folder / "model.onnx")
    layers = precisions(path)
    facts = _facts_of(row, layers)
    templates = Path(__file__).parent.parent / "templates"
    for page in ("card.html", "card.md"):
        template = jinja2.Template((templates / page).read_text(encoding="utf-8"), autoescape=True)
        write_text(folder / page, template.render(name=row.name, facts=facts, layers=layers))
    shutil.copyfile(templates / "predict.txt", folder / "predict.py")
    pinned = [f"{name}=={version(name)}" for name in PACKAGES]
    write_text(folder / "requirements.txt", "\n".join([f"# Python {sys.version.split()[0]}", *pinned]) + "\n")
    _write_examples(folder)
    return folder


def _write_examples(folder):
    """Ten test images as they come (uint8), how a network wants them, and what they show."""
    import numpy as np

    from labkit.data import load

    test = load(DATASET, "test", limit=10)
    np.save(folder / "images.npy", test.images.numpy())
    about = {"classes": test.classes, "mean": test.mean[0], "std": test.std[0], "labels": test.labels.tolist()}
    write_text(folder / "labels.json", json.dumps(about, indent=1) + "\n")
