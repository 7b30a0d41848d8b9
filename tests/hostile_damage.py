"""What a mutation is, and the two ways to break a file that all of them share."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One kind of damage.

    name    what is wrong, in words
    file    a part of the file name the error must show
    damage  (folder): makes the damaged input in an empty folder
    attack  (tools, folder): uses it
    """

    name: str
    file: str
    damage: Callable
    attack: Callable


def flip(data, at):
    """The bytes with one bit turned; `at` is a share of the length."""
    place = min(int(at * len(data)), len(data) - 1)
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def cut(share):
    """A change that keeps so much of the bytes."""
    return lambda data: data[: int(share * len(data))]


def edit(path, change):
    """Rewrite a file with `change(bytes)`."""
    path.write_bytes(change(path.read_bytes()))
