"""Engine files that must not be loaded: damaged ones, and ones that were built for something else."""

from dataclasses import replace

import numpy as np

from labkit.engines.tensorrt import Settings, trust
from labkit.engines.tensorrt.trust import sidecar

FLIPS = 50


def flipped(data, count=FLIPS, seed=0):
    """`count` copies of the bytes, each with one bit turned over: first, last and random places."""
    random = np.random.default_rng(seed)
    places = [0, len(data) - 1, *random.integers(0, len(data), count - 2)]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(8))
        yield bytes(damaged)


# What differs between the file and today: {name: (field of the facts, or model or settings, a word of the refusal)}.
MISMATCHES = {
    "another GPU": {"gpu": "Another GPU"},
    "another GPU generation": {"compute_capability": "12.0"},
    "another version of the library": {"library_version": "9.9.9"},
    "another library": {"library": "tensorrt"},
    "another driver": {"driver": "999.99"},
    "another model": {"onnx_sha256": "0" * 64},
    "other settings": {"settings": Settings(batches=((1, 2, 3),)).as_json()},
}


def mismatched(name, about):
    """`about` (the keyword arguments of `trust.vouched`) as it would be on the machine of that mismatch."""
    change = dict(MISMATCHES[name])
    mine = {key: change.pop(key) for key in ("onnx_sha256", "settings") if key in change}
    return {**about, **mine, "facts": replace(about["facts"], **change)}


def no_sidecar(path):
    sidecar(path).unlink()


def broken_sidecar(path):
    sidecar(path).write_text('{"sha256": ')


def sidecar_of_other_fields(path):
    sidecar(path).write_text('{"sha256": 1, "cmd": "rm"}')


def endless_sidecar(path):
    sidecar(path).write_text("[" * 200_000)


def nested_sidecar(path):
    sidecar(path).write_text("[" * 90_000)


def not_built_here(path):
    """A file with a perfect sidecar, as someone might hand it over."""
    data = path.read_bytes() + b"more"
    path.write_bytes(data)
    told = sidecar(path).read_text(encoding="utf-8")
    sidecar(path).write_text(told.replace(trust.told(path).sha256, trust.hashlib.sha256(data).hexdigest()))


def emptied(path):
    path.write_bytes(b"")


TAMPERED = (
    *(no_sidecar, broken_sidecar, sidecar_of_other_fields, endless_sidecar, nested_sidecar, not_built_here, emptied),
)
