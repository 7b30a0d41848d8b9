"""One score with its interval for each submission, measured by the course in a fresh process."""

import functools
import json
import math
import os
import secrets
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from labkit import device, ledger
from labkit.errors import LabError
from labkit.files import artifacts, atomic
from labkit.ledger.rows import Scored
from labkit.measure.stats import Interval, mean_interval
from labkit.ship.order import LEVELS, QUICK, REFERENCE, SHAPE, USD_PER_HOUR

MAKE_S = 600  # for the function of one submission
DRAWS = 1000  # bootstrap resamples of a percentile
TOO_NOISY = 0.35  # p95 of the reference against itself
_LEFT_OUT = ("LABKIT_ENGINES", "PYTHONSTARTUP", "PYTHONHOME", "LABKIT_RUN_KEY", "LABKIT_STRICT")


@dataclass(frozen=True)
class Score:
    """What the course says of one submission.

    medal     "gold", "silver", "bronze", or None
    points    how many times better than the reference network: the geometric mean of "times as fast at p95" and "times
              as small", an `Interval`; None when it was refused
    accuracy  share of the changed copies answered right, an `Interval` of 0 to 1; the pictures as they are do not count
    latency   p95 as a share of the reference network's, an `Interval`
    reasons   why there is no medal, or not the next one
    facts     {"name", "engine", "precision", "size_bytes", "sha256", "file", "times", ...}: all that was seen
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
        return self.facts.get("refused") is not None

    def __str__(self):
        if self.points is None:
            return f"{self.name}: refused. {self.reasons[0]}"
        figures = (
            f"{100 * self.accuracy.median:.1f} % of the changed copies right, p95 {self.latency} of the reference's"
        )
        size = f"{self.facts['size_bytes'] / 1e3:,.0f} kB"
        next_step = f"\n    {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.name}: {self.medal or 'no medal'}, score {self.points}; {figures}, {size}{next_step}"


def score(submissions, *, plan=QUICK, seed=None, make_s=MAKE_S):
    """Score submissions side by side, in a fresh process that none of them can reach: a list of `Score`.

    plan    how many pictures and rounds
    seed    of the pictures and their changes; None: drawn now, so that nobody knows it before
    make_s  most seconds for a submission's `make`
    """
    jobs = [submission.job() for submission in submissions]
    with tempfile.TemporaryDirectory() as folder:
        job = {"folder": folder, "seed": secrets.randbits(31) if seed is None else seed, "make_s": make_s}
        reference = Path(folder) / "reference.onnx"
        reference.write_bytes(reference_bytes())
        job |= {"images": plan.images, "rounds": plan.rounds, "submissions": jobs, "reference": str(reference)}
        seconds = 120 + len(jobs) * (make_s + 60 + 0.1 * plan.images + 0.2 * plan.rounds)
        found = _judged(job, seconds)
        for each in found:
            _keep_file(each)
    return [_scored(each, job["seed"]) for each in found]


@functools.cache
def reference_bytes():
    """The reference network as the bytes of an ONNX file."""
    import torch

    from labkit.export import to_onnx
    from labkit.models.trained import trained

    with tempfile.TemporaryDirectory() as folder:
        return to_onnx(trained(REFERENCE)[0], torch.zeros(1, *SHAPE), Path(folder) / "reference.onnx").read_bytes()


def _judged(job, seconds):
    """What the judge says; when it does not come to an end, all of its submissions are refused."""
    own = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {name: text for name, text in os.environ.items() if name not in _LEFT_OUT} | own
    command = [sys.executable, "-P", "-W", "ignore", "-m", "labkit.ship._judge"]
    try:
        done = subprocess.run(command, input=json.dumps(job).encode() + b"\n", capture_output=True, timeout=seconds,
                              env=environment, cwd=job["folder"])  # fmt: skip
    except subprocess.TimeoutExpired:
        return [
            {**each, "refused": ("judge", f"It did not end within {seconds:.0f} s.")} for each in job["submissions"]
        ]
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        found = done.stderr.decode(errors="replace")[-800:]
        raise LabError("The process that scores did not come to its end.", found=found) from error


def _keep_file(found):
    """Keep the file of a submission that was judged, under its digest: the card and the leaderboard need it."""
    if not found["refused"]:
        target = artifacts() / "ship" / f"{found['sha256']}.onnx"
        with atomic(target) as temporary:
            temporary.write_bytes(Path(found["file"]).read_bytes())
        found["file"] = str(target)


def _scored(found, seed):
    """A `Score` of what the judge says."""
    found = {**found, "seed": seed}
    if found["refused"]:
        return Score(found["name"], None, (found["refused"][1],), facts=found)
    accuracy = mean_interval(found["right"])
    latency, floor = ratio_of_p95(found["times"], found["reference"]), ratio_of_p95(found["again"], found["reference"])
    smaller = found["reference_bytes"] / found["size_bytes"]
    points = Interval(*(math.sqrt(smaller / each) for each in (latency.high, latency.low)), latency.samples,
                      math.sqrt(smaller / latency.median))  # fmt: skip
    noisy = max(abs(floor.low - 1), abs(floor.high - 1)) > TOO_NOISY
    medal, reasons = _medal(accuracy.median, latency, found["size_bytes"], noisy)
    return Score(found["name"], medal, tuple(reasons), points, accuracy, latency, noisy, found)


def _medal(accuracy, latency, size_bytes, noisy):
    """(the best medal that is earned, or None; what the next one asks for)."""
    missed = []
    for level in LEVELS:
        reasons = level.misses(accuracy, latency.median, size_bytes)
        if noisy and not level.misses(accuracy, 0, size_bytes) and latency.low <= level.latency <= latency.high:
            return None, ["too noisy to judge the latency: score it again when other programs rest"]
        if not reasons:
            return level.name, missed
        missed = reasons
    return None, missed


def ratio_of_p95(times, others, *, q=0.95):
    """p95 of one series as a share of another's, an `Interval`; both [(seconds, seconds without waiting)], in pairs.

    The resamples keep the rounds whole, so that what slowed both down in one round does so in the resample too.
    """
    pairs = np.array([[row[1] for row in times], [row[1] for row in others]])
    picks = np.random.default_rng(0).integers(0, pairs.shape[1], (DRAWS, pairs.shape[1]))
    mine, theirs = np.quantile(pairs[:, picks], q, axis=2)
    low, high = np.quantile(mine / theirs, [0.025, 0.975])
    middle = np.quantile(pairs[0], q) / np.quantile(pairs[1], q)
    return Interval(float(low), float(high), pairs.shape[1], float(middle))


def keep_score(found, *, run_key=None):
    """Write a `Score` to the ledger as a row of the leaderboard; returns the row."""
    machine = device.describe()
    facts, milliseconds = found.facts, [1e3 * row[1] for row in found.facts.get("times", ())]
    p50, p95 = np.quantile(milliseconds, [0.5, 0.95]).tolist() if milliseconds else (None, None)
    row = Scored(
        run_key=run_key or f"submit-{uuid.uuid4().hex[:12]}", name=found.name, device="cpu", threads=1, batch=1,
        medal=found.medal, engine=facts.get("engine"), precision=facts.get("precision"), sha256=facts.get("sha256"),
        size_bytes=facts.get("size_bytes"), latency_p50_ms=p50, latency_p95_ms=p95,
        cost_per_million_usd=USD_PER_HOUR / 3600 * p50 * 1e3 if p50 else None,
        noisy=found.noisy, reason="; ".join(found.reasons)[:500] or None, seed=facts.get("seed"),
        machine_key=machine.machine_key, commit=device.commit(), measured_utc=ledger.now(),
        accuracy_originals=_mean(facts.get("right_before")),
        **_spread("points", found.points), **_spread("accuracy", found.accuracy), **_spread("latency", found.latency),
    )  # fmt: skip
    ledger.add(machine, row)
    return row


def _mean(values):
    return float(np.mean(values)) if values else None


def _spread(name, interval):
    """An interval as three fields of the row."""
    if interval is None:
        return {}
    return {name: interval.median, f"{name}_low": interval.low, f"{name}_high": interval.high}
