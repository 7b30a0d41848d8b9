"""Engine files that must not be loaded: damaged ones, and ones that were built for something else."""

import os
import shutil

import numpy as np

from labkit.engines.tensorrt import Settings

FLIPS = 50


def flipped(data, count=FLIPS, seed=0):
    """`count` copies of the bytes, each with one bit turned over: first, last and random places."""
    random = np.random.default_rng(seed)
    places = [0, len(data) - 1, *random.integers(0, len(data), count - 2)]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(8))
        yield bytes(damaged)


# What differs between the file and today: {name: the field that does, and its value today}.
MISMATCHES = {
    "another GPU": {"gpu": "Another GPU"},
    "another GPU generation": {"compute_capability": "12.0"},
    "another version of the library": {"library_version": "9.9.9"},
    "another library": {"library": "tensorrt"},
    "another driver": {"driver": "999.99"},
    "another model": {"onnx_sha256": "0" * 64},
    "other settings": {"settings": Settings(batch=(1, 2, 3)).as_json()},
}


def put(path, data):
    """Write a file in place of whatever stands there."""
    take_away(path)
    path.write_bytes(data)


def take_away(path):
    if not path.is_symlink() and path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def emptied(path):
    put(path, b"")


def cut_short(path):
    put(path, path.read_bytes()[:-1])


def made_elsewhere(path):
    """A file of the right size that someone hands over."""
    put(path, bytes(len(path.read_bytes())))


def pipe(path):
    """Reading it waits for ever."""
    take_away(path)
    os.mkfifo(path)


def endless(path):
    take_away(path)
    path.symlink_to("/dev/zero")


def link_to_itself(path):
    take_away(path)
    path.symlink_to(path)


def folder(path):
    take_away(path)
    path.mkdir()


TAMPERED = (emptied, cut_short, made_elsewhere, pipe, endless, link_to_itself, folder)
