"""Deep compression: prune, fine-tune, share weights, train the centroids, Huffman-code the rest.

What     a file that is tens of times smaller, in stages whose files all exist and can be weighed
When     the file or its download is what costs: phones, browsers, updates over the air
Cost     a few epochs of fine-tuning
Not when latency shall fall: once unpacked, the network is as large and as slow as before
Source   Han et al. 2016, arXiv:1510.00149
"""

import copy
import time
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors.torch import save_model
from torch import nn

from labkit import models
from labkit.compress.distillation import Distillation
from labkit.compress.gradual import GradualPruning
from labkit.compress.packed import folded, load, save
from labkit.compress.sharing import SharedWeights
from labkit.files import artifacts, atomic
from labkit.methods import Loss
from labkit.models.trained import trained
from labkit.train import TrainConfig, accuracy, fit, restored
from labkit.train.by_name import training


@dataclass(frozen=True, kw_only=True)
class DeepRecipe:
    """How to compress.

    sparsity  share of the weights that becomes 0, 0 to 1; by LAMP, see `magnitude_masks`
    bits      2^bits shared values per layer, 1 to 8
    epochs    of gradual pruning; the sparsity has its final value after a third of them. Then the centroids are trained
              for a quarter as many
    batch     as of `TrainConfig`
    """

    sparsity: float = 0.91
    bits: int = 4
    epochs: int = 4
    batch: int = 128


@dataclass(frozen=True)
class Stage:
    """One stage: the network that it left, and its file.

    name     "fp32", "pruned", "shared", "folded" or "huffman"
    path     of the file
    network  what the file holds, in eval mode
    seconds  that this stage took
    bits     what `save` says is in the file; None of the first
    """

    name: str
    path: Path
    network: nn.Module
    seconds: float
    bits: dict | None

    @property
    def bytes(self):
        """Size of the file on disk."""
        return self.path.stat().st_size


def deep_compression(model, train, folder, *, about, recipe, loss=None):
    """Compress a copy of a trained model, where it lies: a list of `Stage`, from its fp32 file to the packed one.

    train   an ImageSet to fine-tune on
    folder  where the files of the stages go, as NAME-STAGE.small
    about   {"name", "shape", "dataset"} of the network, as in `save`
    recipe  a `DeepRecipe`
    loss    as of `fit`, such as that of a teacher; None: cross-entropy
    """
    steps = len(train) // recipe.batch * recipe.epochs
    pruning = GradualPruning(recipe.sparsity, steps=max(1, steps // 3), scope="lamp")
    # cropped and mirrored images, as a network that learned from such images needs them
    prune = TrainConfig(
        epochs=recipe.epochs,
        batch=recipe.batch,
        size=about["shape"][-1],
        augment=True,
        learning_rate=1e-3,
        weight_decay=0.0,
        channels_last=True,
    )
    share = replace(prune, epochs=max(1, recipe.epochs // 4), learning_rate=5e-4)
    device = next(model.parameters()).device

    def tuned(network, config, hook):
        fit(network, train, config, hooks={"compress": hook, "loss": Loss(loss)}, device=device)
        return network

    work = {
        "fp32": lambda network: network,
        "pruned": lambda network: tuned(network, prune, pruning),
        "shared": lambda network: tuned(network, share, SharedWeights(recipe.bits)),
        "folded": folded,
        "huffman": lambda network: network,
    }
    stages = []
    for label, step in work.items():
        begin = time.perf_counter()
        model = step(copy.deepcopy(model)).eval()
        path, bits = _written(label, model, Path(folder), about)
        stages.append(Stage(label, path, model, time.perf_counter() - begin, bits))
    return stages


def _written(label, network, folder, about):
    """(path, what is in it) of the file of a stage."""
    if label != "fp32":
        path = folder / f"{about['name']}-{label}.small"
        return path, save(path, network, **about, huffman=label == "huffman")
    path = folder / f"{about['name']}.safetensors"
    with atomic(path) as temporary:
        save_model(network, str(temporary))
    return path, None


def compress_by_name(
    source: str | Path,
    out: str | Path,
    recipe: DeepRecipe,
    *,
    dataset: str | None = None,
    limit: int | None = None,
) -> tuple[list[Stage], float, float, int]:
    """Compress a network as `labkit compress` does: ([`Stage`], accuracy before, after, number of test images).

    The whole network teaches the one that is compressed (`Distillation`).
    source   a checkpoint that `labkit train` wrote, or the name of a network that comes trained
    out      where the packed file goes; those of the other stages lie in artifacts/compressed
    dataset  name of the images; None: those the network was trained on
    limit    fine-tune and test on at most so many images
    """
    if Path(source).suffix == ".pt":
        model, name, known, shape = restored(source)
    else:
        (model, manifest), name = trained(str(source)), str(source)
        known, shape = manifest["dataset"], models.recipe_of(name).shape
    work = training(name, dataset or known, TrainConfig(size=shape[-1]), limit=limit)
    model.to(work.device)
    about = {"name": name, "shape": shape, "dataset": dataset or known}
    teacher = Distillation(copy.deepcopy(model))
    stages = deep_compression(model, work.train, artifacts() / "compressed", about=about, recipe=recipe, loss=teacher)
    save(out, stages[-1].network, **about)
    how = {"device": work.device, "size": shape[-1]}
    before = accuracy(model, work.test, **how)
    return stages, before, accuracy(load(out).network, work.test, **how), len(work.test)
