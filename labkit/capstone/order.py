"""The order, as a customer writes it; the submissions for it, the pictures that judge them, and the
medals.

    Classify these pictures of clothes: ten classes, grey, 28 x 28. We will ask one picture at a
    time, on our machine, and pictures that nobody has seen. Be right often enough, answer fast
    enough, and send one small file.

"Fast enough" is a share of what the reference network (`vgg-medium` in fp32, as it comes trained
with the course) takes on the same machine, so that the order is the same everywhere. From both the
floor of a call is taken first: what a network that computes nothing takes, which no file can go
below. How much of a call it is differs from machine to machine.
"""

import tempfile
import uuid
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from labkit import device, ledger
from labkit.device.child import ChildEnded
from labkit.errors import LabError
from labkit.files import artifacts
from labkit.measure.stats import Interval, percentile_interval

DATASET = "fashion-mnist"
REFERENCE = "vgg-medium"
CLASSES = 10
SHAPE = (1, 28, 28)
USD_PER_HOUR = 0.10  # of a machine with two cores; states the cost, decides nothing
SHIFT = 1  # pixels that a changed copy is moved by, at most
NOISE = 8  # deviation of the noise in a changed copy, of 255
# (1, 1) moves nothing
MOVES = [(down, right) for down in (0, 1, 2) for right in (0, 1, 2) if (down, right) != (1, 1)]
MAX_FILE_BYTES = 2**24  # the reference network takes six million
NAME_LENGTH = 60
RESAMPLES = 1000  # of the bootstrap of a percentile


# ---- medals ----


@dataclass(frozen=True)
class Medal:
    """The figures that a file (lesson 20) or a recipe (lesson 11) must reach for a medal.

    accuracy    least share of the changed copies that a file answers right, 0 to 1
    latency     most that the p95 of a file may be, as a share of the reference network's, both
                without the floor of a call
    size_bytes  most bytes of a file
    speed_up    how many times as fast as the reference recipe a recipe trains, at least
    """

    name: str
    accuracy: float
    latency: float
    size_bytes: int
    speed_up: float

    def misses(self, accuracy: float, latency: float, size_bytes: int) -> list[str]:
        """Return the reasons why a file of these figures does not earn it: an empty list when it
        does.
        """
        reasons = []
        if accuracy < self.accuracy:
            needed = f"{self.name} asks for {100 * self.accuracy:g} %"
            reasons.append(f"{100 * accuracy:.1f} % of the changed copies right, {needed}")
        if latency > self.latency:
            share = f"p95 without the floor of a call is {latency:.2f} of the reference's"
            reasons.append(f"{share}, {self.name} allows {self.latency:g}")
        if size_bytes > self.size_bytes:
            reasons.append(
                f"{size_bytes / 1e3:,.0f} kB, {self.name} allows {self.size_bytes / 1e3:,.0f} kB"
            )
        return reasons


MEDALS = (  # the best first
    # 100,000 bytes are ten per test image: no room to remember them
    Medal("gold", accuracy=0.87, latency=0.60, size_bytes=100_000, speed_up=3.0),
    Medal("silver", accuracy=0.84, latency=0.80, size_bytes=500_000, speed_up=2.0),
    Medal("bronze", accuracy=0.80, latency=0.90, size_bytes=2_000_000, speed_up=1.5),
)


def file_medal(accuracy: Any, latency: Any, size_bytes: Any) -> str | None:
    """Return the name of the best medal that a file of these figures earns, or None."""
    for medal in MEDALS:
        if not medal.misses(accuracy, latency, size_bytes):
            return medal.name
    return None


