"""Define the base classes of the rows: `OfRun` (of a run), `Measured` (measured on a machine)."""

from dataclasses import dataclass
from typing import dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True)
def row(table, *, key=("run_key",)):
    """Return a class decorator that makes a class the row class of a table.

    The class becomes a frozen dataclass, whose fields are given by name.

    key  the fields that make a row unique; by default a run has one row
    """

    def make(kind):
        kind.TABLE, kind.KEY = table, key
        return dataclass(frozen=True, kw_only=True)(kind)

    return make


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """A row that belongs to one run of a notebook."""

    run_key: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A row that was measured on a device of a machine.

    `labkit.lesson.keep`, which writes measured rows to the ledger, fills in `run_key`, and an empty
    `name`.
    """

    run_key: str = ""
    device: str
    threads: int | None = None
    batch: int | None = None
    noisy: bool | None = None
    reason: str | None = None  # why numbers are missing
    machine_key: str | None = None
    commit: str | None = None
    measured_utc: str | None = None
    experiment: str | None = None  # slug of the published experiment; None: that of its lesson
    network: str | None = None  # name of the network, such as convnext-homebrew
