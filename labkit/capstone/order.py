"""What the customer of lesson 20 asks for, the submissions, and the medals that they earn.

    Classify these pictures of clothes: ten classes, grey, 28 x 28. We will ask one picture at a
    time, on our machine, pictures that are drawn when your file is in. Be right often enough,
    answer fast enough, and send one small file.

"Fast enough" is a share of the time that the reference network takes on the same machine, so that
the task is equally hard on every machine. The reference network is `vgg-medium` in fp32, as the
course ships it trained.

From both times the floor of a call is subtracted: the time of a network that computes nothing. No
file can be faster than the floor, and on some machines it is a larger part of a call than on
others.
"""

import tempfile
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from labkit import device, ledger
from labkit.device.child import ChildEnded
from labkit.errors import LabError
from labkit.files import artifacts

DATASET = "fashion-mnist"
REFERENCE = "vgg-medium"
CLASSES = 10
SHAPE = (1, 28, 28)
USD_PER_HOUR = 0.10  # price of a machine with two cores: it decides no medal
MAX_FILE_BYTES = 2**24  # the reference network takes six million
NAME_LENGTH = 60


# ---- medals ----


@dataclass(frozen=True)
class Medal:
    """The figures that a file (lesson 20) or a recipe (lesson 11) must reach for a medal.

    accuracy    least share of the changed copies that a file answers right, 0 to 1
    latency     largest ratio of a file's p95 to that of the reference network. From both, the time
                of a network that computes nothing is subtracted
    size_bytes  most bytes of a file
    speed_up    least ratio of the reference recipe's training time to that of a recipe
    """

    name: str
    accuracy: float
    latency: float
    size_bytes: int
    speed_up: float

    def misses(self, accuracy: float, latency: float, size_bytes: int) -> list[str]:
        """Return the reasons why a file with these figures does not earn the medal, as texts.

        The list is empty when the file earns the medal.
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
    """Return the name of the best medal that a file with these figures earns, or None."""
    for medal in MEDALS:
        if not medal.misses(accuracy, latency, size_bytes):
            return medal.name
    return None


def medal_and_reasons(accuracy: float, latency: Any, size_bytes: int, *, noisy: bool) -> tuple:
    """Return (best medal that a file with these figures earns, what it misses for the next).

    The medal is a name or None. What the file misses is a tuple of texts, empty with the best
    medal.

    accuracy    share of the changed copies answered right, 0 to 1
    latency     an `Interval` of the ratio to the reference network; its median decides the medal
    size_bytes  bytes of the file
    noisy       True: there is no medal if the ends of the interval would earn different medals
    """
    if noisy and file_medal(accuracy, latency.high, size_bytes) != file_medal(
        accuracy, latency.low, size_bytes
    ):
        return None, ("too noisy to judge the latency: score it again when other programs rest",)
    reasons: list[str] = []
    for medal in MEDALS:  # the last one that is missed is the next to reach
        reasons = medal.misses(accuracy, latency.median, size_bytes) or reasons
    return file_medal(accuracy, latency.median, size_bytes), tuple(reasons)


def recipe_medal(speed_up: float) -> str | None:
    """Return the name of the best medal that a recipe with this speed-up earns, or None."""
    for medal in MEDALS:
        if speed_up >= medal.speed_up:
            return medal.name
    return None


# ---- what is handed in ----


@dataclass(frozen=True)
class Submission:
    """One network to score: data, and never code.

    path    an ONNX file (.onnx), or one that `labkit.compress.save` wrote (.onnx.gz), of at most
            `MAX_FILE_BYTES`
    engine  one of `labkit.engines.names(runs="onnx")`
    name    name of the author or of the network, for the leaderboard; "": the name of the file
    Raises  LabError where `path` is not such a file
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
        """Return the name as it stands on the leaderboard, in one line."""
        return one_line(self.name or Path(self.path).name.removesuffix(".gz").removesuffix(".onnx"))


def one_line(text: Any) -> str:
    """Return a text as one line of at most 60 printable characters.

    Returns "nameless" where the text has no printable character.
    """
    beginning = str(text)[: 10 * NAME_LENGTH]
    printable = "".join(letter if letter.isprintable() else " " for letter in beginning)
    return " ".join(printable.split())[:NAME_LENGTH].strip() or "nameless"


def reason_of(error: LabError | OSError) -> str:
    """Return in one line why a submission has no score.

    error  the exception that the scoring, or the training, of the submission raised
    """
    if isinstance(error, ChildEnded):
        reason = f"Its process ended: {error.found}"
    elif isinstance(error, LabError):
        reason = f"{error.what} {error.found or ''}"
    else:
        reason = f"It raised {type(error).__name__}: {error}"
    return " ".join(reason.split())[:500]


def stored_file(digest: str) -> Path:
    """Return the path at which the judge stores the network of a scored submission as an ONNX file.

    digest  sha256 of the file that was handed in
    """
    return artifacts() / "ship" / f"{digest}.onnx"


def store_row(row_class: Any, run_key: str | None, **fields: Any) -> Any:
    """Write a row, a `Scored` or a `RaceScore`, to the ledger. Returns the row.

    This machine, the commit of the course and the time are added to the fields.

    row_class  class of the row
    run_key    key of the lesson's run; None: a random key
    fields     {field: value} of all other fields of the row
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
    """Return an `Interval` as three fields of a row: {name, name_low, name_high: number}.

    The field `name` has the median. The dictionary is empty where the interval is None.
    """
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
