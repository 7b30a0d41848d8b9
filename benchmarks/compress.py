"""Compression against its targets: how small does the file get, how fast the network, and what does
it forget?

    python benchmarks/compress.py [--quick] [--only baseline files unstructured channels
    distillation deep lesson]

Full: about an hour on two cores without bf16. Quick: under a minute, on so few images that only
sizes mean something; the targets of accuracy and of lesson 15 are then left out. A loss is in
percentage points on the same test images, with its paired 95 % interval. While it is tuned, a
compressed network learns from the whole one (distillation).
"""

import argparse
import copy
import io
import tempfile
import warnings
from functools import cached_property
from pathlib import Path

import onnx
import torch
import torch_pruning
from figures import Figures
from safetensors.torch import save_model

from labkit import compress, models
from labkit import device as devices
from labkit.compress import Distillation, GradualPruning
from labkit.data import load
from labkit.engines import load as served
from labkit.export import to_onnx
from labkit.lesson.exercises import find
from labkit.lesson.support import load_support
from labkit.measure import Plan, compare, multiply_adds
from labkit.measure.stats import bootstrap_paired, mean_interval
from labkit.methods import Loss
from labkit.models.trained import trained
from labkit.quantize import static
from labkit.train import TrainConfig, fit, right_answers

NAME, SHAPE = "vgg-medium", (1, 28, 28)
STUDENT, SEEDS = "vgg-small", 5
NETWORKS = ("vgg-medium", "mobilenet-mini", "convnext-mini")
# tolerance: the answers of a pruned network differ, how much they are worth is told by its accuracy
ANY = 100.0
CHANNELS = 0.5  # of each layer
SPARSITY = 0.91  # of deep compression, by LAMP
coding = load_support("pruning_and_coding")  # the coder of lesson 15, which is measured here
decode = find("decode-huffman").reference


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few images, under a minute")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="some of the parts")
    options, figures = parser.parse_args(), Figures()
    warnings.filterwarnings("ignore")
    lab = Lab(options.quick)
    for name, part in PARTS.items():
        if name in options.only:
            figures.part(name, part, lab)
    figures.exit()


