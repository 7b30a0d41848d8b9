"""The rows of `labkit.measure`; `labkit.ledger.rows` has them too.

Whoever stores one in the ledger fills in `run_key` and `name`: `dataclasses.replace(row, run_key=..., name=...)`.
"""

from dataclasses import dataclass
from typing import ClassVar

from labkit.ledger.shown import Shown, shown


@dataclass(frozen=True, kw_only=True)
class Latency(Shown):
    """How long one call takes."""

    TABLE: ClassVar = "latencies"
    KEY: ClassVar = ("run_key", "name", "device", "threads", "batch")
    run_key: str = ""
    name: str = ""
    device: str
    threads: int | None = None
    batch: int = 1
    p50_ms: float | None = None
    low_ms: float | None = None  # 95 % interval of the median
    high_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    tail_reason: str | None = None  # why a percentile is missing
    throughput_per_s: float | None = None  # items
    cold_ms: float | None = None  # the very first call
    warmup_calls: int | None = None
    warm: bool | None = None  # False: the time for warming up was over before calls were stable
    samples_ms: tuple = ()
    calls_per_sample: int | None = None
    peak_bytes: int | None = None  # GPU allocator
    noisy: bool | None = None
    noise: str | None = None  # why it is noisy
    other_load: float | None = None  # share of the cores' time that other processes used, 0 to 1
    clock_mhz: float | None = None
    throttle: str | None = None
    reason: str | None = None  # why there are no numbers
    machine_key: str | None = None
    commit: str | None = None
    measured_utc: str | None = None

    def facts(self):
        if self.p50_ms is None:
            return [("not measured", self.reason or "")]
        low, high = shown(self.low_ms / 1e3, "s"), shown(self.high_ms / 1e3, "s")
        tail = [(name, shown(ms / 1e3, "s")) for name, ms in (("p95", self.p95_ms), ("p99", self.p99_ms)) if ms]
        return [
            ("median", f"{shown(self.p50_ms / 1e3, 's')} (95 %: {low} to {high})"),
            *tail,
            *([("no tail", self.tail_reason)] if self.tail_reason else []),
            ("first call", shown(self.cold_ms / 1e3, "s")),
            ("throughput", f"{shown(self.throughput_per_s)} items/s at batch {self.batch}"),
            ("samples", f"{len(self.samples_ms)} after {self.warmup_calls} warm-up calls"),
            ("on", f"{self.device}, {self.threads} threads"),
            ("noise", self.noise or "quiet"),
        ]


@dataclass(frozen=True, kw_only=True)
class Ratio(Shown):
    """How many times faster `arm` is than `baseline`: time of baseline / time of arm, from interleaved pairs."""

    TABLE: ClassVar = "ratios"
    KEY: ClassVar = ("run_key", "name", "baseline", "arm", "device", "threads")
    run_key: str = ""
    name: str = ""
    baseline: str
    arm: str
    device: str
    threads: int | None = None
    batch: int | None = None
    median: float
    low: float  # 95 % bootstrap interval
    high: float
    verdict: str  # "faster", "slower", "not distinguishable" or "too few pairs"
    floor: float  # what the same run says of two identical arms: a ratio within 1 ± floor is no difference
    pairs: int
    baseline_ms: float
    arm_ms: float
    tolerance: float  # the outputs agreed within this, relative to the baseline's largest value
    ratios: tuple = ()  # one a pair
    noisy: bool | None = None
    noise: str | None = None
    machine_key: str | None = None
    commit: str | None = None
    measured_utc: str | None = None

    def __iter__(self):
        return iter((self.low, self.high))

    def facts(self):
        return [
            (f"{self.arm} against {self.baseline}", f"{self.median:.3f}x (95 %: {self.low:.3f} to {self.high:.3f})"),
            ("verdict", self.verdict),
            ("noise floor", f"±{100 * self.floor:.2f} %"),
            ("pairs", str(self.pairs)),
            ("noise", self.noise or "quiet"),
        ]


@dataclass(frozen=True, kw_only=True)
class Memory(Shown):
    """What one call needs beyond what was there before it."""

    TABLE: ClassVar = "memories"
    KEY: ClassVar = ("run_key", "name", "device", "batch")
    run_key: str = ""
    name: str = ""
    device: str
    batch: int = 1
    peak_bytes: int | None = None  # most the GPU's allocator held, the model included
    rss_growth_bytes: int | None = None  # of the process, at its peak
    tensor_bytes: int | None = None  # most bytes of new tensors alive at once
    saved_bytes: int | None = None  # kept for the backward pass; each storage counted once, parameters not
    reason: str | None = None  # why something is unknown
    machine_key: str | None = None
    commit: str | None = None
    measured_utc: str | None = None

    def facts(self):
        names = ("peak_bytes", "rss_growth_bytes", "tensor_bytes", "saved_bytes")
        known = [(name, getattr(self, name)) for name in names]
        facts = [(name.removesuffix("_bytes").replace("_", " "), shown(v, "B")) for name, v in known if v is not None]
        return facts + ([("unknown", self.reason)] if self.reason else [])


@dataclass(frozen=True, kw_only=True)
class Energy(Shown):
    """Energy of a window of calls, the idle draw of the device included."""

    TABLE: ClassVar = "energies"
    KEY: ClassVar = ("run_key", "name", "device", "threads", "batch")
    run_key: str = ""
    name: str = ""
    device: str
    threads: int | None = None
    batch: int = 1
    joules_per_item: float | None = None
    joules: float | None = None
    seconds: float | None = None
    items: int | None = None
    source: str | None = None  # "NVML" or "RAPL"
    reason: str | None = None  # why there is no number
    fix: str | None = None
    machine_key: str | None = None
    commit: str | None = None
    measured_utc: str | None = None

    def facts(self):
        if self.joules_per_item is None:
            return [("not measured", self.reason or ""), *([("next", self.fix)] if self.fix else [])]
        return [
            ("energy", f"{shown(self.joules_per_item, 'J')} an item"),
            ("power", f"{shown(self.joules / self.seconds, 'W')} over {self.seconds:.1f} s ({self.source})"),
        ]
