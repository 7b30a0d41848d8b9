"""Define the rows of what was measured on a machine."""

from labkit.format import Shown, shown
from labkit.ledger.rows._base import Measured, row


@row("latencies", key=("run_key", "name", "device", "threads", "batch"))
class Latency(Measured, Shown):
    """The time that one call takes: its median with a 95 % interval, and its tail."""

    name: str = ""
    batch: int = 1
    p50_ms: float | None = None
    # 95 % interval of the median; None with fewer samples than it needs
    low_ms: float | None = None
    high_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    tail_reason: str | None = None  # why a percentile is missing
    throughput_per_s: float | None = None  # items
    bytes_per_s: float | None = None  # that have to be read and written at least
    load_ms: float | None = None  # an engine: reading, compiling or building before the first call
    cold_ms: float | None = None  # the very first call
    warmup_calls: int | None = None
    warm: bool | None = None  # False: the time for warming up was over before calls were stable
    samples_ms: tuple = ()
    calls_per_sample: int | None = None
    peak_bytes: int | None = None  # GPU allocator
    noise: str | None = None  # why it is noisy
    # signal-to-noise ratio of an INT8 engine's outputs, against the file run as it is written
    sqnr_db: float | None = None
    unchecked: str | None = None  # outputs whose answers no comparison could judge, and why

    def facts(self):
        """Return [(label, text)] for display."""
        if self.p50_ms is None:
            return [("not measured", self.reason or "")]

        def time(ms):
            return None if ms is None else shown(ms / 1e3, "s")

        ends = f"95 %: {time(self.low_ms)} to {time(self.high_ms)}"
        exact = "exactly" if self.sqnr_db == float("inf") else None
        facts = {
            "median": f"{time(self.p50_ms)} "
            f"({ends if self.low_ms else 'no 95 % interval: too few samples'})",
            "p95": time(self.p95_ms),
            "p99": time(self.p99_ms),
            "missing:": self.tail_reason,
            "answers as the file means:": None
            if self.sqnr_db is None
            else exact or f"{shown(self.sqnr_db)} dB",
            "not compared:": self.unchecked,
            "loaded in": time(self.load_ms),
            "first call": time(self.cold_ms),
            "throughput": f"{shown(self.throughput_per_s)} items/s at batch {self.batch}",
            "samples": f"{len(self.samples_ms)} after {self.warmup_calls} warm-up calls",
            "on": f"{self.device}, threads: {self.threads}",
            "noise:": self.noise or "none seen",
        }
        return [(label, text) for label, text in facts.items() if text]


MEANING = {
    "series": "in series, as of each alone",
    "calls": "call by call, as of both in use at once",
}


@row("ratios", key=("run_key", "name", "baseline", "arm", "device", "threads"))
class Ratio(Measured, Shown):
    """How many times as fast `arm` is as `baseline`: the baseline's time divided by the arm's time.

    The two functions were timed in turn, and each pair of times gives one ratio; `median` is their
    median.

    turns   "series": in its turn an arm was called many times, so the ratio holds for an arm that
            runs alone. "calls": the arms took turns after each call, so each call found the cache
            full of another arm's weights
    beside  an estimate of the ratio that `turns` "calls" would give, where `turns` is "series": the
            ratio of the first calls of each series, which follow a call of another arm.
            `beside_low` and `beside_high` are its interval, `beside_floor` is its noise floor. None
            where it is not known
    """

    name: str = ""
    baseline: str
    arm: str
    median: float
    low: float  # 95 % interval; from -inf to inf where there are too few pairs for one
    high: float
    verdict: str  # "faster", "slower", "not distinguishable" or "too few pairs"
    # noise floor, from two identical arms in the same run: a ratio within 1 ± floor is no
    # difference
    floor: float
    pairs: int
    baseline_ms: float
    arm_ms: float
    tolerance: float  # the outputs agreed within this, relative to the baseline's largest value
    ratios: tuple = ()  # one per pair
    noise: str | None = None
    turns: str = "calls"
    beside: float | None = None
    beside_low: float | None = None
    beside_high: float | None = None
    beside_floor: float | None = None
    unchecked: str | None = None  # outputs whose answers no comparison could judge, and why

    def __iter__(self):
        """Yield both ends of the interval: low, high."""
        return iter((self.low, self.high))

    @property
    def beside_differs(self):
        """Return whether `beside` differs from `median` by more than the noise of both ratios.

        If so, an arm that runs alone and an arm whose calls alternate with others have different
        ratios.
        """
        if self.beside is None:
            return False
        if self.beside > self.median:
            return self.beside_low / (1 + self.beside_floor) > self.high * (1 + self.floor)
        return self.beside_high * (1 + self.beside_floor) < self.low / (1 + self.floor)

    def facts(self):
        """Return [(label, text)] for display."""
        interval = (
            f"95 %: {self.low:.3f} to {self.high:.3f}"
            if self.high < float("inf")
            else "no 95 % interval"
        )
        alternating = []
        if self.beside_differs:
            ends = f"95 %: {self.beside_low:.3f} to {self.beside_high:.3f}"
            text = (
                f"{self.beside:.3f}x ({ends}), for each call finds the cache full of another "
                "arm's weights"
            )
            alternating = [("where calls alternate", text)]
        return [
            (f"{self.arm} against {self.baseline}", f"{self.median:.3f}x ({interval})"),
            ("measured", MEANING[self.turns]),
            *alternating,
            ("verdict", self.verdict),
            ("noise floor", f"±{100 * self.floor:.2f} %"),
            ("pairs", str(self.pairs)),
            *([("not compared:", self.unchecked)] if self.unchecked else []),
            ("noise:", self.noise or "none seen"),
        ]


@row("memories", key=("run_key", "name", "device", "batch"))
class Memory(Measured, Shown):
    """The memory that one call needs.

    `labkit.measure.memory` says what each number counts.
    """

    name: str = ""
    batch: int = 1
    peak_bytes: int | None = None  # most the GPU's allocator held, the model included
    tensor_bytes: int | None = None  # most bytes of new tensors alive at once
    # kept for the backward pass; each storage counted once, parameters not
    saved_bytes: int | None = None

    def facts(self):
        """Return [(label, text)] for display."""
        counts = {"peak": self.peak_bytes, "tensor": self.tensor_bytes, "saved": self.saved_bytes}
        facts = [(name, shown(count, "B")) for name, count in counts.items() if count is not None]
        return facts + ([("unknown", self.reason)] if self.reason else [])


@row("trainings", key=("run_key", "study", "variant", "device"))
class Training(Measured):
    """The cost and the result of one way to train one network.

    `variant` says how this way differs from the study's baseline.
    """

    study: str  # such as "training-phases"
    variant: str
    model: str
    dataset: str
    images: int | None = None  # seen in the time of `total_s`
    data_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    total_s: float | None = None
    accuracy: float | None = None  # fraction of the test images, 0 to 1
    memory_bytes: int | None = None  # the most that was needed at once


@row("deployments", key=("run_key", "model", "engine", "precision", "device", "threads", "batch"))
class Deployment(Measured):
    """One way to serve one model: a point in the picture of accuracy against latency."""

    dataset: str
    model: str
    engine: str
    precision: str
    accuracy: float | None = None  # fraction of the test images, 0 to 1
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    throughput_per_s: float | None = None
    size_bytes: int | None = None  # on disk
    memory_bytes: int | None = None  # in use while serving
    cost_per_million_usd: float | None = None
