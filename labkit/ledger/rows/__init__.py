"""Define the typed rows of the ledger.

A row is a frozen dataclass: units stand in the field names, and None means unknown, never 0.
TABLE is the name of its table. KEY are the fields that make a row unique: a row that is written
with the same key replaces the earlier one, so that running a cell twice does not count twice.
"""

from labkit.device.machine import Machine  # noqa: F401 (a row of the ledger like those below)
from labkit.ledger.rows._base import Measured  # noqa: F401 (what measured rows have in common)
from labkit.ledger.rows._delivered import RaceScore, Scored  # noqa: F401
from labkit.ledger.rows._measured import Deployment, Latency, Memory, Ratio, Training  # noqa: F401
from labkit.ledger.rows._runs import (  # noqa: F401
    EDITION,
    PROFILES,
    Answer,
    Attempt,
    Batch,
    Claim,
    Completion,
    Decision,
    LessonAnswer,
    OwnResult,
    Prediction,
    Run,
)
