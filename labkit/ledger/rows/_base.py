"""What a row is, and what rows have in common: whose run it was (`OfRun`), and on what it was
measured (`Measured`).
"""

from dataclasses import dataclass
from typing import dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True)
def row(table, *, key=("run_key",)):
    """Makes a class a row of that table, by default one a run: a frozen dataclass whose fields
    are given by name.
    """

    def make(kind):
        kind.TABLE, kind.KEY = table, key
        return dataclass(frozen=True, kw_only=True)(kind)

    return make


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """What belongs to one run of a notebook."""

    run_key: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured, and on what; `lesson.keep` fills in `run_key` (and `name`)."""

    run_key: str = ""
    device: str
    threads: int | None = None
    batch: int | None = None
    noisy: bool | None = None
    reason: str | None = None  # why numbers are missing
    machine_key: str | None = None
    commit: str | None = None
    measured_utc: str | None = None
    experiment: str | None = None  # slug of the one that it belongs to; None: that of its lesson
    network: str | None = None  # its name, such as convnext-homebrew
