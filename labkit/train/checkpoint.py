"""Checkpoints that are whole or not there: tensors as safetensors, everything else and the hash in a JSON sidecar.

The sidecar `NAME.json` is written last and names the file of the tensors by its hash, so a kill at any moment leaves
the checkpoint before or the one after. Nothing in either file is ever executed on loading.
"""

import hashlib
import json
from pathlib import Path

from labkit.errors import LabError
from labkit.files import atomic, sha256, write_json

FORMAT = "labkit checkpoint 1"
SIMPLE = (str, int, float, bool, type(None))


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
    packed = pack(state, tensors)
    data = save(tensors)
    digest = hashlib.sha256(data).hexdigest()
    weights = path.with_name(f"{path.stem}-{digest[:16]}.safetensors")
    with atomic(weights) as temporary:
        temporary.write_bytes(data)
    write_json(path, {"format": FORMAT, "weights": weights.name, "sha256": digest, **facts, "state": packed})
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
    try:
        sidecar = json.loads(path.read_text(encoding="utf-8"))
        known, name, wanted = sidecar.pop("format") == FORMAT, sidecar.pop("weights"), sidecar.pop("sha256")
        packed = sidecar.pop("state")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise damaged(path, "a sidecar in JSON", f"{type(error).__name__}: {error}") from None
    if not known or Path(name).name != name:
        raise damaged(path, f"format {FORMAT!r} and a file name beside it", f"{name!r}")
    weights = path.with_name(name)
    found = sha256(weights) if weights.is_file() else "no such file"
    if found != wanted:
        raise damaged(weights, f"sha256 {wanted}", found)
    return unpack(packed, load_file(weights)), sidecar


def damaged(path, expected, found):
    return CheckpointError(
        f"The checkpoint {path} is damaged.",
        expected=expected,
        found=found,
        fix="put back a good copy, or delete it and train from the start",
    )


def pack(value, tensors, name="state"):
    """`value` with each tensor moved into the dict `tensors`, and dicts as pairs (a key in JSON is always text)."""
    import torch

    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().cpu().clone().contiguous()  # a copy: two names may share one tensor
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, pack(inner, tensors, f"{name}.{key}")] for key, inner in value.items()]}
    if isinstance(value, (list, tuple)):
        inner = [pack(each, tensors, f"{name}.{place}") for place, each in enumerate(value)]
        return {type(value).__name__: inner}
    if isinstance(value, SIMPLE):
        return value
    raise CheckpointError(
        f"{name} cannot be kept in a checkpoint.", expected="tensors and plain values", found=type(value).__name__
    )


def unpack(packed, tensors):
    """The inverse of `pack`."""
    if not isinstance(packed, dict):
        return packed
    ((kind, inner),) = packed.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "dict":
        return {key: unpack(value, tensors) for key, value in inner}
    items = [unpack(value, tensors) for value in inner]
    return tuple(items) if kind == "tuple" else items
