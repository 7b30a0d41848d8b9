"""Define the rows of what readers hand in: networks (lesson 20), training recipes (lesson 11)."""

from dataclasses import dataclass
from typing import ClassVar

from labkit.ledger.rows._base import Measured, row


@dataclass(frozen=True, kw_only=True)
class Judged(Measured):
    """A judgement on one entry that a reader hands in: a network, or a training recipe.

    The subclasses say what `points` count.
    """

    name: str
    medal: str | None = None  # "gold", "silver" or "bronze"
    points: float | None = None  # times better than the reference, with its interval
    points_low: float | None = None
    points_high: float | None = None
    accuracy: float | None = None  # 0 to 1, with its interval
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    reported_by: str | None = None  # the parcel of somebody else that it came in; None: judged here


@row("submissions", key=("run_key", "name"))
class Scored(Judged):
    """The score of one network that was handed in for the order of lesson 20, the last lesson.

    `points` say how many times better the network is than the reference network.
    """

    # as in `Claim`
    FIGURES: ClassVar = ("points", "points_low", "points_high", "accuracy", "latency", "size_bytes")
    # `accuracy` is the share of changed copies of pictures that are classified correctly; this is
    # the share of the same pictures unchanged, which counts for no medal
    accuracy_originals: float | None = None
    latency: float | None = None  # p95 as a share of the reference network's
    latency_low: float | None = None
    latency_high: float | None = None
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    size_bytes: int | None = None
    cost_per_million_usd: float | None = None
    engine: str | None = None
    precision: str | None = None
    sha256: str | None = None  # of the ONNX file
    seed: int | None = None  # of the pictures it was asked


@row("races", key=("run_key", "name"))
class RaceScore(Judged):
    """The score of one training recipe in the race of lesson 11: the fastest training wins.

    `points` are the seconds of the reference recipe divided by the seconds of this recipe, over all
    seeds.
    """

    # as in `Claim`
    FIGURES: ClassVar = ("points", "points_low", "points_high", "accuracy", "seconds")
    race: str  # "quick", "lab" or "paper"
    dataset: str
    target: float  # mean accuracy that is asked for, 0 to 1
    # `accuracy` is the mean over the seeds
    seconds: float | None = None  # per training, the mean over the seeds
    seeds: int = 0  # number of trainings, one per seed
    recipe: str = ""  # JSON: what it set otherwise than by default
