"""The judge of the last lesson: lets each file answer an exam, looks for cheating, and scores.

This returns a list with a `Score` for each file:

    score([Submission("int8.onnx", engine="onnxruntime", name="Ada")])

The exam is drawn after all files have been read, and its labels are not passed to the process of a
file. Each file is loaded in a new process, which has a folder of its own, and limits of memory and
computing time. In that process the file and the reference network answer in turn.

One risk remains: a file could exploit a security hole of the library that reads it. Run the judge
in a container to be safe from that.
"""

import hashlib
import math
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labkit import engines
from labkit.capstone.answering import answer_exam, in_batches, on_arrays
from labkit.capstone.exam import QUICK, Exam, ExamSize, draw_exam
from labkit.capstone.gates import require_as_written, require_steady, require_unseen
from labkit.capstone.order import (
    SHAPE,
    USD_PER_HOUR,
    Submission,
    interval_fields,
    medal_and_reasons,
    reason_of,
    reference_bytes,
    store_row,
    stored_file,
)
from labkit.device.child import run_in_child
from labkit.errors import LabError, require_known
from labkit.files import atomic
from labkit.ledger.rows import Scored
from labkit.measure.stats import Interval, mean_interval
from labkit.measure.tails import ratio_of_p95

COMPUTE_S = 300  # seconds of computing that the process of one file may use
# share by which p95 of the reference network may differ from its own p95 in a second session
MAX_NOISE = 0.35


