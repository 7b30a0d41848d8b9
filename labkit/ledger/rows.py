"""The typed rows of the ledger.

A row is a frozen dataclass: units stand in the field names, and None means unknown, never 0.
TABLE names its table, KEY the fields that make it unique: writing the same key again replaces the row,
so that running a cell twice does not count twice.
"""

from dataclasses import dataclass
from typing import ClassVar

from labkit.device.machine import Machine  # noqa: F401
from labkit.ledger.measured import Energy, Latency, Memory, Ratio  # noqa: F401 (rows of the ledger like those below)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One execution of one notebook (or of one command)."""

    TABLE: ClassVar = "runs"
    KEY: ClassVar = ("run_key",)
    run_key: str
    notebook: str
    profile: str
    seed: int
    started_utc: str
    machine_key: str
    commit: str | None = None
    batch_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Written by the last cell of a notebook: the only proof that the run went to its end.

    `cell_count` is the number of code cells the kernel had executed by then: a record written by
    an earlier cell does not match the notebook's length and proves nothing.
    """

    TABLE: ClassVar = "completions"
    KEY: ClassVar = ("run_key",)
    run_key: str
    notebook: str
    cell_count: int
    seconds: float
    finished_utc: str


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the reader expected, and (once revealed) what was measured."""

    TABLE: ClassVar = "predictions"
    KEY: ClassVar = ("run_key", "prediction_id")
    run_key: str
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


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the text, and whether this run bears it out."""

    TABLE: ClassVar = "claims"
    KEY: ClassVar = ("run_key", "claim_id")
    run_key: str
    claim_id: str
    sentence: str
    verdict: str  # "holds", "fails" or "inconclusive"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str | None = None
    reason: str | None = None  # why there is no value


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The verdict on one exercise."""

    TABLE: ClassVar = "answers"
    KEY: ClassVar = ("run_key", "exercise_id")
    run_key: str
    exercise_id: str
    verdict: str  # "passed", "wrong" or "unsolved"
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The best this machine was seen to do at one thing: the roof of later rooflines."""

    TABLE: ClassVar = "ceilings"
    KEY: ClassVar = ("run_key", "name", "device", "threads")
    run_key: str
    name: str  # "copy", "matmul-fp32", "matmul-bf16", "matmul-int8"
    device: str
    threads: int
    bytes_per_s: float | None = None
    ops_per_s: float | None = None
    samples: int | None = None
    noisy: bool | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One way to serve one model: a point in the accuracy/latency/size picture."""

    TABLE: ClassVar = "deployments"
    KEY: ClassVar = ("run_key", "model", "engine", "precision", "device", "threads", "batch")
    run_key: str
    dataset: str
    model: str
    engine: str
    precision: str
    device: str
    threads: int
    batch: int
    accuracy: float | None = None  # fraction of the test images, 0 to 1
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    throughput_per_s: float | None = None
    energy_per_item_j: float | None = None
    size_bytes: int | None = None  # on disk
    memory_bytes: int | None = None  # in use while serving
    cost_per_million_usd: float | None = None
    noisy: bool | None = None
    reason: str | None = None  # why numbers are missing


@dataclass(frozen=True, kw_only=True)
class EngineFile:
    """A file that TensorRT made here. It is machine code: only bytes that match such a row are ever loaded again."""

    TABLE: ClassVar = "engine_files"
    KEY: ClassVar = ("sha256",)
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


@dataclass(frozen=True, kw_only=True)
class Training:
    """One way to train one network; `variant` says what is different from the study's baseline."""

    TABLE: ClassVar = "trainings"
    KEY: ClassVar = ("run_key", "study", "variant", "device")
    run_key: str = ""
    study: str  # such as "training-phases"
    variant: str
    model: str
    dataset: str
    device: str
    threads: int | None = None
    batch: int | None = None
    images: int | None = None  # seen in the time of `total_s`
    data_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    total_s: float | None = None
    accuracy: float | None = None  # fraction of the test images, 0 to 1
    memory_bytes: int | None = None  # the most that was needed at once
    noisy: bool | None = None
    reason: str | None = None  # why numbers are missing


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One call of the runner over several notebooks; `status` is set when it ends."""

    TABLE: ClassVar = "batches"
    KEY: ClassVar = ("batch_key",)
    batch_key: str
    settings: str  # JSON: profile, parameters, notebooks, digest of their sources
    started_utc: str
    status: str | None = None  # "passed" or "failed"; None while running or after a kill


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try of the runner at one notebook of a batch; the newest of a notebook is the one that counts."""

    TABLE: ClassVar = "attempts"
    KEY: ClassVar = ("run_key",)
    run_key: str
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
