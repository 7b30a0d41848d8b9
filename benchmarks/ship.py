"""The capstone against its targets: cheats caught, hostile files refused, the same medal every
time.

    python benchmarks/ship.py [--quick] [--only cheats|hostile|medals|busy|gold|lesson]

Full: about ten minutes on two quiet cores. Quick: under a minute on such a machine, with fewer
scorings, and without gold and the lesson.
"""

import argparse
import copy
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import onnx
import torch
from figures import Figures

from labkit import compress
from labkit.capstone.exam import FULL, QUICK, ExamSize
from labkit.capstone.judge import score
from labkit.capstone.order import Submission
from labkit.compress import Distillation
from labkit.data import load
from labkit.device import using_threads
from labkit.export import to_onnx
from labkit.files import root
from labkit.methods import Loss
from labkit.models.trained import trained
from labkit.quantize import static
from labkit.train import TrainConfig, fit

sys.path.insert(0, str(root() / "tests"))
import ship_cheats

BUSY = "while True: pass"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer scorings, nothing trained for long"
    )
    parser.add_argument("--only", choices=PARTS, help="one part")
    options, figures = parser.parse_args(), Figures()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for name, part in PARTS.items():
            if options.only == name or (
                options.only is None and not (options.quick and name in ("gold", "lesson"))
            ):
                figures.part(name, part, Path(folder), options.quick)
    figures.exit()


def refused(figures, folder, kind, files):
    """Each file without a medal and with the right reason."""
    submissions = [
        Submission(path, name=name) for name, path in ship_cheats.make_all(files, folder).items()
    ]
    refused_with_the_reason = 0
    medals_given = 0
    for result in score(submissions, size=ExamSize(images=250, rounds=140)):
        reason, _ = files[result.name]
        if result.refused and re.search(reason, result.reasons[0]):
            refused_with_the_reason += 1
        else:
            print(f"#     {result}")
        medals_given += result.medal is not None
    figures.add(f"{kind}_refused_with_the_reason", refused_with_the_reason, at_least=len(files))
    figures.add(f"medals_for_{kind}", medals_given, at_most=0)


def cheats(figures, folder, quick):
    """Files that look better than they are."""
    refused(figures, folder, "cheats", ship_cheats.CHEATS)


def hostile(figures, folder, quick):
    """Files that would fill the memory, run for ever or read other files; the ONNX gate's own
    are in deploy.py.
    """
    refused(figures, folder, "hostile_files", ship_cheats.HOSTILE)


def recipe(folder, *, share, images, epochs, name, rank=0):
    """A file by channels, thin layers of a rank, healing by distillation, and INT8."""
    whole, train = (
        trained()[0].to(memory_format=torch.channels_last),
        load("fashion-mnist", "train", limit=images),
    )
    example = torch.zeros(1, 1, 28, 28)
    small = compress.without_channels(whole, example, share, scope="layer")
    if rank:
        position = [isinstance(layer, torch.nn.Linear) for layer in small].index(True)
        small[position] = thin(small[position], rank)
    settings = {
        "epochs": epochs,
        "batch": 32,
        "learning_rate": 3e-3,
        "weight_decay": 0.0,
        "channels_last": True,
    }
    with using_threads(1):
        teacher = Distillation(copy.deepcopy(whole), remember=True)
        fit(
            small.train(),
            train,
            TrainConfig(**settings),
            device="cpu",
            hooks={"loss": Loss(teacher)},
        )
    path = to_onnx(small.eval(), example, folder / f"{name}.onnx")
    return without_notes(
        static(path, folder / f"{name}-int8.onnx", train.subset(256), recipe="onnxruntime")
    )


def without_notes(path):
    """The same file without the exporter's notes, as lesson 20 hands it in: they count as bytes."""
    model = onnx.load(path)
    for part in (*model.graph.node, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]
    del model.graph.value_info[:]
    onnx.save(model, path)
    return path


def thin(layer, rank):
    """A linear layer without bias as two thin ones."""
    U, S, V = torch.linalg.svd(layer.weight.detach(), full_matrices=False)
    first, second = (
        torch.nn.Linear(V.shape[1], rank, bias=False),
        torch.nn.Linear(rank, len(U), bias=False),
    )
    first.weight.data, second.weight.data = (
        (S[:rank, None] * V[:rank]).contiguous(),
        U[:, :rank].contiguous(),
    )
    return torch.nn.Sequential(first, second)


def honest(folder):
    """The file that the lesson hands in, made once."""
    path = folder / "honest-int8.onnx"
    return (
        path if path.exists() else recipe(folder, share=0.5, images=1024, epochs=2, name="honest")
    )


def medals(figures, folder, quick):
    """The honest file again and again: other pictures each time, the same medal."""
    results = [one(honest(folder), QUICK) for _ in range(3 if quick else 10)]
    print("#     " + "; ".join(f"{result.medal} {result.points}" for result in results))
    figures.add("different_medals", len({result.medal for result in results}), at_most=1)
    silver_or_gold = sum(result.medal in ("silver", "gold") for result in results)
    figures.add("honest_at_least_silver", silver_or_gold, at_least=len(results))


def one(path, size):
    return score([Submission(path)], size=size)[0]


def busy(figures, folder, quick):
    """The same file on the machine as it is, and with as many endless loops as it has cores."""
    size = QUICK if quick else ExamSize(images=500, rounds=800)
    quiet = one(honest(folder), size)
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count())]
    try:
        loud = one(honest(folder), size)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    overlap = quiet.latency.low <= loud.latency.high and loud.latency.low <= quiet.latency.high
    said = "too noisy" in " ".join((*quiet.reasons, *loud.reasons)) or quiet.noisy or loud.noisy
    print(f"#     quiet {quiet.latency}, busy {loud.latency}; noisy: {quiet.noisy}, {loud.noisy}")
    figures.add("intervals_overlap_or_too_noisy", overlap or said, at_least=1)


def gold(figures, folder, quick):
    """Gold is hard, and can be reached: seven tenths of the channels gone, a thin layer, healed
    for longer.
    """
    result = one(recipe(folder, share=0.7, rank=32, images=8192, epochs=6, name="gold"), FULL)
    print(f"#     {result}")
    figures.add("gold_reached", result.medal == "gold", at_least=1)


def lesson(figures, folder, quick):
    """How long lesson 20 takes in the profile quick."""
    figures.lesson("20", at_most=30)


PARTS = {
    "cheats": cheats,
    "hostile": hostile,
    "medals": medals,
    "busy": busy,
    "gold": gold,
    "lesson": lesson,
}

if __name__ == "__main__":
    main()
