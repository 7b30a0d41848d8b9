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

from labkit.compress.gradual import GradualPruning
from labkit.compress.packed import save, settled
from labkit.compress.sharing import SharedWeights
from labkit.files import atomic
from labkit.train import TrainConfig, fit


@dataclass(frozen=True, kw_only=True)
class DeepRecipe:
    """How to compress.

    sparsity       share of the weights that goes, 0 to 1
    bits           2^bits shared values per layer, 1 to 8
    prune_epochs   of gradual pruning; the sparsity has its final value after half of them
    share_epochs   of training the centroids
    learning_rate  peak of the one-cycle schedule of the pruning
    centroid_rate  the same of the centroids
    """

    sparsity: float = 0.95
    bits: int = 4
    prune_epochs: int = 2
    share_epochs: int = 1
    learning_rate: float = 1e-3
    centroid_rate: float = 1e-4
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
    folder   where the files of the stages go
    name     of the architecture in `labkit.models`; shape and dataset as in `save`
    loss     as of `fit`, such as that of a teacher; None: cross-entropy
    """
    recipe, folder, model = recipe or DeepRecipe(), Path(folder), copy.deepcopy(model)
    steps = len(train) // recipe.batch * recipe.prune_epochs
    how = {"device": device, "loss": loss}
    about = {"name": name, "shape": shape, "dataset": dataset}
    common = {"batch": recipe.batch, "seed": recipe.seed, "weight_decay": 0.0}
    begin = time.perf_counter()
    path = folder / f"{name}.safetensors"
    with atomic(path) as temporary:
        save_model(model, str(temporary))
    stages = [Stage("fp32", path, path.stat().st_size, copy.deepcopy(model).eval(), time.perf_counter() - begin)]

    def stage(label, work, *, huffman=False):
        begin = time.perf_counter()
        network = work(copy.deepcopy(stages[-1].network))
        path = folder / f"{name}-{label}.small"
        bits = save(path, network, huffman=huffman, **about)
        network = copy.deepcopy(network).eval()
        stages.append(Stage(label, path, path.stat().st_size, network, time.perf_counter() - begin, bits))

    def pruned(network):
        hooks = {"prune": GradualPruning(recipe.sparsity, steps=max(1, steps // 2))}
        config = TrainConfig(epochs=recipe.prune_epochs, learning_rate=recipe.learning_rate, **common)
        fit(network, train, config, hooks=hooks, **how)
        return network

    def shared(network):
        hooks = {"share": SharedWeights(recipe.bits)}
        config = TrainConfig(epochs=recipe.share_epochs, learning_rate=recipe.centroid_rate, **common)
        fit(network, train, config, hooks=hooks, **how)
        return network

    stage("pruned", pruned)
    stage("shared", shared)
    stage("settled", settled)
    stage("huffman", lambda network: network, huffman=True)
    return stages
