"""Write checkpoints, whole or not at all, and continue a training as if it had never stopped.

A checkpoint is one file of `torch.save`, renamed into its place when it is complete. It is read
with `weights_only=True`: tensors and plain values only, and nothing in the file is ever executed.
For plain torch:

    contents = torch.load(path, weights_only=True)
    contents["state"]["tested"]  # the state dict of the network that was tested
    contents["state"]["model"]   # the state dict of the last weights; they differ where a method
                                 # such as `ema` leaves an average
    contents["facts"]["config"]  # the `TrainConfig`, as a dict
    contents["facts"]["history"] # losses, accuracy and seconds of each epoch
"""

import pickle
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from labkit import device as devices
from labkit import models
from labkit.errors import LabError
from labkit.files import atomic

if TYPE_CHECKING:
    from labkit.train.config import TrainConfig
    from labkit.train.loop import History

_FORMAT = "labkit checkpoint 2"
# how the order of the images is drawn; a checkpoint without this entry used the sum of both
_ORDER_OF_IMAGES = "hash of seed and epoch"
# settings that may differ: they do not change what is learned, except the number of epochs
_MAY_DIFFER = {"workers", "pin_memory", "phases", "cudnn_autotuner", "epochs"}
_STORED_HISTORY = ("losses", "accuracy", "epoch_seconds", "epoch_phases")
_UNPICKLED = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    EOFError,
    pickle.UnpicklingError,
)
_DAMAGE = (*_UNPICKLED, IsADirectoryError, zipfile.BadZipFile)
_MOVE_AWAY = "or move it away and train from the start"


class CheckpointError(LabError):
    """A file that is damaged, no checkpoint, or one of another training."""


def save_checkpoint(path, state, facts):
    """Write a checkpoint, whole or not at all. Returns the path.

    path   ending in .pt
    state  nested dicts, lists and tuples of tensors and plain values
    facts  {name: plain value} that describe the training
    """
    # torch.save writes into an open file, whose OSError says why a write is refused
    with atomic(path) as temporary, temporary.open("wb") as file:
        torch.save({"format": _FORMAT, "state": state, "facts": facts}, file)
    return Path(path)


def load_checkpoint(path):
    """Read a checkpoint. Returns (state, facts), or None if the file is missing.

    Raises  CheckpointError when the file is damaged, or is no checkpoint
    """
    path = Path(path)
    if not path.exists():
        return None
    with _explained(f"The file {path} is damaged.", f"put back a good copy, {_MOVE_AWAY}"):
        # torch.save writes a zip, but torch.load does not compare its checksums
        with zipfile.ZipFile(path) as file:
            broken = file.testzip()
        if broken:
            raise ValueError(f"{broken} has another checksum")
    another = f"The file {path} is whole, but no checkpoint of this labkit."
    with _explained(another, f"for weights alone: labkit export NETWORK --weights {path}"):
        contents = torch.load(path, map_location="cpu", weights_only=True)
        if contents["format"] != _FORMAT:
            raise ValueError(f"format {contents['format']!r}")
        return contents["state"], contents["facts"]


@contextmanager
def _explained(problem, fix):
    """Raise CheckpointError, with this problem and fix, for errors that a file's contents cause."""
    try:
        yield
    except _DAMAGE as error:
        if devices.is_out_of_memory(error):
            raise
        if isinstance(error, pickle.UnpicklingError):
            found = "objects other than tensors and plain values"
        else:
            found = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise CheckpointError(
            problem,
            expected=f"a file of {_FORMAT!r} as `labkit train` writes it",
            found=found,
            fix=fix,
        ) from None