def medal_and_reasons(accuracy: float, latency: Any, size_bytes: int, *, noisy: bool) -> tuple:
    """Return (the best medal that is earned, or None; what the next one asks for)."""
    if noisy and file_medal(accuracy, latency.high, size_bytes) != file_medal(
        accuracy, latency.low, size_bytes
    ):
        return None, ("too noisy to judge the latency: score it again when other programs rest",)
    reasons: list[str] = []
    for medal in MEDALS:  # the last one that is missed is the next to reach
        reasons = medal.misses(accuracy, latency.median, size_bytes) or reasons
    return file_medal(accuracy, latency.median, size_bytes), tuple(reasons)


def ratio_of_p95(times: Any, reference_times: Any, floor_times: Any = None) -> Interval:
    """Return p95 of one series as a share of another's, an `Interval`; all in seconds, a round
    each.

    floor_times  of a network that computes nothing: their median is taken from both p95, which are
                 at least 0 then. LabError where nothing of the reference network's p95 is left
    The resamples keep the rounds whole, so that what slowed all down in one round does so in the
    resample too.
    """
    rounds = len(times)
    if floor_times is None:
        floor_times = np.zeros(rounds)
    series = np.array([times, reference_times, floor_times])
    picks = np.random.default_rng(0).integers(0, rounds, (RESAMPLES, rounds))

    def above_floor(series):
        p95, reference_p95 = np.quantile(series[:2], 0.95, axis=-1)
        floor = np.median(series[2], axis=-1)
        return np.maximum(p95 - floor, 0), np.maximum(reference_p95 - floor, 0)

    measured, reference_measured = above_floor(series)
    if reference_measured == 0:
        raise LabError(
            "Too noisy to judge: a network that computes nothing takes as long as "
            "the reference network."
        )
    p95, reference_p95 = above_floor(series[:, picks])
    # such a resample is a share without end
    shares = p95 / np.maximum(reference_p95, np.finfo(float).tiny)
    return percentile_interval(shares, rounds, measured / reference_measured)


def recipe_medal(speed_up: float) -> str | None:
    """Return the name of the best medal that a recipe earns that is so many times as fast, or
    None.
    """
    for medal in MEDALS:
        if speed_up >= medal.speed_up:
            return medal.name
    return None


# ---- what is handed in ----


@dataclass(frozen=True)
class Submission:
    """One network to score: data, and never code. LabError where the path is that of no ONNX file.

    path    an ONNX file (.onnx), or one that `labkit.compress.save` wrote (.onnx.gz), of at most
            `MAX_FILE_BYTES`
    engine  one of `labkit.engines.names(runs="onnx")`
    name    of its author or of the network, for the leaderboard; the file's own name when none is
            given
    """

    path: Path
    engine: str = "onnxruntime"
    name: str = ""

    def __post_init__(self):
        path = Path(self.path)
        right_name = path.name.endswith((".onnx", ".onnx.gz"))
        if not right_name or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            raise LabError(
                "There is nothing to score.",
                expected=f"an .onnx or .onnx.gz file of at most {MAX_FILE_BYTES / 1e6:.0f} MB",
                found=str(path)[:200],
            )

    @property
    def title(self):
        """Return the name as it stands on the leaderboard."""
        return one_line(self.name or Path(self.path).name.removesuffix(".gz").removesuffix(".onnx"))


def one_line(text: Any) -> str:
    """Return any text as one line of at most 60 printable characters."""
    beginning = str(text)[: 10 * NAME_LENGTH]
    printable = "".join(letter if letter.isprintable() else " " for letter in beginning)
    return " ".join(printable.split())[:NAME_LENGTH].strip() or "nameless"


def reason_of(error: LabError | OSError) -> str:
    """Return why a submission has no score, in one line."""
    if isinstance(error, ChildEnded):
        reason = f"Its process ended: {error.found}"
    elif isinstance(error, LabError):
        reason = f"{error.what} {error.found or ''}"
    else:
        reason = f"It raised {type(error).__name__}: {error}"
    return " ".join(reason.split())[:500]


def stored_file(digest: str) -> Path:
    """Return where the network of a submission that was scored here is stored as an ONNX file.

    digest  sha256 of the file that was handed in
    """
    return artifacts() / "ship" / f"{digest}.onnx"


