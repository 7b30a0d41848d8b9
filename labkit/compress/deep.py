"""Deep compression: prune, fine-tune, share weights, train the centroids, Huffman-code what is left.

What     the three stages of a file 35 to 50 times smaller, each measured in bytes on disk
When     the file or the download is what costs: phones, browsers, updates over the air
Cost     a few epochs of fine-tuning
Not when latency is to fall: unpacked, the network is as large and as slow as before
Source   Han et al. 2016, arXiv:1510.00149
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DeepRecipe:
    """How to compress.

    sparsity      share of the weights that goes
    bits          2^bits shared values a layer
    prune_epochs  of gradual pruning and healing
    share_epochs  of training the centroids
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
    """One stage of the pipeline: its file is real.

    name      "fp32", "pruned", "shared", "settled", "huffman"
    path      of its file
    bytes     of this file on disk
    network   what the file holds, in eval mode
    seconds   this stage took
    """

    name: str
    path: object
    bytes: int
    network: object
    seconds: float


def deep_compression(model, train, folder, recipe=None, *, name, shape, dataset="", device="cpu"):
    """Compress a copy of a trained model: [`Stage`], from its fp32 file to the packed one.

    train    the ImageSet to fine-tune on
    folder   where the stages' files go
    """
    raise NotImplementedError
