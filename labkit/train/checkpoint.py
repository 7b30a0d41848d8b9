"""Checkpoints that are whole or not there, and going on from one as if the training had never stopped.

A checkpoint is one file of `torch.save`, renamed into its place when it is complete. It is read with
`weights_only=True`: tensors and plain values only, and nothing in the file is ever executed.
"""

import pickle
import re
import zipfile
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

import torch

from labkit import device as devices
from labkit import models
from labkit.errors import LabError
from labkit.files import atomic

_FORMAT = "labkit checkpoint 2"
_FREE = {"workers", "pin_memory", "phases", "cudnn_autotuner"}  # these do not change what is learned
_REMEMBERED = ("losses", "accuracy", "epoch_seconds", "epoch_phases")
_UNPICKLED = (ValueError, LookupError, TypeError, AttributeError, RuntimeError, EOFError, pickle.UnpicklingError)
_DAMAGE = (*_UNPICKLED, IsADirectoryError, zipfile.BadZipFile)


class CheckpointError(LabError):
    """A checkpoint that is damaged, or of another training."""


def save_checkpoint(path, state, facts):
    """Write a checkpoint in one step: the path.

    path   ending in .pt
    state  nested dicts, lists and tuples of tensors and plain values
    facts  {name: plain value}, what the training was
    """
    with atomic(path) as temporary:
        torch.save({"format": _FORMAT, "state": state, "facts": facts}, temporary)
    return Path(path)


def load_checkpoint(path):
    """(state, facts) of a checkpoint; None when there is none. Raises CheckpointError when it is damaged."""
    path = Path(path)
    if not path.exists():
        return None
    with _damage_explained(path):
        with zipfile.ZipFile(path) as file:  # what torch.save writes; torch itself compares no checksums
            broken = file.testzip()
        if broken:
            raise ValueError(f"{broken} has another checksum")
        contents = torch.load(path, map_location="cpu", weights_only=True)
        if contents["format"] != _FORMAT:
            raise ValueError(f"format {contents['format']!r}")
        return contents["state"], contents["facts"]


@contextmanager
def _damage_explained(path):
    """Turn whatever the contents of a damaged or foreign file break into a CheckpointError."""
    try:
        yield
    except _DAMAGE as error:
        if devices.is_out_of_memory(error):
            raise
        foreign = isinstance(error, pickle.UnpicklingError)
        words = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"The checkpoint {path} is damaged.",
            expected=f"a file of {_FORMAT!r} as `labkit train` writes it",
            found="objects other than tensors and plain values" if foreign else f"{type(error).__name__}: {words}",
            fix="put back a good copy, or delete it and train from the start",
        ) from None


class Checkpoint:
    """Everything that decides how a training goes on, in one place.

    path   ending in .pt; None: nothing is written
    parts  {name: anything with state_dict() and load_state_dict(...)}
    """

    def __init__(self, path, parts, config, data, device):
        self.path, self.parts, self.config, self.device = path, parts, config, device
        self.data = {"images": len(data), "digest": getattr(data, "digest", None)}

    def restore(self, history):
        """Put what was saved into the parts and into `history`; without a checkpoint all stay as they are."""
        found = load_checkpoint(self.path) if self.path else None
        if found is None:
            return
        state, facts = found
        with _damage_explained(self.path):
            self._refuse_another(facts)
            for name, part in self.parts.items():
                part.load_state_dict(state.get(name, {}))
            devices.set_rng_state(self.device, state["rng"])
            for name in _REMEMBERED:
                setattr(history, name, list(facts["history"][name]))
            history.restored = len(history.epoch_seconds)

    def _refuse_another(self, facts):
        """Refuse a checkpoint of another training. A switch that it does not know yet was off: at its default."""
        ours = {**self.data, **asdict(self.config)}
        theirs = {**{each.name: each.default for each in fields(self.config)}, **facts, **facts["config"]}
        differ = [name for name in ours if name not in _FREE and ours[name] != theirs.get(name)]
        if differ:
            raise CheckpointError(
                f"The checkpoint {self.path} is of another training.",
                expected=", ".join(f"{name} {ours[name]!r}" for name in differ),
                found=", ".join(f"{name} {theirs.get(name)!r}" for name in differ),
                fix="use the same settings, or train under another name, or delete the checkpoint",
            )

    def save(self, history):
        """Write everything after an epoch."""
        if self.path:
            state = {name: part.state_dict() for name, part in self.parts.items()}
            state["rng"] = devices.rng_state(self.device)
            remembered = {name: getattr(history, name) for name in _REMEMBERED}
            save_checkpoint(self.path, state, {"config": asdict(self.config), **self.data, "history": remembered})


def restored(checkpoint):
    """(network in eval mode, its name, the data set's name, the shape of an input without the batch) of a checkpoint.

    checkpoint  path of the file, named `DATASET-MODEL.pt`, or `DATASET-MODEL.NAME.pt`
    Raises      CheckpointError when it is damaged, or its name or its weights fit no network of the course
    """
    path = Path(checkpoint)
    stem = re.sub(r"\.[\w-]+$", "", path.stem)  # without the name of one training of several
    name = max((name for name in models.names() if stem.endswith(f"-{name}")), key=len, default=None)
    found = load_checkpoint(path) if name else None
    if found is None:
        raise LabError(
            f"There is no checkpoint {path}." if name else f"{path.name} does not say which network it is of.",
            expected="a file DATASET-MODEL.pt or DATASET-MODEL.NAME.pt, with a MODEL of " + " or ".join(models.names()),
            found=path.name,
            fix="train one with `labkit train`, or rename it",
        )
    state, facts = found
    with _damage_explained(path):
        network, shape = _network(path, name, state["model"])
        side = facts.get("config", {}).get("size")
        shape = (shape[0], side, side) if side else shape
    return network, name, stem.removesuffix(f"-{name}"), shape


def _network(path, name, weights):
    """(network in eval mode with these weights, the shape of its input)."""
    first, *_, last = weights.values()  # a convolution (out, in, h, w), and the bias of the head
    network, shape = models.build(name, classes=len(last), like=(first.shape[1], 28, 28))
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"The checkpoint {path} is not of {name}.",
            expected="its layers",
            found=str(error).splitlines()[-1].strip(),
        ) from None
    return network.eval(), shape
