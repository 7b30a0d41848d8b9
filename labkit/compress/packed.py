"""One file with a whole network, as small as its weights allow.

Each tensor is kept exactly, in the smallest of a few forms: one repeated value; halves where they lose nothing; floats;
for weights with zeros the gaps between what is kept, Huffman-coded; for shared weights a codebook and Huffman-coded
indices. The architecture is a name of `labkit.models`. A sha256 over all of it is checked before anything is read.
"""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Packed:
    """What a file held.

    network  in eval mode
    name     of its architecture in `labkit.models`
    shape    (C, H, W) of an input
    dataset  name of the data set, or ""
    """

    network: nn.Module
    name: str
    shape: tuple
    dataset: str


def settled(model):
    """A copy for inference: batch norm as one scale and one shift a channel, and all but the weights in half precision.

    The compressed network: test this one, for the file gives back exactly this one.
    """
    raise NotImplementedError


def save(path, network, name, *, shape, dataset="", huffman=True):
    """Write a network to one file: {part: bits} of what is in it, with "bound", the Shannon bound of its symbols.

    path     the file to write
    network  any network; it is kept bit for bit
    name     of its architecture in `labkit.models`
    shape    (C, H, W) of an input
    huffman  False: codes of equal length, to see what Huffman's gain
    """
    raise NotImplementedError


def load(path, *, like=None):
    """Read such a file: a `Packed`.

    like    a network with the same layers, where `labkit.models` has no such network; it is not changed
    Raises  LabError: another kind of file, a damaged one, or one that wants an unknown or too large network
    """
    raise NotImplementedError
