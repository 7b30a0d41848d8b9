"""Deployment against its targets: do the files compute the same, how fast are the engines, what
does TensorRT make?

About 40 minutes; `--quick` under one. Ratios of speed are interleaved, but only a quiet machine
shows their true size. INT8 is as fast as the CPU's integer instructions: the targets are for one
with VNNI; a line says whether it has them.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from deploy_inputs import calibration, held_out
from figures import Figures

from labkit import device as devices
from labkit import engines, export, models, quantize
from labkit.engines.tensorrt import build as engine_of
from labkit.engines.tensorrt import compared
from labkit.errors import LabError, Unavailable
from labkit.export.parity import agreement
from labkit.measure import Plan, compare
from labkit.measure.stats import median_of_rounds

QUICK = ("cnn-small",)
# int8: of a BERT about .98, of convolutions more
COSINE = {"fp32": 0.99999, "fp16": 0.999, "int8": 0.97}
RACES = {"resnet18": 4, "encoder-small": 3}  # the best engine in INT8 against eager fp32, batch 8
OWN = 2.5  # an engine in INT8 against itself in fp32
FASTEST = {"onnxruntime": "onnxruntime", "openvino": "tensorrt"}  # recipe of the INT8 file
FASTEST_WITHOUT_VNNI = dict.fromkeys(FASTEST, "onnxruntime")
UNEQUAL = 0.5  # INT8 answers differ; that they are good ones is what `parity` shows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small networks, short measurements: under a minute"
    )
    parser.add_argument("--only", help="one part: " + ", ".join(PARTS))
    options, figures = parser.parse_args(), Figures()
    warnings.filterwarnings("ignore")
    for name, part in PARTS.items():
        if options.only in (None, name):
            figures.part(name, part, options.quick)
    figures.exit()


def parity(figures, quick):
    """Every network in every precision, run by ONNX Runtime, against torch in fp32, on images
    the size it wants.
    """
    for name in QUICK if quick else models.names():
        with tempfile.TemporaryDirectory() as folder:
            network, seen = build(name), calibration(name)
            inputs = held_out(name)
            with torch.inference_mode():
                wanted = [network(batch) for batch in inputs]
            for precision, path in files(name, network, seen, Path(folder)).items():
                found = [answers(path, batch) for batch in inputs]
                row = agreement(list(zip(wanted, found, strict=True)))
                target = COSINE[precision.split("-")[0]]
                figures.add(f"cosine_{name}_{precision}", row.cosine, at_least=target)
                figures.add(f"top1_{name}_{precision}", 100 * row.top1, unit="%")


def build(name):
    """The network with batch norms that have seen data: with fresh ones all answers of a deep
    network are alike.
    """
    torch.manual_seed(0)
    network, _ = models.build(name)
    norms = [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    if norms and name != "efficientnet-lite0":  # whose norms are trained
        for norm in norms:
            norm.momentum = None  # the plain mean of all batches
        with torch.no_grad():
            network.train()(torch.from_numpy(calibration(name).batches[0][:32]))
    return network.eval()


def files(name, network, seen, folder):
    """{precision: path of the ONNX file}; int8 in both recipes."""
    plain = export.to_onnx(network, models.example(name, 2), folder / "fp32.onnx")
    ranges = quantize.observe(plain, seen)
    return {
        "fp32": plain,
        "fp16": quantize.to_fp16(plain, folder / "fp16.onnx"),
        **{
            f"int8-{recipe}": quantize.static(
                plain, folder / f"{recipe}.onnx", ranges, recipe=recipe
            )
            for recipe in quantize.RECIPES
        },
    }


def answers(path, batch):
    """As the file says: optimised graphs of mixed precision have been seen to compute something
    else.
    """
    return export.as_written(path)(batch)


def engine_race(figures, quick):
    """Every engine of the CPU on the same batch of 8, in turn, against eager torch in fp32."""
    figures.add("has_vnni", float(has_vnni()))
    for name, target in {"cnn-medium": 1}.items() if quick else RACES.items():
        with tempfile.TemporaryDirectory() as folder:
            race(figures, name, target, quick=quick, folder=Path(folder))


def race(figures, name, target, *, quick, folder):
    network, batch = build(name), models.example(name, 8)
    if batch.is_floating_point():
        batch = held_out(name)[1][:1].expand(8, *batch.shape[1:]) + 0.01 * batch
    arms = contestants(name, network, batch, folder, compiled=not quick)
    plan = Plan(seconds=3 if quick else 120)
    result = compare(arms, tolerance=UNEQUAL, inputs=[batch], device="cpu", plan=plan)
    for row in result.rows[:-1]:
        figures.add(f"{name}_{row.arm}_over_eager", row.median, unit="x")
        print(
            f"#     {row.low:.3g} to {row.high:.3g}, "
            f"{'noisy: ' + row.noise if row.noisy else 'quiet'}"
        )
    best = max(result.rows[:-1], key=lambda row: row.low)
    figures.add(f"{name}_best_over_eager", best.median, at_least=target, unit="x")
    own = {engine: own_gain(result, engine) for engine in FASTEST if f"{engine}_int8" in arms}
    for engine, (median, low, high) in own.items():
        figures.add(f"{name}_{engine}_int8_over_own_fp32", median, unit="x")
        print(f"#     {low:.3g} to {high:.3g}")
    if own:
        figures.add(
            f"{name}_int8_over_own_fp32",
            max(own.values())[0],
            at_least=1 if quick else OWN,
            unit="x",
        )


def contestants(name, network, batch, folder, *, compiled):
    """{engine_precision: callable}; what cannot run here is left out with its reason."""
    paths = files(name, network, calibration(name), folder)
    recipes = FASTEST if has_vnni() else FASTEST_WITHOUT_VNNI
    wanted = {("eager", "fp32"): network}
    if compiled:  # which takes longer than the rest of the quick profile's race
        wanted["inductor", "fp32"] = network
    for engine in FASTEST:
        wanted |= {
            (engine, "fp32"): paths["fp32"],
            (engine, "int8"): paths[f"int8-{recipes[engine]}"],
        }
    arms = {}
    for (engine, precision), model in wanted.items():
        try:
            arms[f"{engine}_{precision}"] = engines.load(engine, model, batch, precision=precision)
        except Unavailable as error:
            print(f"# {name} {engine} {precision}: {error.what}")
    return arms


def own_gain(result, engine):
    """(median, low, high) of how many times faster an engine is in INT8 than in fp32, round by
    round.
    """
    int8, fp32 = (
        np.array(result[f"{engine}_{precision}"].ratios) for precision in ("int8", "fp32")
    )
    return float(np.median(int8 / fp32)), *median_of_rounds(int8 / fp32)


def has_vnni():
    return any(
        "vnni" in flag or flag in ("amx_int8", "asimddp", "i8mm") for flag in devices.cpu_isa()
    )


def tensorrt(figures, quick):
    """Engines of every network in every precision, which TensorRT-RTX builds without a GPU."""
    for name in QUICK if quick else models.names():
        with tempfile.TemporaryDirectory() as folder:
            paths = files(name, build(name), calibration(name), Path(folder))
            paths["int8+fp16"] = quantize.to_fp16(
                paths["int8-tensorrt"], Path(folder) / "both.onnx"
            )
            for precision in ("fp32", "fp16", "int8-tensorrt", "int8+fp16"):
                computed_as_asked(figures, f"{name}_{precision}", paths[precision])


def computed_as_asked(figures, key, path):
    """Are the heavy nodes computed in what the file asks for?

    Not measured where TensorRT-RTX is not to be had.
    """
    try:
        built = engine_of(path)
    except (LabError, Unavailable) as error:
        print(f"# {key}: {error}")
        figures.add(f"as_asked_{key}", None, at_least=100, unit="%")
        return
    table = compared(built.source.model, built.kernels)
    as_asked = 100 * float((table["requested"] == table["actual"]).mean())
    figures.add(f"as_asked_{key}", as_asked, at_least=100, unit="%")
    figures.add(f"plan_{key}", len(built.plan) / 1e6, unit="MB")
    figures.add(f"build_{key}", built.seconds, unit="s")


PARTS = {"parity": parity, "engines": engine_race, "tensorrt": tensorrt}

if __name__ == "__main__":
    main()
