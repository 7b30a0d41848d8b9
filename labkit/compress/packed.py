"""One file with a whole network, as small as its weights allow.

Each tensor is kept bit for bit, in the smallest form that `_tensors` knows: weights that are 0 or shared take little.
The architecture is a name of `labkit.models`, which knows the shapes.

    magic (8 bytes) · sha256 of all that follows (32) · length of the header (2) · header, JSON · the tensors in order

The hash is checked before anything is read, so that no damaged bit passes. It keeps no forger out: whatever a file
claims is compared with the architecture before memory is taken for it. Nothing in a file is executed.
"""

import copy
import hashlib
import json
import struct
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from labkit import models
from labkit.compress._tensors import Reader, read_tensor, require, tensor_forms
from labkit.compress.magnitude import prunable
from labkit.errors import LabError
from labkit.files import atomic

_MAGIC, _DIGEST = b"labpack1", 32
_LARGEST = 2**28  # bytes of a file
_MOST = 4096  # classes, or the length of a side: no network of the course has more


class Packed(NamedTuple):
    """What a file held: a network in eval mode, the name of its architecture, that of its data set or "", and the shape
    of an input without the batch; in the order of `labkit.train.restored`."""

    network: nn.Module
    name: str
    dataset: str
    shape: tuple


@torch.no_grad()
def settled(model):
    """A copy for inference: batch norm as one scale and one shift per channel, all but the weights in half precision.

    This is the compressed network: the one to test, and the one that the file gives back exactly. Not to train on.
    """
    model = copy.deepcopy(model).eval()
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.affine and layer.track_running_stats:
            scale = layer.weight / (layer.running_var + layer.eps).sqrt()
            layer.bias -= layer.running_mean * scale
            layer.weight.copy_(scale * (1 + layer.eps) ** 0.5)
            layer.running_mean.zero_()
            layer.running_var.fill_(1)
            layer.num_batches_tracked.zero_()
    weights = prunable(model)
    for name, tensor in model.state_dict().items():
        if name in weights:
            tensor += 0.0  # -0.0, which masks leave behind, becomes 0.0
        elif tensor.is_floating_point() and tensor.half().isfinite().all():
            tensor.copy_(tensor.half())
    return model


def save(path, network, name, *, shape, dataset="", huffman=True):
    """Write a network to one file: {part: bits} of gaps, indices, tables, codebooks, values, "bound" and "total".

    path     the file to write
    network  any network; every tensor is kept bit for bit. It takes little where weights are 0 or shared
    name     of its architecture in `labkit.models`
    shape    of an input, without the batch
    huffman  False: codes of equal length, to see what Huffman's gain
    returns  "bound" is Shannon's: the entropy of each tensor's gaps and of its indices, which "gaps" + "indices" cannot
             fall below; "total" is the whole file
    """
    state, bits = network.state_dict(), Counter(gaps=0, indices=0, tables=0, codebooks=0, values=0, bound=0)
    facts = {"model": name, "classes": len(list(state.values())[-1]), "shape": list(shape), "dataset": dataset}
    facts["layers"] = _fingerprint(state)
    header = json.dumps(facts, separators=(",", ":")).encode()
    body = [struct.pack("<H", len(header)), header]
    for tensor in state.values():
        data, parts = min(tensor_forms(tensor.detach().cpu(), huffman), key=lambda form: len(form[0]))
        body.append(data)
        bits.update(parts)
    body = b"".join(body)
    with atomic(path) as temporary:
        temporary.write_bytes(_MAGIC + hashlib.sha256(body).digest() + body)
    return {**bits, "total": 8 * Path(path).stat().st_size}


def _fingerprint(state):
    """Eight hex digits that tell the layers of one network from those of another, by their shapes."""
    return hashlib.sha256(repr([tuple(tensor.shape) for tensor in state.values()]).encode()).hexdigest()[:8]


def load(path, *, like=None):
    """Read such a file: a `Packed`.

    like    a network with the same layers, where `labkit.models` has no such network; it is not changed
    Raises  LabError: another kind of file, a damaged one, or one that wants an unknown or too large network
    """
    path = Path(path)
    try:
        reader = Reader(_verified(path))
        facts = json.loads(reader.take(reader.number("<H")))
        name, classes, shape, dataset = (facts[key] for key in ("model", "classes", "shape", "dataset"))
        require(all(type(each) is int and 0 < each <= _MOST for each in [classes, *shape]), "sizes up to 4096")
        require(isinstance(dataset, str) and isinstance(name, str) and len(shape) in (1, 3), "names and a shape")
        network = copy.deepcopy(like) if like is not None else _skeleton(name, classes, tuple(shape))
        state = network.state_dict()
        require(facts["layers"] == _fingerprint(state), f"the layers of {name}", "others")
        for tensor in state.values():
            tensor.copy_(torch.from_numpy(read_tensor(reader, tensor).reshape(tensor.shape).copy()))
        require(not reader.left, "nothing behind the last tensor")
    except LabError as error:
        raise _refusal(path, error.expected or error.what, error.found) from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _refusal(path, "a header and tensors that fit it", f"{type(error).__name__}: {error}") from None
    return Packed(network.eval(), name, dataset, tuple(shape))


def _verified(path):
    """What follows the hash, once it is found to be whole."""
    require(path.is_file(), "a file", "no such file")
    require(path.stat().st_size <= _LARGEST, f"at most {_LARGEST:,} bytes", f"{path.stat().st_size:,} bytes")
    data, start = path.read_bytes(), len(_MAGIC) + _DIGEST
    require(data.startswith(_MAGIC), f"a beginning {_MAGIC!r}", f"{data[:8]!r}")
    wanted, found = data[len(_MAGIC) : start], hashlib.sha256(data[start:]).digest()
    require(found == wanted, f"content with the sha256 {wanted.hex()}", found.hex())
    return data[start:]


def _skeleton(name, classes, shape):
    """The network of a name, untrained."""
    network, known = models.build(name, classes=classes, like=shape if len(shape) == 3 else None)
    require(known == shape, f"a shape {known} of {name}", f"{shape}")
    return network


def _refusal(path, expected, found):
    return LabError(
        f"{path} is no whole file of a compressed network.",
        expected=expected,
        found=found,
        fix="get or write it anew: `labkit compress CHECKPOINT OUT`",
    )
