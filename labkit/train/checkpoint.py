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
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

import torch

from labkit import device as devices
from labkit.errors import LabError
from labkit.files import atomic
from labkit.train.config import TrainConfig
from labkit.train.history import History

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
    """The error for a file that is damaged, is no checkpoint, or belongs to another training."""


def save_checkpoint(path, state, facts):
    """Write a checkpoint as one file. Returns its path.

    A write that is interrupted leaves the file that was there before.

    path   ends in .pt
    state  nested dicts, lists and tuples of tensors and plain values
    facts  {name: plain value} that describe the training
    """
    # torch.save writes into an open file, whose OSError says why a write is refused
    with atomic(path) as temporary, temporary.open("wb") as file:
        torch.save({"format": _FORMAT, "state": state, "facts": facts}, file)
    return Path(path)


def load_checkpoint(path):
    """Read a checkpoint. Returns (state, facts) as `save_checkpoint` got them; None without a file.

    Raises  CheckpointError when the file is damaged, or is no checkpoint
    """
    path = Path(path)
    if not path.exists():
        return None
    with damage_in_words(f"The file {path} is damaged.", f"put back a good copy, {_MOVE_AWAY}"):
        # torch.save writes a zip, but torch.load does not compare its checksums
        with zipfile.ZipFile(path) as file:
            broken = file.testzip()
        if broken:
            raise ValueError(f"{broken} has another checksum")
    another = f"The file {path} is whole, but no checkpoint of this labkit."
    with damage_in_words(another, f"for weights alone: labkit export NETWORK --weights {path}"):
        contents = torch.load(path, map_location="cpu", weights_only=True)
        if contents["format"] != _FORMAT:
            raise ValueError(f"format {contents['format']!r}")
        return contents["state"], contents["facts"]


@contextmanager
def damage_in_words(problem, fix):
    """Raise CheckpointError in place of an error that a file's contents cause, in the `with` block.

    problem  what is wrong, as a sentence
    fix      what the user can do
    """
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

    path        path of the file, which ends in .pt; None: nothing is read or written
    components  {name: object with state_dict() and load_state_dict(...)}, such as the optimizer
    config      the `TrainConfig`
    data        the training images; the file holds their number and digest
    device      whose random numbers the file holds
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
        """Load the checkpoint, if the file exists, into the components and into `history`.

        A training may be continued with another number of epochs; `history.lengthened` keeps the
        earlier numbers. With a constant rate, the result is that of a training begun with the new
        number. With another schedule, or with images that grow, it is not: rate and size follow the
        new number only from here on. `length_remarks` says which case it is.

        Raises  CheckpointError when the file is damaged, when it is of another training, or when it
                has more epochs than this training
        """
        contents = load_checkpoint(self.path) if self.path else None
        if contents is None:
            return
        state, facts = contents
        advice = (
            f"`labkit export {self.path}` may still write its network; train under another name, "
            f"{_MOVE_AWAY}"
        )
        with damage_in_words(
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

        The settings of `_MAY_DIFFER` may differ. A setting that is newer than the checkpoint counts
        as having had its default.

        facts  as `load_checkpoint` returns them
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


def length_remarks(history: History, config: TrainConfig) -> Iterator[str]:
    """Yield one sentence where a training was continued with another number of epochs, else none.

    The sentence says whether the result equals that of a training begun with this number.
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