class Checkpoint:
    """The checkpoint of a training: everything that decides how the training goes on.

    path        ending in .pt; None: nothing is read or written
    components  {name: anything with state_dict() and load_state_dict(...)}
    data        the training images, whose number and digest are stored
    """

    def __init__(self, path, components, config, data, device):
        self.path = path
        self.components = components
        self.config = config
        self.device = device
        self.data = {
            "images": len(data),
            "digest": getattr(data, "digest", None),
            "order": _ORDER_OF_IMAGES,
        }

    def restore(self, history):
        """Load the checkpoint, if it exists, into the components and into `history`.

        A training may be continued with another number of epochs. With a constant rate the result
        is that of a training begun with the new number. Other schedules, and images that grow,
        follow the new number from here on; `length_remarks` says so. `history.lengthened` keeps the
        earlier numbers.

        Raises  CheckpointError when the file is damaged, or of another or a longer training
        """
        contents = load_checkpoint(self.path) if self.path else None
        if contents is None:
            return
        state, facts = contents
        advice = (
            f"`labkit export {self.path}` may still write its network; train under another name, "
            f"{_MOVE_AWAY}"
        )
        with _explained(
            f"The file {self.path} is whole, but this training cannot go on from it.", advice
        ):
            self._require_same_training(facts)
            # The network, the optimizer and the others, and the random numbers.
            for name, component in self.components.items():
                component.load_state_dict(state.get(name, {}))
            devices.set_rng_state(self.device, state["rng"])
            # The history so far, and the number of epochs that was planned.
            for name in _STORED_HISTORY:
                setattr(history, name, list(facts["history"][name]))
            history.restored = len(history.epoch_seconds)
            history.lengthened = facts.get("lengthened", [])
            planned = facts["config"]["epochs"]
            if planned != self.config.epochs:
                history.lengthened = [*history.lengthened, planned]

    def _require_same_training(self, facts):
        """Raise CheckpointError where the checkpoint is of another training or has too many epochs.

        A setting that the checkpoint does not have yet had its default.
        """
        done = len(facts["history"]["epoch_seconds"])
        if done > self.config.epochs:
            raise CheckpointError(
                f"The checkpoint {self.path} is of a longer training.",
                expected=f"at most {self.config.epochs} epochs",
                found=f"{done} epochs, which cannot be taken back",
                fix="ask for more epochs, or train under another name",
            )
        ours = {**self.data, **asdict(self.config)}
        defaults = {field.name: field.default for field in fields(self.config)}
        theirs = {"order": "sum of seed and epoch", **defaults, **facts, **facts["config"]}
        differ = [
            name for name in ours if name not in _MAY_DIFFER and ours[name] != theirs.get(name)
        ]
        if differ:
            raise CheckpointError(
                f"The checkpoint {self.path} is of another training.",
                expected=", ".join(f"{name} {ours[name]!r}" for name in differ),
                found=", ".join(f"{name} {theirs.get(name)!r}" for name in differ),
                fix=f"use the same settings, or train under another name, {_MOVE_AWAY}",
            )

    def save(self, history, tested):
        """Write the checkpoint after an epoch.

        history  the `History` so far
        tested   the network that was tested: the trained one or an average
        """
        if self.path:
            state = {name: component.state_dict() for name, component in self.components.items()}
            # if this is the trained network, torch.save writes its tensors only once
            state["tested"] = tested.state_dict()
            state["rng"] = devices.rng_state(self.device)
            remembered = {name: getattr(history, name) for name in _STORED_HISTORY}
            facts = {"config": asdict(self.config), **self.data, "history": remembered}
            save_checkpoint(self.path, state, facts | {"lengthened": history.lengthened})


def length_remarks(history: "History", config: "TrainConfig") -> Iterator[str]:
    """Yield a sentence for a training that was continued with another number of epochs.

    The sentence says whether the result is that of a training begun with this number.
    """
    if not history.lengthened:
        return
    before = " and ".join(map(str, history.lengthened))
    follows = []
    if config.schedule != "constant":
        follows.append(f"the schedule {config.schedule}")
    if config.first_size is not None:
        follows.append("the size of the growing images")
    if follows:
        yield (
            f"It was begun for {before} epochs, and {' and '.join(follows)} went by that number; "
            "from there on by "
            f"{config.epochs}. This is not the training of {config.epochs} epochs from the start."
        )
    else:
        yield (
            f"It was begun for {before} epochs, and is now that of {config.epochs} "
            "epochs from the start."
        )


def restored(checkpoint):
    """Return the network of a checkpoint that was tested: an average, where the training left one.

    checkpoint  path of the file, named `DATASET-MODEL.pt`, or `DATASET-MODEL.NAME.pt`
    returns     (network in eval mode, its name, name of the data set, shape of an input without the
                batch)
    Raises      CheckpointError when the file is damaged, or its weights fit no network of the
                course; LabError when it is missing, or its name names no network
    """
    path = Path(checkpoint)
    stem = re.sub(r"\.[\w-]+$", "", path.stem)  # without .NAME
    names = [name for name in models.names() if stem.endswith(f"-{name}")]
    name = max(names, key=len, default=None)
    contents = load_checkpoint(path) if name else None
    if contents is None:
        problem = f"{path.name} does not say which network it is of."
        if name:
            problem = f"There is no checkpoint {path}."
        raise LabError(
            problem,
            expected="a file DATASET-MODEL.pt or DATASET-MODEL.NAME.pt, with a MODEL of "
            + " or ".join(models.names()),
            found=path.name,
            fix="train one with `labkit train`, or rename it",
        )
    state, facts = contents
    with _explained(
        f"The file {path} is whole, but holds no network of labkit.",
        "train one with `labkit train`",
    ):
        network, shape = _network(path, name, _tested_weights(state, facts))
        side = facts.get("config", {}).get("size")
        shape = (shape[0], side, side) if side else shape
    return network, name, stem.removesuffix(f"-{name}"), shape


def _tested_weights(state, facts):
    """Return the weights of the network that was tested: {name: tensor}.

    Files of earlier editions do not store them. For these files the average is put together from
    the state of the method; its running statistics are those of the last weights, as in the test
    then.
    """
    config = facts.get("config", {})
    if "tested" in state:
        return state["tested"]
    if config.get("ema") is not None:
        average = {name: tensor for name, tensor in state["ema"].items() if name != "n_averaged"}
        return {name.removeprefix("module."): tensor for name, tensor in average.items()}
    tested = dict(state["model"])
    if config.get("optimizer") == "schedule_free":
        for group in state["optimizer"]["param_groups"]:
            for index, name in zip(group["params"], group["param_names"], strict=True):
                tested[name] = state["optimizer"]["state"].get(index, {}).get("x", tested[name])
    return tested


def _network(path, name, weights):
    """Return (network in eval mode with these weights, shape of its input without the batch).

    path  of the checkpoint, for the error
    name  of the network
    """
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