def store_row(row_class: Any, run_key: str | None, **fields: Any) -> Any:
    """Write a row, a `Scored` or a `RaceScore`, with this machine, commit and time.

    Returns the row.
    """
    machine = device.describe()
    row = row_class(
        run_key=run_key or f"{row_class.TABLE}-{uuid.uuid4().hex[:12]}",
        machine_key=machine.machine_key,
        commit=device.commit(),
        measured_utc=ledger.now(),
        **fields,
    )
    ledger.add(machine, row)
    return row


def interval_fields(name: str, interval: Any) -> dict[str, float]:
    """Return the three fields of a row that hold an `Interval`: {} where there is none."""
    if interval is None:
        return {}
    return {name: interval.median, f"{name}_low": interval.low, f"{name}_high": interval.high}


@cache
def reference_bytes() -> bytes:
    """Return the reference network as the bytes of an ONNX file."""
    import torch

    from labkit.export import to_onnx
    from labkit.models.trained import trained

    network, _ = trained(REFERENCE)
    with tempfile.TemporaryDirectory() as folder:
        path = to_onnx(network, torch.zeros(1, *SHAPE), Path(folder) / "reference.onnx")
        return path.read_bytes()


# ---- the exam ----


@dataclass(frozen=True)
class ExamSize:
    """How much a scoring asks: pictures (each also as a changed copy), and rounds in which one
    picture is timed.
    """

    images: int
    rounds: int


QUICK = ExamSize(images=500, rounds=200)
FULL = ExamSize(images=5_000, rounds=800)


@dataclass(frozen=True)
class Exam:
    """The pictures of one scoring, in the order in which they are asked.

    pictures  float32 (2 n, 1, 28, 28), normalised as in training: originals and changed copies,
              mixed
    labels    int64 (2 n,)
    order     int64 (2 n,): which of them a picture is, of the n originals and, after these, their
              changed copies
    """

    pictures: Any
    labels: Any
    order: Any

    def right(self, answers):
        """Return (2 n,) bool for answers (2 n, 10): True where an answer is right."""
        return answers.argmax(axis=1) == self.labels

    def forms(self, values):
        """Split values of all pictures, (2 n,), into (those of the n originals, those of their n
        copies), by origin.
        """
        return np.split(values[np.argsort(self.order)], 2)


def draw_exam(count: int, seed: int) -> Exam:
    """Return an `Exam` of `count` test images, each as it is and changed; another seed draws
    others.

    A copy is moved by up to a pixel along each side (never by none) and has a little noise: so
    little that a network which looks at the picture hardly notices, and one that knows the file of
    test images by heart does.
    """
    import torch

    from labkit.data import load

    test = load(DATASET, "test")
    generator = torch.Generator().manual_seed(seed)
    drawn = test.take(torch.randperm(len(test), generator=generator)[:count])
    copies = _changed(drawn.images, generator)
    originals_and_copies = replace(
        drawn, images=torch.cat([drawn.images, copies]), labels=drawn.labels.repeat(2)
    )
    [(pictures, labels)] = originals_and_copies.batches(2 * count)
    order = torch.randperm(2 * count, generator=generator)
    return Exam(pictures[order].numpy(), labels[order].numpy(), order.numpy())


def _changed(images, generator):
    """Return copies of uint8 images (n, 1, 28, 28), each moved by one of `MOVES` and with noise."""
    import torch

    from labkit.data import crop

    count = len(images)
    moves = torch.tensor(MOVES)[torch.randint(len(MOVES), (count,), generator=generator)]
    moved = crop(images, *moves.T, torch.zeros(count, dtype=torch.bool), border=(SHIFT, SHIFT))
    noisy = moved + NOISE * torch.randn(images.shape, generator=generator)
    return noisy.round().clamp(0, 255).to(torch.uint8)