@dataclass(frozen=True)
class Score:
    """The score of one submission, and the figures that it follows from.

    name      the submission's title on the leaderboard
    medal     "gold", "silver", "bronze", or None
    reasons   texts: why the submission was refused, or else what it misses for the next better
              medal
    points    how many times better than the reference network, an `Interval`: the geometric mean of
              "times as fast at p95" and "times as small". None when the submission was refused
    accuracy  share of the changed copies answered right, an `Interval` of 0 to 1; the originals do
              not count
    latency   p95 of the submission over p95 of the reference network, an `Interval`. From both, the
              time of a network that computes nothing is subtracted. Medals depend on this ratio;
              the points depend on the ratio of whole calls
    noisy     True where two sessions of the reference network differ by more than `MAX_NOISE`
    facts     {name: value} of all that was measured: "engine", "seed", "size_bytes" and "sha256" of
              the file, and what `_facts_of` returns
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
        """Return whether the judge refused the submission, as a cheat or a broken file.

        A submission that only earns no medal is not refused.
        """
        return self.points is None

    def __str__(self):
        if self.refused:
            return f"{self.name}: refused. {self.reasons[0]}"
        right = f"{100 * self.accuracy.median:.1f} % of the changed copies right"
        p95 = f"p95 without the floor of a call {self.latency} of the reference's"
        figures = f"{right}, {p95}, {self.facts['size_bytes'] / 1e3:,.0f} kB"
        next_medal = f"\n    {'; '.join(self.reasons)}" if self.reasons else ""
        return (
            f"{self.name}: {self.medal or 'no medal'}, score {self.points}; {figures}{next_medal}"
        )


def score(
    submissions: Sequence[Submission], *, size: ExamSize = QUICK, seed: int | None = None
) -> list[Score]:
    """Score submissions one after the other, each in a process of its own.

    size     number of pictures and of timed rounds
    seed     decides the pictures and their changes; None: drawn after all files have been read, so
             that nobody knows the exam before
    returns  a `Score` for each submission, in order. A submission that cheats, or that raises an
             error, gets a `Score` with the reason and without points
    """
    import torch

    # All files are read before the exam is drawn.
    contents = [Path(submission.path).read_bytes() for submission in submissions]
    if seed is None:
        seed = secrets.randbits(31)
    exam = draw_exam(size.images, seed)
    timed = np.random.default_rng(seed).permutation(len(exam.pictures))[: size.rounds]

    # The reference network answers here, each file in a process of its own.
    scores = []
    with tempfile.TemporaryDirectory() as name:
        reference = Path(name) / "reference.onnx"
        reference.write_bytes(reference_bytes())
        session = engines.load("onnxruntime", reference, torch.zeros(1, *SHAPE), threads=1)
        reference_right = exam.right(in_batches(on_arrays(session), exam.pictures))
        ask = partial(
            answer_exam, reference=reference, pictures=exam.pictures, timed=timed, seed=seed
        )
        for submission, content in zip(submissions, contents, strict=True):
            digest = hashlib.sha256(content).hexdigest()
            facts = {
                "engine": submission.engine,
                "seed": seed,
                "size_bytes": len(content),
                "sha256": digest,
            }
            try:
                answers, model = _answers_of(submission, content, ask)
                facts |= _facts_of(answers, exam, reference_right)
                _look_for_cheats(answers, timed, exam, reference_right)
                judged = _score_of(submission.title, facts)
            except (LabError, OSError) as error:
                scores.append(Score(submission.title, None, (reason_of(error),), facts=facts))
                continue
            with atomic(stored_file(digest)) as temporary:  # the deployment card needs it
                temporary.write_bytes(model)
            scores.append(judged)
    return scores


def _answers_of(submission, content, ask):
    """Let a submission answer the exam in a process and a folder of its own.

    content  bytes of the submitted file
    ask      function (path, engine) that calls `answer_exam` with this exam
    returns  (the submission's `Answers`, bytes of the ONNX model that gave them)
    Raises   LabError where the file is refused, and where its process ends or takes too long
    """
    require_known(submission.engine, engines.names(runs="onnx"), "engine")
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "submission.onnx"
        submitted = model
        if Path(submission.path).suffix == ".gz":
            submitted = model.with_suffix(".onnx.gz")
        submitted.write_bytes(content)
        answers = run_in_child(partial(ask, submitted, submission.engine), COMPUTE_S)
        if answers.precision not in engines.get(submission.engine).PRECISIONS:
            raise LabError(f"The engine {submission.engine} does not run {answers.precision}.")
        return answers, model.read_bytes()


def _facts_of(answers, exam, reference_right):
    """Return what an exam measured: {name: value}, all values plain, for `Score.facts`.

    "times", "reference", "again" and "floor" are the seconds per call of the sessions. "right" and
    "right_before" are lists of bool: whether the submission answered each changed copy, and each
    original, right. "reference_right" and "reference_right_before" are those of the reference
    network. "precision" is that of the file, and "reference_bytes" the size of the reference
    network's file.

    answers          the `Answers` of the submission
    exam             the `Exam`
    reference_right  (2 n,) bool: whether the reference network answered each picture right
    """
    right_originals, right_copies = exam.forms(exam.right(answers.batched))
    reference_right_originals, reference_right_copies = exam.forms(reference_right)
    return {
        "precision": answers.precision,
        "times": answers.times["submission"],
        "reference": answers.times["reference"],
        "again": answers.times["again"],
        "floor": answers.times["floor"],
        "reference_bytes": len(reference_bytes()),
        "right": right_copies.tolist(),
        "right_before": right_originals.tolist(),
        "reference_right": reference_right_copies.tolist(),
        "reference_right_before": reference_right_originals.tolist(),
    }


def _look_for_cheats(answers, timed, exam: Exam, reference_right):
    """Raise LabError for answers that only a cheating file gives, by the checks of `gates`.

    answers          the `Answers` of the submission
    timed            (rounds,) positions of the timed pictures in the exam
    reference_right  (2 n,) bool: whether the reference network answered each picture right
    """
    require_steady(answers.batched[timed], answers.single)
    require_as_written(answers.as_written, answers.batched[timed])
    require_unseen(exam.right(answers.batched), reference_right, exam)


def _score_of(title, facts):
    """Return the `Score` of a submission that is not refused.

    title  its name on the leaderboard
    facts  `Score.facts`, complete
    """
    accuracy = mean_interval(facts["right"])
    latency = ratio_of_p95(facts["times"], facts["reference"], facts["floor"])

    # The geometric mean of "times as fast" and "times as small", of whole calls, as the customer
    # waits for them.
    times_as_small = facts["reference_bytes"] / facts["size_bytes"]
    whole_calls = ratio_of_p95(facts["times"], facts["reference"])

    def points_at(latency_share):
        return math.sqrt(times_as_small / latency_share)

    low, high = points_at(whole_calls.high), points_at(whole_calls.low)
    points = Interval(low, high, whole_calls.samples, points_at(whole_calls.median))

    # The reference network against itself: its difference is noise.
    noise = ratio_of_p95(facts["again"], facts["reference"], facts["floor"])
    noisy = max(abs(noise.low - 1), abs(noise.high - 1)) > MAX_NOISE
    medal, reasons = medal_and_reasons(accuracy.median, latency, facts["size_bytes"], noisy=noisy)
    return Score(title, medal, reasons, points, accuracy, latency, noisy, facts)


def keep_score(score: Score, *, run_key: str | None = None) -> Any:
    """Write a `Score` to the ledger as a row of the leaderboard. Returns the row, a `Scored`."""
    facts = score.facts
    fields = {name: facts.get(name) for name in ("engine", "precision", "sha256", "seed")}
    fields |= interval_fields("points", score.points) | interval_fields("accuracy", score.accuracy)
    fields |= interval_fields("latency", score.latency)
    if not score.refused:
        p50, p95 = np.quantile(facts["times"], [0.5, 0.95]).tolist()
        fields["size_bytes"] = facts["size_bytes"]
        fields["latency_p50_ms"] = 1e3 * p50
        fields["latency_p95_ms"] = 1e3 * p95
        fields["cost_per_million_usd"] = 1e6 * p50 * USD_PER_HOUR / 3600
        fields["accuracy_originals"] = float(np.mean(facts["right_before"]))
    return store_row(
        Scored,
        run_key,
        name=score.name,
        medal=score.medal,
        noisy=score.noisy,
        reason="; ".join(score.reasons)[:500] or None,
        device="cpu",
        threads=1,
        batch=1,
        **fields,
    )
