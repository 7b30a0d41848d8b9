"""A real language model, served: how fast against eager, and does it find what it found before?

    python benchmarks/transformer.py [--quick] [--only speed|buckets|peers]

Everything is timed on one thread. Full: about ten minutes. Quick: two minutes, on few texts and
without the largest batch, so that its speeds have no target. `peers` takes NNCF and torchao too
where they are installed. Agreement is the share of texts whose nearest other is the same as in
float32, with its 95 % interval. The texts are foreign to the course, on whose own files are
calibrated: 500 docstrings of Python's standard library, as this Python has them (licence: PSF).
Where the CPU multiplies in bf16, more is asked for.
"""

import argparse
import ast
import sysconfig
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch
from deploy import has_vnni
from figures import Figures
from scipy.stats import binomtest
from transformer_peers import peers

from labkit import engines, export, quantize, text
from labkit.device import multiplies_bf16
from labkit.errors import Unavailable
from labkit.measure import Plan, compare, latency
from labkit.models import minilm
from labkit.models.minilm import minilm as network_of_course
from labkit.quantize import Calibration

# tolerance: vectors of length 1 in INT8 differ, how much they are worth is told by agreement
ANY = 2.0
TOKENS = 16  # in each text of a race
AGREES = 98.5  # percent of the texts, the least that counts as the same search
# batch: times eager without and with instructions for bf16
TARGETS = {1: (2, 2.8), 8: (1.2, 2.3), 32: (1.2, 2.3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="few paragraphs, under a minute")
    parser.add_argument("--only", choices=PARTS, help="one part")
    options, figures = parser.parse_args(), Figures()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), options.quick)
        for name, part in PARTS.items():
            if options.only in (None, name):
                figures.part(name, part, work)
    figures.exit()


def foreign_texts(count):
    """The first paragraphs of `count` docstrings of Python's standard library, of twelve words
    or more, each once.
    """
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            words = isinstance(
                node, ast.FunctionDef | ast.ClassDef | ast.Module
            ) and ast.get_docstring(node)
            first = (words or "").split("\n\n")[0].split()
            if len(first) >= 12:
                found.append(" ".join(first))
    once = list(dict.fromkeys(found))
    return [once[at] for at in np.linspace(0, len(once) - 1, count, dtype=int)]


