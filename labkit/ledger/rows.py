"""The typed rows of the ledger.

A row is a frozen dataclass: units stand in the field names, and None means unknown, never 0.
TABLE names its table, KEY the fields that make it unique: writing the same key again replaces the row,
so that running a cell twice does not count twice. Two bases hold what rows have in common: whose run it was (`_OfRun`),
and on what it was measured (`_Measured`).
"""

from dataclasses import dataclass
from typing import dataclass_transform

from labkit.device.machine import Machine  # noqa: F401 (a row of the ledger like those below)
from labkit.ledger.shown import Shown, shown


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _row(table, *, key):
    """Makes a class a row of that table: a frozen dataclass whose fields are given by name."""

    def make(kind):
        kind.TABLE, kind.KEY = table, key
        return dataclass(frozen=True, kw_only=True)(kind)

    return make


@dataclass(frozen=True, kw_only=True)
class _OfRun:
    """What belongs to one run of a notebook."""

    run_key: str


@dataclass(frozen=True, kw_only=True)
class _Measured:
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


@_row("runs", key=("run_key",))
class Run(_OfRun):
    """One execution of one notebook (or of one command)."""

    notebook: str
    profile: str
    seed: int
    started_utc: str
    machine_key: str
    commit: str | None = None
    batch_key: str | None = None


@_row("completions", key=("run_key",))
class Completion(_OfRun):
    """Written by the last cell of a notebook: the only proof that the run went to its end.

    `cell_count` is the number of code cells the kernel had executed by then: a record written by
    an earlier cell does not match the notebook's length and proves nothing.
    """

    notebook: str
    cell_count: int
    seconds: float
    finished_utc: str


@_row("predictions", key=("run_key", "prediction_id"))
class Prediction(_OfRun):
    """What the reader expected, and (once revealed) what was measured."""

    prediction_id: str
    question: str
    unit: str | None = None
    answer: str  # as text: an option, or a number in `unit`
    source: str  # "reader" or "default"
    result: str | None = None
    low: float | None = None  # what the run allows, where the result is a number with an interval
    high: float | None = None
    verdict: str | None = None  # "right", "close", "off" or "open" once revealed
    reason: str | None = None  # why it is open


@_row("claims", key=("run_key", "claim_id"))
class Claim(_OfRun):
    """A sentence of the text, and whether this run bears it out."""

    claim_id: str
    sentence: str
    verdict: str  # "holds", "fails" or "inconclusive"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str | None = None
    reason: str | None = None  # why there is no value


@_row("answers", key=("run_key", "exercise_id"))
class Answer(_OfRun):
    """The verdict on one exercise."""

    exercise_id: str
    verdict: str  # "passed", "wrong" or "unsolved"
    message: str | None = None


@_row("ceilings", key=("run_key", "name", "device", "threads"))
class Ceiling(_Measured):
    """The best this machine was seen to do at one thing: the roof of later rooflines."""

    name: str  # "copy", "matmul-fp32", "matmul-bf16", "matmul-int8"
    bytes_per_s: float | None = None
    ops_per_s: float | None = None
    samples: int | None = None


@_row("deployments", key=("run_key", "model", "engine", "precision", "device", "threads", "batch"))
class Deployment(_Measured):
    """One way to serve one model: a point in the accuracy/latency/size picture."""

    dataset: str
    model: str
    engine: str
    precision: str
    accuracy: float | None = None  # fraction of the test images, 0 to 1
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    throughput_per_s: float | None = None
    energy_per_item_j: float | None = None
    size_bytes: int | None = None  # on disk
    memory_bytes: int | None = None  # in use while serving
    cost_per_million_usd: float | None = None


@_row("engine_files", key=("sha256",))
class EngineFile:
    """A file that TensorRT made here. It is machine code: only bytes that match such a row are ever loaded again."""

    sha256: str  # of the file
    file: str  # its name
    bytes: int
    onnx_sha256: str  # of the model it was built from, weights included
    settings: str  # JSON: how it was built
    library: str  # "tensorrt" or "tensorrt-rtx"
    library_version: str
    gpu: str | None = None  # it was built on; None: on a machine without one
    compute_capability: str | None = None
    driver: str | None = None
    built_utc: str


@_row("trainings", key=("run_key", "study", "variant", "device"))
class Training(_Measured):
    """One way to train one network; `variant` says what is different from the study's baseline."""

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


@_row("batches", key=("batch_key",))
class Batch:
    """One call of the runner over several notebooks; `status` is set when it ends."""

    batch_key: str
    settings: str  # JSON: profile, notebooks with their parameters, digest of their sources
    started_utc: str
    status: str | None = None  # "passed" or "failed"; None while running or after a kill