class Lab:
    """The trained network, the images, and how both are used."""

    def __init__(self, quick):
        self.quick = quick
        # as training leaves the others
        self.network = trained(NAME)[0].to(memory_format=torch.channels_last)
        self.train = load("fashion-mnist", "train", limit=1500 if quick else None)
        self.test = load("fashion-mnist", "test", limit=1000 if quick else None)
        self.before = self.right(self.network)
        self.example, self.plan = models.example(NAME, 1), Plan(seconds=2 if quick else 10)
        self.healing = 1 if quick else 5  # epochs

    def right(self, network):
        """(N,) bool: which test images a network gets right."""
        return right_answers(network, self.test)

    def tuned(self, network, *, epochs, rate=3e-3, seed=0, train=None, loss=None, hook=None):
        """The network after some training; hook: a method that takes part, such as pruning."""
        config = TrainConfig(
            epochs=epochs, batch=128, learning_rate=rate, weight_decay=0.0, channels_last=True, augment=True, seed=seed,
            amp="bf16" if devices.multiplies_bf16(torch.device("cpu")) else None,
        )  # fmt: skip
        hooks = {"loss": Loss(loss)}
        if hook is not None:
            hooks["compress"] = hook
        fit(network, train or self.train, config, device="cpu", hooks=hooks)
        return network.eval()

    @cached_property
    def pruned(self):
        """The trained network with most of its weights 0; the whole network teaches it while
        they go.
        """
        epochs = 1 if self.quick else 4
        steps = len(self.train) // 128 * epochs
        pruning = GradualPruning(SPARSITY, steps=max(1, steps // 3), scope="lamp")
        teacher = Distillation(copy.deepcopy(self.network))
        return self.tuned(
            copy.deepcopy(self.network), epochs=epochs, rate=1e-3, loss=teacher, hook=pruning
        )

    @cached_property
    def compressed(self):
        """The pruned network, whose weights share 16 values a layer that were trained; folded,
        as a file holds it.
        """
        teacher = Distillation(copy.deepcopy(self.network))
        shared_weights = coding.SharedWeights()
        shared = self.tuned(
            copy.deepcopy(self.pruned), epochs=1, rate=5e-4, loss=teacher, hook=shared_weights
        )
        return coding.folded(shared)

    def loss(self, figures, name, network, *, at_most=None):
        """A figure for what a network has forgotten, and its interval."""
        change = bootstrap_paired(self.before, self.right(network))
        limits = {} if self.quick else {"at_most": at_most}
        figures.add(f"points_lost_{name}", -100 * change.median, unit="%", **limits)
        print(f"#     95 % interval {-100 * change.high:.2f} to {-100 * change.low:.2f} points")

    def race(self, first, second, engine):
        """Two networks run by an engine at batch 1, in interleaved pairs: the row of the second
        against the first.

        Ten calls at a time, as a server makes them: of single calls, `compare` makes more of the
        first network, which is then found in the cache more often than the other.
        """
        arms = {"first": first, "second": second}
        calls = {
            name: ten_times(served(engine, network, self.example)) for name, network in arms.items()
        }
        return compare(calls, tolerance=ANY, inputs=[self.example], device="cpu", plan=self.plan)[
            "second"
        ]


def ten_times(network):
    return lambda x: [network(x) for _ in range(10)][-1]


def ratio(figures, name, row, **target):
    """A figure for a ratio of times, and how sure it is."""
    figures.add(name, row.median, unit="x", **target)
    before, after = row.baseline_ms / 10, row.arm_ms / 10
    print(
        f"#     {row.low:.2f} to {row.high:.2f}, floor {row.floor:.2f}, {before:.3g} to "
        f"{after:.3g} ms"
    )


def files(figures, lab):
    """Networks with zeros and shared weights come back bit for bit, from the lesson's file and
    from the judge's.
    """
    with tempfile.TemporaryDirectory() as folder:
        lesson_files = 0
        judge_files = 0
        for name in NETWORKS:
            network, shape = small_network(name)
            lesson_files += is_exact_in_the_lessons_file(network)
            judge_files += is_exact_in_the_judges_file(network, shape, Path(folder))
    figures.add("decoded_bit_for_bit", lesson_files, at_least=len(NETWORKS))
    figures.add("decoded_bit_for_bit_by_the_judge", judge_files, at_least=len(NETWORKS))


def small_network(name):
    """(an untrained network with 80 % zeros and 16 values a layer, the shape of its inputs)."""
    torch.manual_seed(0)
    network, shape = models.build(name)
    compress.apply_masks(network, compress.magnitude_masks(network, 0.8))
    return coding.folded(coding.share(network)), shape


def is_exact_in_the_lessons_file(network):
    """Whether the file of lesson 15 gives every number back, also into a network that held
    others.
    """
    blank = copy.deepcopy(network)
    for parameter in blank.parameters():
        parameter.data.normal_()
    decoded = coding.read_network(coding.write_network(network), blank, decode).state_dict()
    return all(torch.equal(decoded[key], numbers) for key, numbers in network.state_dict().items())


def is_exact_in_the_judges_file(network, shape, folder):
    """Whether `compress.save` and `load` give the ONNX model back."""
    path = to_onnx(network, torch.zeros(1, *shape), folder / "network.onnx")
    compress.save(folder / "network.onnx.gz", path)
    return compress.load(folder / "network.onnx.gz") == onnx.load(path)


def baseline(figures, lab):
    """Where everything begins."""
    figures.add(
        "baseline_accuracy",
        100 * lab.before.mean(),
        unit="%",
        **({} if lab.quick else {"at_least": 92}),
    )
    figures.add(
        "baseline_multiply_adds",
        multiply_adds(lab.network, lab.example) / 1e6,
        at_most=31,
        unit="M",
    )


def unstructured(figures, lab):
    """Over 90 % of the weights are 0, as deep compression leaves them before it shares: what is
    forgotten, and that dense kernels multiply by zeros as fast as by others."""
    pruned = lab.pruned
    figures.add(
        "unstructured_sparsity", 100 * compress.sparsity_of(pruned), at_least=89.99, unit="%"
    )
    lab.loss(figures, "unstructured_90", pruned, at_most=0.3)
    for engine in ("eager", "onnxruntime")[lab.quick :]:
        row = lab.race(lab.network, pruned, engine)
        ratio(figures, f"unstructured_90_speed_{engine}", row)
        figures.add(f"unstructured_90_called_faster_{engine}", row.verdict == "faster", at_most=0)


def channels(figures, lab):
    """Half of the channels gone, by the scales of batch norm, and by torch-pruning's own recipe."""
    ours = compress.without_channels(lab.network, lab.example, CHANNELS, scope="layer")
    lab.tuned(ours.train(), epochs=lab.healing, loss=Distillation(lab.network))
    lab.loss(figures, "channels", ours, at_most=0.5)
    theirs = by_torch_pruning(figures, lab)
    figures.add("channels_multiply_adds_left", multiply_adds(ours, lab.example) / 1e6, unit="M")
    figures.add(
        "torch_pruning_multiply_adds_left", multiply_adds(theirs, lab.example) / 1e6, unit="M"
    )
    for engine in ("onnxruntime",) if lab.quick else ("onnxruntime", "openvino"):
        target = {"at_least": 2} if engine == "onnxruntime" else {}
        ratio(figures, f"channels_speed_{engine}", lab.race(lab.network, ours, engine), **target)
        # twice, for the first network of a race has a small advantage
        first, second = lab.race(theirs, ours, engine), lab.race(ours, theirs, engine)
        ratio(figures, f"channels_against_torch_pruning_{engine}", first)
        ratio(figures, f"torch_pruning_against_channels_{engine}", second)
        slower = (first.verdict, second.verdict) == ("slower", "faster")
        figures.add(f"channels_called_slower_{engine}", slower, at_most=0)


def by_torch_pruning(figures, lab):
    """The network of torch-pruning's own recipe, fine-tuned as long: the channels of smallest group
    magnitude go, the same share of each layer."""
    network = copy.deepcopy(lab.network)
    importance = torch_pruning.importance.GroupMagnitudeImportance(p=2)
    settings = {"pruning_ratio": CHANNELS, "ignored_layers": [network[-1]], "round_to": 8}
    torch_pruning.pruner.MagnitudePruner(network, lab.example, importance, **settings).step()
    lab.tuned(network.train(), epochs=lab.healing)
    lab.loss(figures, "torch_pruning", network)
    return network


def distillation(figures, lab):
    """A student with and without a teacher, otherwise trained alike, seed by seed."""
    gains, epochs, train = [], 3 if lab.quick else 4, lab.train.subset(min(15_000, len(lab.train)))
    for seed in range(2 if lab.quick else SEEDS):
        right = [
            student(lab, loss, epochs, train, seed) for loss in (None, Distillation(lab.network))
        ]
        print(
            f"#     seed {seed}: {100 * right[0].mean():.2f} % alone, "
            f"{100 * right[1].mean():.2f} % taught"
        )
        gains.append(100 * (right[1].mean() - right[0].mean()))
    gain = mean_interval(gains)
    figures.add("distillation_gain", gain.mean, unit="%")
    print(
        f"#     95 % interval {gain.low:.2f} to {gain.high:.2f} points, "
        f"{len(gains)} pairs of equal seed"
    )


def student(lab, loss, epochs, train, seed):
    torch.manual_seed(seed)
    network = lab.tuned(
        models.build(STUDENT)[0], epochs=epochs, rate=1e-2, train=train, seed=seed, loss=loss
    )
    return lab.right(network)


def deep(figures, lab):
    """The file of the lesson's coder: its bytes, its distance to Shannon's bound, what the
    network in it forgot.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(lab.network, str(folder / "network.safetensors"))
        full = (folder / "network.safetensors").stat().st_size
        path = to_onnx(lab.compressed, lab.example, folder / "network.onnx")
        int8 = static(path, folder / "int8.onnx", lab.train.subset(256), recipe="onnxruntime")
        compress.save(folder / "network.onnx.gz", int8)
        for_the_judge = (folder / "network.onnx.gz").stat().st_size
    file = coding.write_network(lab.compressed)
    figures.add("deep_smaller", full / len(file), at_least=44.9, unit="x")
    figures.add("deep_smaller_in_int8_for_the_judge", full / for_the_judge, unit="x")
    figures.add("deep_over_shannon", 100 * over_shannon(lab.compressed), at_most=3, unit="%")
    decoded = coding.read_network(file, lab.compressed, decode)
    lab.loss(figures, "deep", decoded, at_most=0.2)


def over_shannon(network):
    """By what share gaps and indices in the file, tables included, exceed the entropy of their
    symbols.
    """
    bits = 0
    bound = 0.0
    for weight in compress.prunable(network).values():
        _, gaps, indices = coding.layer_symbols(weight)
        file = io.BytesIO()
        coding.write_symbols(file, gaps)
        coding.write_symbols(file, indices)
        bits += 8 * file.tell()
        bound += coding.entropy_bits(gaps) + coding.entropy_bits(indices)
    return bits / bound - 1


def lesson(figures, lab):
    """How long lesson 15 takes in the profile quick."""
    if not lab.quick:
        figures.lesson("15", at_most=40)


PARTS = {
    part.__name__: part
    for part in (baseline, files, unstructured, channels, distillation, deep, lesson)
}

if __name__ == "__main__":
    main()