class Work:
    """The network, the texts, the files: each made when it is asked for."""

    def __init__(self, folder, quick):
        self.folder, self.quick = folder, quick
        self.network = network_of_course()
        longest = 24 if quick else 128
        self.known = minilm.tokens(
            [each.text for each in text.paragraphs()[:: 12 if quick else 1]], longest=longest
        )
        self.rows = minilm.tokens(foreign_texts(60 if quick else 500), longest=longest)
        self.example = text.padded(self.known[:2])
        self.plan = Plan(seconds=1 if quick else 8)
        self.made = {}

    def file(self, name, make):
        if name not in self.made:
            self.made[name] = make(self.folder / f"{name}.onnx")
        return self.made[name]

    @property
    def plain(self):
        export_it = partial(
            export.to_onnx, self.network, self.example, dynamic_shapes={1: minilm.LONGEST}
        )
        return self.file("plain", lambda path: export_it(path))

    @property
    def int8(self):
        return self.file("int8", partial(quantize.dynamic, self.plain, bits=8 if has_vnni() else 7))

    @property
    def apart(self):
        """INT8 with the outliers in products of their own, in float."""
        return self.file("apart", self.outliers_apart)

    def outliers_apart(self, path):
        some = self.known[:: len(self.known) // 64]
        seen = Calibration(
            tuple(text.padded(some[at : at + 16]).numpy() for at in range(0, 64, 16)), "paragraphs"
        )
        onnx.save(
            quantize.outliers_apart(quantize.prepared_for_quantizer(self.plain), seen),
            path.with_suffix(".fp32"),
        )
        return quantize.dynamic(path.with_suffix(".fp32"), path, bits=8 if has_vnni() else 7)

    @property
    def weights(self):
        return self.file("weights", partial(quantize.weight_only, self.plain, bits=8))

    @property
    def blocks(self):
        """Weights and what enters in 8 bits, a step per block of 32."""
        return self.file("blocks", partial(quantize.weight_only, self.plain, bits=8, inputs="int8"))

    def served(self, engine, model, precision="fp32", example=None):
        example = self.example if example is None else example
        return engines.load(engine, model, example, precision=precision, threads=1)


def speed(figures, work):
    """The engines against eager fp32 in interleaved pairs, with what they keep."""
    exact, arms = (
        text.encoded(work.rows, work.network),
        {"eager": work.served("eager", work.network)},
    )
    ways = {
        "onnxruntime": ("onnxruntime", work.plain, "fp32"),
        "openvino": ("openvino", work.plain, "fp32"),
        "int8": ("onnxruntime", work.int8, "int8"),
        "int8_outliers_apart": ("onnxruntime", work.apart, "int8"),
        "weights_8_bits": ("onnxruntime", work.weights, "fp32"),
        "int8_blocks": ("onnxruntime", work.blocks, "fp32"),
        "openvino_bf16": ("openvino", work.plain, "bf16"),
    }
    for name, way in ways.items():
        try:
            arms[name] = work.served(*way)
        except Unavailable as error:
            print(f"# {name}: {error.what}")
    agreement = {}
    for name, answer in list(arms.items())[1:]:
        if work.quick and name == "openvino":
            continue
        vectors = text.encoded(work.rows, answer)
        agreement[name] = quality(figures, name, exact, vectors)
    for batch, targets in list(TARGETS.items())[: 2 if work.quick else 3]:
        limits = {} if work.quick else {"at_least": targets[multiplies_bf16("cpu")]}
        for name in arms.keys() & ways.keys():
            if ways[name][0] == "openvino":  # it has a plan for the shape that it was opened with
                arms[name] = work.served(*ways[name], random_tokens(batch))
        ratios = race(figures, work, arms, batch)
        agree = {name: ratio for name, ratio in ratios.items() if agreement.get(name, 0) >= AGREES}
        best = max(agree, key=agree.get)
        print(f"#     {best}: the fastest of {', '.join(agree)}")
        figures.add(f"best_engine_batch_{batch}", agree[best], unit="x", **limits)


def quality(figures, name, exact, vectors):
    """A figure for the share of the texts that keep their nearest other, in percent, with its 95
    % interval printed.
    """
    same = text.agreement(exact, vectors)
    interval = binomtest(int(same.sum()), len(same)).proportion_ci(method="wilson")
    figures.add(f"agreement_{name}", 100 * float(same.mean()), unit="%")
    print(
        f"#     95 % interval {100 * interval.low:.1f} to {100 * interval.high:.1f} %, "
        f"{len(same)} texts"
    )
    return 100 * float(same.mean())


def random_tokens(batch):
    return torch.randint(
        1000, 30_000, (batch, TOKENS), generator=torch.Generator().manual_seed(batch)
    )


def race(figures, work, arms, batch):
    """{arm: times as fast as eager} at a batch size, and a figure for each."""
    result = compare(
        arms, inputs=[random_tokens(batch)], tolerance=ANY, device="cpu", plan=work.plan
    )
    for name, row in result.ratios.items():
        figures.add(f"{name}_batch_{batch}", row.median, unit="x")
        print(
            f"#     {row.low:.2f} to {row.high:.2f}, floor {row.floor:.2f}, {row.pairs} pairs, "
            f"{row.arm_ms:.3g} ms"
        )
    return {name: row.median for name, row in result.ratios.items()}


def padding_share(lengths, batches):
    """The share of the tokens of these batches that is padding, 0 to 1."""
    worked = sum(len(places) * max(lengths[place] for place in places) for places in batches)
    return 1 - sum(lengths[place] for places in batches for place in places) / worked


def buckets(figures, work):
    """Batches of 32 by length against batches as the texts come, each padded to its longest."""
    texts = [each.text for each in text.paragraphs()]
    rows = minilm.tokens(texts, longest=minilm.LONGEST)
    places = np.random.default_rng(0).permutation(len(rows)).tolist()
    lengths = [len(row) for row in rows]
    ways = {
        "as_they_come": [places[at : at + 32] for at in range(0, len(places), 32)],
        "by_length": text.by_length(lengths, 32),
    }
    for way, batches in ways.items():
        figures.add(f"padding_{way}", 100 * padding_share(lengths, batches), unit="%")
    fewer = np.divide(
        *(1 - padding_share(lengths, ways[way]) for way in ("by_length", "as_they_come"))
    )
    figures.add("buckets_fewer_tokens", fewer, unit="x", at_least=1.5)
    part = [places[at] for at in range(24 if work.quick else 128)]
    size, answer = 8 if work.quick else 32, work.served("onnxruntime", work.int8, "int8")
    of_part = [lengths[place] for place in part]
    timed = []
    for batches in (
        [list(range(at, at + size)) for at in range(0, len(part), size)],
        text.by_length(of_part, size),
    ):
        padded = [text.padded([rows[part[place]] for place in batch]) for batch in batches]
        once = Plan(seconds=0.2 if work.quick else 20, min_samples=11)
        timed.append(
            latency(
                lambda padded=padded: [answer(x) for x in padded], device="cpu", plan=once
            ).p50_ms
        )
    limits = {} if work.quick else {"at_least": 1.5}
    figures.add("buckets_sentences_per_second", timed[0] / timed[1], unit="x", **limits)


PARTS = {
    "speed": speed,
    "buckets": buckets,
    "peers": lambda figures, work: peers(figures, work, quality, race),
}

if __name__ == "__main__":
    main()