@_row("attempts", key=("run_key",))
class Attempt(_OfRun):
    """One try of the runner at one notebook of a batch; the newest of a notebook and seed is the one that counts."""

    batch_key: str
    notebook: str
    profile: str
    started_utc: str
    status: str  # "running", "passed", "failed" or "interrupted"
    reason: str | None = None  # why it did not pass
    seconds: float | None = None
    cells_done: int | None = None  # code cells that ran to their end
    cells_total: int | None = None
    output: str | None = None  # the executed notebook, relative to artifacts/, with forward slashes
    finished_utc: str | None = None
    seed: int | None = None  # where the batch had seeds
    host: str | None = None  # the machine of a cluster that it ran on


@_row("latencies", key=("run_key", "name", "device", "threads", "batch"))
class Latency(_Measured, Shown):
    """How long one call takes."""

    name: str = ""
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
    noise: str | None = None  # why it is noisy
    other_load: float | None = None  # share of the cores' time that other processes used, 0 to 1
    clock_mhz: float | None = None
    throttle: str | None = None
    sqnr_db: float | None = None  # of an INT8 engine's answers, against the file run as it is written

    def facts(self):
        if self.p50_ms is None:
            return [("not measured", self.reason or "")]
        low, high = shown(self.low_ms / 1e3, "s"), shown(self.high_ms / 1e3, "s")
        tail = [(name, shown(ms / 1e3, "s")) for name, ms in (("p95", self.p95_ms), ("p99", self.p99_ms)) if ms]
        return [
            ("median", f"{shown(self.p50_ms / 1e3, 's')} (95 %: {low} to {high})"),
            *tail,
            *([("no tail", self.tail_reason)] if self.tail_reason else []),
            *([("answers as the file means", f"{self.sqnr_db:.0f} dB")] if self.sqnr_db is not None else []),
            ("first call", shown(self.cold_ms / 1e3, "s")),
            ("throughput", f"{shown(self.throughput_per_s)} items/s at batch {self.batch}"),
            ("samples", f"{len(self.samples_ms)} after {self.warmup_calls} warm-up calls"),
            ("on", f"{self.device}, {self.threads} threads"),
            ("noise", self.noise or "quiet"),
        ]


@_row("ratios", key=("run_key", "name", "baseline", "arm", "device", "threads"))
class Ratio(_Measured, Shown):
    """How many times faster `arm` is than `baseline`: time of baseline / time of arm, from interleaved pairs."""

    name: str = ""
    baseline: str
    arm: str
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
    noise: str | None = None

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


@_row("submissions", key=("run_key", "name"))
class Scored(_Measured):
    """What the course said of one submission to the order of the last lesson."""

    name: str
    medal: str | None = None  # "gold", "silver" or "bronze"
    points: float | None = None  # times better than the reference network, with its interval
    points_low: float | None = None
    points_high: float | None = None
    accuracy: float | None = None  # share of the changed copies, 0 to 1
    accuracy_originals: float | None = None  # of the same pictures as they are; no medal counts them
    accuracy_low: float | None = None
    accuracy_high: float | None = None
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
    reported_by: str | None = None  # the file of somebody else that the row came from; None: scored here


@_row("memories", key=("run_key", "name", "device", "batch"))
class Memory(_Measured, Shown):
    """What one call needs beyond what was there before it."""

    name: str = ""
    batch: int = 1
    peak_bytes: int | None = None  # most the GPU's allocator held, the model included
    tensor_bytes: int | None = None  # most bytes of new tensors alive at once
    saved_bytes: int | None = None  # kept for the backward pass; each storage counted once, parameters not

    def facts(self):
        names = ("peak_bytes", "tensor_bytes", "saved_bytes")
        known = [(name, getattr(self, name)) for name in names]
        facts = [(name.removesuffix("_bytes").replace("_", " "), shown(v, "B")) for name, v in known if v is not None]
        return facts + ([("unknown", self.reason)] if self.reason else [])


@_row("energies", key=("run_key", "name", "device", "threads", "batch"))
class Energy(_Measured, Shown):
    """Energy of a window of calls, the idle draw of the device included."""

    name: str = ""
    batch: int = 1
    joules_per_item: float | None = None
    joules: float | None = None
    seconds: float | None = None
    items: int | None = None
    source: str | None = None  # "NVML" or "RAPL"
    fix: str | None = None

    def facts(self):
        if self.joules_per_item is None:
            return [("not measured", self.reason or ""), *([("next", self.fix)] if self.fix else [])]
        return [
            ("energy", f"{shown(self.joules_per_item, 'J')} an item"),
            ("power", f"{shown(self.joules / self.seconds, 'W')} over {self.seconds:.1f} s ({self.source})"),
        ]
