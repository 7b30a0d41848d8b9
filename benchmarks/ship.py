"""The capstone against its targets: cheats caught, hostile submissions harmless, the same medal every time.

    python benchmarks/ship.py [--quick] [--only cheats|hostile|medals|busy|gold|lesson]

Full: about ten minutes on two quiet cores. Quick: under a minute on such a machine, with fewer scorings, and without
gold and the lesson.
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

import torch
from figures import Figures

from labkit import compress
from labkit.compress import Distillation
from labkit.data import load
from labkit.device import using_threads
from labkit.export import to_onnx
from labkit.files import root
from labkit.models.trained import trained
from labkit.quantize import static
from labkit.ship import FULL, QUICK, Plan, Submission, score
from labkit.train import TrainConfig, fit

sys.path.insert(0, str(root() / "tests"))
import hostile_onnx
import ship_cheats

KINDS = ("labels|answers of the test", "synchronisation|not with finished", "outside the timed|from memory",
         "answered in part|asked again", "per call|Single pictures|chooses its way", "same whatever")  # fmt: skip
TEST_IMAGES = root() / "data" / "fashion-mnist" / "t10k-images-idx3-ubyte.gz"
SLOW = ("function bomb", "endless loop", "100,000 nodes")  # which the ONNX gate waits a minute for
BUSY = "while True: pass"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer scorings, nothing trained for long")
    parser.add_argument("--only", choices=PARTS, help="one part")
    options, figures = parser.parse_args(), Figures()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for name, part in PARTS.items():
            if options.only == name or (options.only is None and not (options.quick and name in ("gold", "lesson"))):
                figures.part(name, part, Path(folder), options.quick)
    figures.exit()


def scored(made, plan, **settings):
    """{name: (Score, what its reason must hold)}."""
    found = score([Submission(path, engine, name) for name, (path, engine, _) in made.items()], plan=plan, **settings)
    return {name: (each, made[name][2]) for name, each in zip(made, found, strict=True)}


def cheats(figures, folder, quick):
    """Each cheat without a medal and with the right reason; "its own clock" is no use, and so no reason."""
    found = scored(ship_cheats.cheats(folder), Plan(images=250, rounds=140), make_s=30)
    reasons = {name: " ".join(each.reasons) for name, (each, says) in found.items() if says}
    right = [bool(re.search(found[name][1], reason)) and found[name][0].refused for name, reason in reasons.items()]
    kinds = sum(any(re.search(kind, reason) for reason in reasons.values()) for kind in KINDS)
    figures.add("cheats", len(reasons), at_least=12)
    figures.add("cheats_caught_with_the_reason", sum(right), at_least=len(reasons))
    figures.add("kinds_of_cheats_caught", kinds, at_least=6)
    figures.add("medals_for_cheats", sum(each.medal is not None for each, _ in found.values()), at_most=0)
    times = {name: found[name][0].latency for name in ("its own clock", "pictures that it remembers")}
    print("#     " + "; ".join(f"{name}: {latency}" for name, latency in times.items()))
    plain, remembering = times.values()
    figures.add("p95_share_gained_by_remembering", plain.median / remembering.median, at_most=1.5)


def hostile(figures, folder, quick):
    """Sources that do harm, and the files of the ONNX gate's tests."""
    made = ship_cheats.hostile(folder, test_images=TEST_IMAGES)
    for number, (name, each) in enumerate(hostile_onnx.FILES.items()):
        if name not in SLOW and not (quick and number % 4):
            (folder / f"file{number}").mkdir()
            made[name] = (each.make(folder / f"file{number}"), "onnxruntime", "")
    found = scored(made, Plan(images=20, rounds=20), make_s=2 if quick else 5)
    harmed = (folder / "out").exists() or (folder / "kept").read_text(encoding="utf-8") != "kept"
    figures.add("hostile_submissions", len(found), at_least=20)
    figures.add("hostile_refused", sum(each.refused for each, _ in found.values()), at_least=len(found))
    figures.add("hostile_false_medals", sum(each.medal is not None for each, _ in found.values()), at_most=0)
    figures.add("hostile_files_changed_outside", harmed, at_most=0)


def recipe(folder, *, share, images, epochs, name):
    """A file by all three techniques: channels, healing by distillation, INT8."""
    whole, train = trained()[0].to(memory_format=torch.channels_last), load("fashion-mnist", "train", limit=images)
    example = torch.zeros(1, 1, 28, 28)
    small = compress.without_channels(whole, example, share, scope="layer").train()
    settings = {"epochs": epochs, "batch": 32, "learning_rate": 3e-3, "weight_decay": 0.0, "channels_last": True}
    with using_threads(1):
        teacher = Distillation(copy.deepcopy(whole), remember=True)
        fit(small, train, TrainConfig(**settings), device="cpu", loss=teacher)
    path = to_onnx(small.eval(), example, folder / f"{name}.onnx")
    return static(path, folder / f"{name}-int8.onnx", train.subset(256), recipe="onnxruntime")


def honest(folder):
    """The file that the lesson hands in, made once."""
    path = folder / "honest-int8.onnx"
    return path if path.exists() else recipe(folder, share=0.5, images=1024, epochs=2, name="honest")


def medals(figures, folder, quick):
    """The honest file again and again: other pictures each time, the same medal."""
    tries = [one(honest(folder), QUICK) for _ in range(3 if quick else 10)]
    print("#     " + "; ".join(f"{each.medal} {each.points}" for each in tries))
    figures.add("scorings_of_the_honest_file", len(tries))
    figures.add("different_medals", len({each.medal for each in tries}), at_most=1)
    figures.add("honest_at_least_silver", sum(each.medal in ("silver", "gold") for each in tries), at_least=len(tries))


def one(path, plan):
    return score([Submission(path, "onnxruntime", "honest")], plan=plan)[0]


def busy(figures, folder, quick):
    """The same file on the machine as it is, and with as many endless loops as it has cores."""
    plan = QUICK if quick else Plan(images=500, rounds=800)
    quiet = one(honest(folder), plan)
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count())]
    try:
        loud = one(honest(folder), plan)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    overlap = quiet.latency.low <= loud.latency.high and loud.latency.low <= quiet.latency.high
    said = "too noisy" in " ".join((*quiet.reasons, *loud.reasons)) or quiet.noisy or loud.noisy
    print(f"#     quiet {quiet.latency}, busy {loud.latency}; noisy: {quiet.noisy}, {loud.noisy}")
    figures.add("intervals_overlap_or_too_noisy", overlap or said, at_least=1)


def gold(figures, folder, quick):
    """Gold is hard, and can be reached: seven tenths of the channels gone, healed for longer."""
    found = one(recipe(folder, share=0.7, images=4096, epochs=6, name="gold"), FULL)
    print(f"#     {found}")
    figures.add("gold_reached", found.medal == "gold", at_least=1)


def lesson(figures, folder, quick):
    """How long lesson 19 takes in the profile quick."""
    figures.lesson("19", at_most=45)


PARTS = {"cheats": cheats, "hostile": hostile, "medals": medals, "busy": busy, "gold": gold, "lesson": lesson}

if __name__ == "__main__":
    main()
