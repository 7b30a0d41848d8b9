"""Checkpoints that are whole or not there, and going on from one as if the training had never stopped.

Tensors stand as safetensors, everything else and the hash in a JSON sidecar. The sidecar `NAME.json` is written last
and names the file of the tensors by its hash, so a kill at any moment leaves the checkpoint before or the one after.
Nothing in either file is ever executed on loading.
"""

import hashlib
import json
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

import torch

from labkit import device as devices
from labkit import models
from labkit.errors import LabError
from labkit.files import atomic, sha256, write_json

_FORMAT = "labkit checkpoint 1"
_FREE = {"workers", "pin_memory", "phases", "cudnn_autotuner"}  # these do not change what is learned
_LARGEST = 100_000_000  # bytes of a sidecar: the losses of some four million steps
_SIDES = range(8, 4097)  # of images, in pixels
_REMEMBERED = ("losses", "accuracy", "epoch_seconds", "epoch_phases")


class CheckpointError(LabError):
    """A checkpoint that is damaged, or of another training."""


def save_checkpoint(path, state, facts):
    """Write a checkpoint; the one before is removed once this one is safe.

    path   of the sidecar, ending in .json
    state  nested dicts, lists and tuples of tensors and plain values
    facts  a dict that JSON can hold, readable in the sidecar
    """
    from safetensors.torch import save

    path, tensors = Path(path), {}
    packed = _pack(state, tensors)
    data = save(tensors)
    digest = hashlib.sha256(data).hexdigest()
    weights = path.with_name(f"{path.stem}-{digest[:16]}.safetensors")
    with atomic(weights) as temporary:
        temporary.write_bytes(data)
    write_json(path, {"format": _FORMAT, "weights": weights.name, "sha256": digest, **facts, "state": packed})
    for old in path.parent.glob(f"{path.stem}-{'[0-9a-f]' * 16}.safetensors"):
        if old.name != weights.name:
            old.unlink(missing_ok=True)
    return path


def load_checkpoint(path):
    """(state, facts) of a checkpoint; None when there is none. Raises CheckpointError when it is damaged."""
    from safetensors.torch import load_file

    path = Path(path)
    if not path.exists():
        return None
    with _whole(path):
        facts = json.loads(_sidecar(path))
        known, name, wanted, packed = (facts.pop(key) for key in ("format", "weights", "sha256", "state"))
        weights = path.with_name(name)
        found = sha256(weights) if weights.is_file() else "no such file"
        if known == _FORMAT and found == wanted:
            return _unpack(packed, load_file(weights)), facts
        raise _damaged(path, f"format {known!r} and {name!r} with {found}", wanted)


def _sidecar(path):
    """The text of a sidecar; a pipe would be waited for without end, and a sparse file read whole."""
    if not path.is_file():
        raise _damaged(path, "something that is not a file")
    if (size := path.stat().st_size) > _LARGEST:
        raise _damaged(path, f"a sidecar of {size} bytes, more than {_LARGEST}")
    return path.read_text(encoding="utf-8")


@contextmanager
def _whole(path):
    """Inside, contents of another shape than `save_checkpoint` writes are a CheckpointError, whatever they break."""
    from safetensors import SafetensorError

    malformed = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, SafetensorError)
    try:
        yield
    except malformed as error:
        if devices.is_out_of_memory(error):
            raise
        raise _damaged(path, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from None


def _damaged(path, found, wanted="its own"):
    return CheckpointError(
        f"The checkpoint {path} is damaged.",
        expected=f"a sidecar of {_FORMAT!r} and a file of tensors beside it with the sha256 {wanted}",
        found=found,
        fix="put back a good copy, or delete it and train from the start",
    )


def _pack(value, tensors, name="state"):
    """`value` with each tensor moved into the dict `tensors`, and dicts as pairs (a key in JSON is always text)."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().cpu().clone().contiguous()  # a copy: two names may share one tensor
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, _pack(inner, tensors, f"{name}.{key}")] for key, inner in value.items()]}
    if isinstance(value, (list, tuple)):
        inner = [_pack(each, tensors, f"{name}.{place}") for place, each in enumerate(value)]
        return {type(value).__name__: inner}
    return value


def _unpack(packed, tensors):
    """The inverse of `_pack`."""
    if not isinstance(packed, dict):
        return packed
    ((kind, inner),) = packed.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "dict":
        return {key: _unpack(value, tensors) for key, value in inner}
    items = [_unpack(value, tensors) for value in inner]
    return tuple(items) if kind == "tuple" else items


class Checkpoint:
    """Everything that decides how a training goes on, in one place.

    path   of the sidecar; None: nothing is kept
    parts  {name: anything with state_dict() and load_state_dict(...)}
    """

    def __init__(self, path, parts, config, data, device):
        self.path, self.parts, self.config, self.device = path, parts, config, device
        self.data = {"images": len(data), "digest": getattr(data, "digest", None)}

    def restore(self, history):
        """Put what was kept into the parts and into `history`; without a checkpoint all stay as they are."""
        found = load_checkpoint(self.path) if self.path else None
        if found is None:
            return
        state, facts = found
        with _whole(self.path):
            self._refuse_another(facts)
            if "average" in state:  # as an average of the weights was called once
                state["ema"] = state["average"]
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
        """Keep everything after an epoch."""
        if self.path:
            state = {name: part.state_dict() for name, part in self.parts.items()}
            state["rng"] = devices.rng_state(self.device)
            kept = {name: getattr(history, name) for name in _REMEMBERED}
            save_checkpoint(self.path, state, {"config": asdict(self.config), **self.data, "history": kept})


def restored(checkpoint):
    """(network in eval mode, its name, the data set's name, the shape of an input without the batch) of a checkpoint.

    checkpoint  path of the sidecar, named `DATASET-MODEL.json`
    Raises      CheckpointError when it is damaged, or its name or its weights fit no network of the course
    """
    path = Path(checkpoint)
    name = max((name for name in models.names() if path.stem.endswith(f"-{name}")), key=len, default=None)
    found = load_checkpoint(path) if name else None
    if found is None:
        raise LabError(
            f"There is no checkpoint {path}." if name else f"{path.name} does not say which network it is of.",
            expected="a file DATASET-MODEL.json, with a MODEL of " + " or ".join(models.names()),
            found=path.name,
            fix="train one with `labkit train`, or rename it",
        )
    with _whole(path):
        weights, size = found[0]["model"], found[1].get("config", {}).get("size")
        first, *_, last = weights.values()  # a convolution (out, in, h, w), and the bias of the head
        torch.manual_seed(0)
        try:
            network, shape = models.build(name, classes=len(last), like=(first.shape[1], 28, 28))
            network.load_state_dict(weights)
        except RuntimeError as error:
            raise CheckpointError(
                f"The checkpoint {path} is not of {name}.",
                expected="its layers",
                found=str(error).splitlines()[-1].strip(),
            ) from None
        if size is not None and size not in _SIDES:
            raise _damaged(path, f"images of size {size!r}")
        shape = (shape[0], int(size), int(size)) if size else shape
    return network.eval(), name, path.stem.removesuffix(f"-{name}"), shape
