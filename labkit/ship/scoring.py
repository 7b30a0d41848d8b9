"""One score with its interval for each submission, from what the judge saw."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labkit.files import atomic
from labkit.ledger.rows import Scored
from labkit.measure.stats import Interval, mean_interval, middle_part
from labkit.ship.judge import judge
from labkit.ship.leaderboard import keep
from labkit.ship.order import LEVELS, QUICK, USD_PER_HOUR, ExamSize, Submission, file_of, medal_of

DRAWS = 1000  # bootstrap resamples of a percentile
TOO_NOISY = 0.35  # p95 of the reference against itself


@dataclass(frozen=True)
class Score:
    """What the course says of one submission.

    medal     "gold", "silver", "bronze", or None
    points    how many times better than the reference network: the geometric mean of "times as fast at p95" and "times
              as small", an `Interval`; None when it was refused
    accuracy  share of the changed copies answered right, an `Interval` of 0 to 1; the pictures as they are do not count
    latency   p95 as a share of the reference network's, an `Interval`
    reasons   why there is no medal, or not the next one
    facts     {"engine", "precision", "size_bytes", "sha256", "times", ...}: all that was seen
    """

    name: str
    medal: str | None
    reasons: tuple
    points: Interval | None = None
    accuracy: Interval | None = None
    latency: Interval | None = None
    noisy: bool = False
    facts: dict = field(default_factory=dict, repr=False)

    @property
    def refused(self):
        """Whether a gate refused it; a submission that is merely not good enough is not refused."""
        return self.points is None

    def __str__(self):
        if self.refused:
            return f"{self.name}: refused. {self.reasons[0]}"
        figures = (
            f"{100 * self.accuracy.median:.1f} % of the changed copies right, p95 {self.latency} of the reference's"
        )
        size = f"{self.facts['size_bytes'] / 1e3:,.0f} kB"
        next_step = f"\n    {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.name}: {self.medal or 'no medal'}, score {self.points}; {figures}, {size}{next_step}"


def score(submissions: Sequence[Submission], *, size: ExamSize = QUICK, seed: int | None = None) -> list[Score]:
    """Score submissions side by side, each served by a process of its own: a list of `Score`.

    size  how many pictures and rounds
    seed  of the pictures and their changes; None: drawn when all is loaded, so that nobody knows it before
    """
    judged = judge(submissions, size, seed)
    return [_scored(entry, _facts(entry, judged)) for entry in judged.entries]


def _facts(entry, judged):
    """All that was seen of a submission, with the samples behind its score."""
    found = {
        "engine": entry.submission.engine,
        "precision": entry.precision,
        "size_bytes": len(entry.content),
        "sha256": hashlib.sha256(entry.content).hexdigest(),
        "seed": judged.seed,
        "times": entry.times,
        "reference": judged.reference.times,
        "again": judged.again.times,
        "reference_bytes": len(judged.reference.content),
    }
    if entry.answers is not None:
        for name, each in (("right", entry), ("reference_right", judged.reference)):
            before, copies = judged.exam.forms(judged.exam.right(each.answers))
            found |= {name: copies.tolist(), f"{name}_before": before.tolist()}
    return found


def _scored(entry, facts):
    """The `Score` of an entry. The file of one that is not refused is stored: the card needs it."""
    name = entry.submission.title
    if entry.refused:
        return Score(name, None, (entry.refused,), facts=facts)
    with atomic(file_of(facts["sha256"])) as temporary:
        temporary.write_bytes(entry.content)
    accuracy = mean_interval(facts["right"])
    latency = ratio_of_p95(facts["times"], facts["reference"])
    floor = ratio_of_p95(facts["again"], facts["reference"])
    smaller = facts["reference_bytes"] / facts["size_bytes"]
    low, middle, high = (math.sqrt(smaller / each) for each in (latency.high, latency.median, latency.low))
    points = Interval(low, high, latency.samples, middle)
    noisy = max(abs(floor.low - 1), abs(floor.high - 1)) > TOO_NOISY
    medal, reasons = _medal(accuracy.median, latency, facts["size_bytes"], noisy=noisy)
    return Score(name, medal, reasons, points, accuracy, latency, noisy, facts)


def _medal(accuracy, latency, size_bytes, *, noisy):
    """(the best medal that is earned, or None; what the next one asks for)."""
    slow, usual, fast = (medal_of(accuracy, p95, size_bytes) for p95 in (latency.high, latency.median, latency.low))
    if noisy and slow != fast:
        return None, ("too noisy to judge the latency: score it again when other programs rest",)
    missed = [level.misses(accuracy, latency.median, size_bytes) for level in LEVELS]
    missed = [reasons for reasons in missed if reasons]
    return usual, tuple(missed[-1]) if missed else ()


def ratio_of_p95(times: Any, others: Any) -> Interval:
    """p95 of one series as a share of another's, an `Interval`; both in seconds, in pairs.

    The resamples keep the rounds whole, so that what slowed both down in one round does so in the resample too.
    """
    pairs = np.array([times, others])
    rounds = pairs.shape[1]
    picks = np.random.default_rng(0).integers(0, rounds, (DRAWS, rounds))
    mine, theirs = np.quantile(pairs[:, picks], 0.95, axis=2)
    return middle_part(mine / theirs, rounds, np.divide(*np.quantile(pairs, 0.95, axis=1)))


def keep_score(found: Score, *, run_key: str | None = None) -> Any:
    """Write a `Score` to the ledger as a row of the leaderboard; returns the row."""
    facts = {name: found.facts.get(name) for name in ("engine", "precision", "sha256", "seed")}
    if not found.refused:
        p50, p95 = np.quantile(found.facts["times"], [0.5, 0.95]).tolist()
        facts |= {
            "size_bytes": found.facts["size_bytes"],
            "latency_p50_ms": 1e3 * p50,
            "latency_p95_ms": 1e3 * p95,
            "cost_per_million_usd": 1e6 * p50 * USD_PER_HOUR / 3600,
            "accuracy_originals": float(np.mean(found.facts["right_before"])),
        }
    facts |= {"noisy": found.noisy, "reason": "; ".join(found.reasons)[:500] or None}
    return keep(Scored, found, run_key=run_key, device="cpu", threads=1, batch=1, **facts)
