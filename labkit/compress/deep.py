"""Deep compression: prune, fine-tune, share weights, train the centroids, Huffman-code what is left.

What     a file that is tens of times smaller, in stages whose files all exist and can be weighed
When     the file or its download is what costs: phones, browsers, updates over the air
Cost     a few epochs of fine-tuning
Not when latency shall fall: unpacked, the network is as large and as slow as before
Source   Han et al. 2016, arXiv:1510.00149
"""

import copy
import time
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_model
from torch import nn

from labkit import models
from labkit.compress.distillation import Distillation
from labkit.compress.gradual import GradualPruning
from labkit.compress.packed import load, save, settled
from labkit.compress.sharing import SharedWeights
from labkit.files import artifacts, atomic
from labkit.models.trained import trained
from labkit.train import TrainConfig, accuracy, fit, restored
from labkit.train.by_name import training


@dataclass(frozen=True, kw_only=True)
class DeepRecipe:
    """How to compress.

    sparsity       share of the weights that goes, 0 to 1
    scope          as of `magnitude_masks`
    bits           2^bits shared values per layer, 1 to 8
    prune_epochs   of gradual pruning; the sparsity has its final value after a third of them
    share_epochs   of training the centroids
    learning_rate  peak of the one-cycle schedule of the pruning
    centroid_rate  the same of the centroids
    augment        crop and mirror the images, as a network that learned from such images needs it
    batch, seed    as of `TrainConfig`
    """

    sparsity: float = 0.91
    scope: str = "lamp"
    bits: int = 4
    prune_epochs: int = 4
    share_epochs: int = 1
    learning_rate: float = 1e-3
    centroid_rate: float = 5e-4
    augment: bool = True
    batch: int = 128
    seed: int = 0


@dataclass(frozen=True)
class Stage:
    """One stage: what it left, and its file.

    name     "fp32", "pruned", "shared", "settled" or "huffman"
    path     of the file
    bytes    of this file on disk
    network  what the file holds, in eval mode
    seconds  that this stage took
    bits     what `save` says is in it; None of the first
    """

    name: str
    path: Path
    bytes: int
    network: nn.Module
    seconds: float
    bits: dict | None = None


def deep_compression(model, train, folder, recipe=None, *, name, shape, dataset="", device="cpu", loss=None):
    """Compress a copy of a trained model: a list of `Stage`, from its fp32 file to the packed one.

    train    an ImageSet to fine-tune on
    folder   where the files of the stages go, as NAME-STAGE.small
    name     of the architecture in `labkit.models`; shape and dataset as in `save`
    loss     as of `fit`, such as that of a teacher; None: cross-entropy
    """
    recipe, folder = recipe or DeepRecipe(), Path(folder)
    steps = len(train) // recipe.batch * recipe.prune_epochs
    pruning = GradualPruning(recipe.sparsity, steps=max(1, steps // 3), scope=recipe.scope)
    sharing = SharedWeights(recipe.bits)
    size = None if tuple(train.images.shape[2:]) == tuple(shape[1:]) else shape[-1]

    def tuned(network, hook, epochs, rate):
        config = TrainConfig(
            epochs=epochs, learning_rate=rate, batch=recipe.batch, seed=recipe.seed, weight_decay=0.0, size=size,
            augment=recipe.augment, channels_last=True,
        )  # fmt: skip
        fit(network, train, config, hooks={"compress": hook}, device=device, loss=loss)
        return network

    work = {
        "pruned": lambda network: tuned(network, pruning, recipe.prune_epochs, recipe.learning_rate),
        "shared": lambda network: tuned(network, sharing, recipe.share_epochs, recipe.centroid_rate),
        "settled": settled,
        "huffman": lambda network: network,
    }
    stages = [_plain_stage(model, folder / f"{name}.safetensors")]
    for label, step in work.items():
        begin, path = time.perf_counter(), folder / f"{name}-{label}.small"
        network = step(copy.deepcopy(stages[-1].network)).eval()
        bits = save(path, network, name, shape=shape, dataset=dataset, huffman=label == "huffman")
        stages.append(Stage(label, path, path.stat().st_size, network, time.perf_counter() - begin, bits))
    return stages


def _plain_stage(model, path):
    """The beginning: all weights as floats."""
    begin = time.perf_counter()
    with atomic(path) as temporary:
        save_model(model, str(temporary))
    return Stage("fp32", path, path.stat().st_size, copy.deepcopy(model).eval(), time.perf_counter() - begin)


def compress_by_name(source, out, recipe=None, *, dataset=None, limit=None):
    """What `labkit compress` does: ([`Stage`], accuracy before, accuracy after, number of test images).

    The whole network teaches the one that is compressed (`Distillation`).
    source   a checkpoint that `labkit train` wrote, or the name of a network that comes trained
    out      where the packed file goes; those of the other stages lie in artifacts/compressed
    dataset  name of the images; None: those the network was trained on
    limit    fine-tune and test on at most so many images
    """
    if Path(source).suffix == ".json":
        model, name, known, shape = restored(source)
    else:
        (model, manifest), name = trained(source), source
        known, shape = manifest["dataset"], models.recipe_of(name).shape
    work = training(name, dataset or known, TrainConfig(size=shape[-1]), limit=limit)
    about = {"name": name, "shape": shape, "dataset": dataset or known, "device": work.device}
    about["loss"] = Distillation(copy.deepcopy(model))
    stages = deep_compression(model, work.train, artifacts() / "compressed", recipe, **about)
    with atomic(out) as temporary:
        temporary.write_bytes(stages[-1].path.read_bytes())
    before, after = (
        accuracy(each, work.test, device=work.device, size=shape[-1]) for each in (model, load(out).network)
    )
    return stages, before, after, len(work.test)
