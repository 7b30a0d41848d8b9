"""Trained networks that are part of the course's files, in `data/trained/`.

Experiments begin with their weights instead of training first.
"""

import json
from typing import TYPE_CHECKING

from safetensors.torch import load_file

from labkit.errors import require_known
from labkit.files import require_published, root
from labkit.models import build

if TYPE_CHECKING:
    from torch import nn


def trained(name: str = "vgg-medium") -> "tuple[nn.Module, dict]":
    """Load a trained network of `data/trained/`. Returns (the network in eval mode, its manifest).

    The manifest is a dictionary: "command" is the command that trained the network, "accuracy" its
    accuracy on the test set (0 to 1), "file" the name of the weights' file and "sha256" its hash.
    Further keys, such as "commit", "torch" and "epochs", say how it was trained.

    Raises  LabError: no trained network has this name; DataError: the weights are missing, or have
            another sha256 than the manifest says
    """
    manifest = _manifest_of(name)
    path = root() / "data" / "trained" / manifest["file"]
    fix = f"take the file from the repository again, or train: {manifest['command']}"
    require_published(path, manifest["sha256"], fix=fix)
    network, _ = build(name, classes=manifest["classes"])
    network.load_state_dict(load_file(path))
    return network.eval(), manifest


def _manifest_of(name):
    """Return the manifest of a trained network, as a dictionary.

    Raises  LabError: no trained network has this name
    """
    path = root() / "data" / "trained" / f"{name}.json"
    names = sorted(manifest.stem for manifest in path.parent.glob("*.json"))
    require_known(name, names, "trained network")
    return json.loads(path.read_text(encoding="utf-8"))
