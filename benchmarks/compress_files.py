"""The part `files` of compress.py: damaged files are refused, whole ones give back the network bit for bit."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from labkit import compress, models
from labkit.errors import LabError

FLIPS, TRUNCATIONS = 200, 50
NETWORKS = ("vgg-medium", "mobilenet-mini", "convnext-mini")


def files(figures, lab):
    """Every flipped bit and every missing end is noticed; three networks come back as they were."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.small"
        exact = sum(is_exact(name, path) for name in NETWORKS)
        figures.add("decoded_bit_for_bit", exact, at_least=len(NETWORKS))
        data, random = path.read_bytes(), np.random.default_rng(0)
        flips = random.choice(8 * len(data), FLIPS, replace=False)
        figures.add("bit_flips_refused", sum(is_refused(flipped(data, bit), path) for bit in flips), at_least=FLIPS)
        ends = random.choice(len(data), TRUNCATIONS, replace=False)
        refused = sum(is_refused(data[:end], path) for end in ends)
        figures.add("truncations_refused", refused, at_least=TRUNCATIONS)


def is_exact(name, path):
    """Whether a network with zeros and shared weights answers from its file bit for bit as before."""
    torch.manual_seed(0)
    network, shape = models.build(name)
    compress.keep(network, compress.magnitude_masks(network, 0.8))
    network = compress.settled(compress.share(network, bits=4))
    compress.save(path, network, name, shape=shape)
    found, x = compress.load(path).network, models.example(name, 8)
    same = all(torch.equal(found.state_dict()[key], value) for key, value in network.state_dict().items())
    with torch.inference_mode():
        return same and torch.equal(found(x), network(x))


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def is_refused(data, path):
    path.write_bytes(data)
    try:
        compress.load(path)
    except LabError:
        return True
    print(f"# let through: {len(data)} bytes")
    return False
