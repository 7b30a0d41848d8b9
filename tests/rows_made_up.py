"""Rows for tests: one finished lesson with a claim, a prediction and deployments."""

from labkit import device, ledger
from labkit.ledger.rows import (
    Answer,
    Attempt,
    Claim,
    Completion,
    Deployment,
    LessonAnswer,
    Memory,
    Prediction,
    RaceScore,
    Run,
    Scored,
)

MODEL = {"dataset": "d", "engine": "eager", "precision": "fp32", "device": "cpu", "threads": 2}
LIMITS = {
    "because": "half the bytes are read",
    "holds_for": "large layers",
    "not_for": "small batches",
}
ANSWER = {"value": 1.41, "low": 1.31, "high": 1.52, "unit": "x", **LIMITS}


def write_lesson(
    run_key="r1",
    notebook="03_what_limits_speed",
    *,
    sentence="bf16 is faster",
    started="2026-01-01T10:00:00+00:00",
    seed=0,
    machine=None,
):
    """A whole run in the ledger, of this machine unless another `Machine` is given."""
    machine = machine or device.describe()
    at = {"run_key": run_key}
    of = {"machine_key": machine.machine_key, "commit": device.commit()}
    run = Run(**at, notebook=notebook, profile="quick", seed=seed, started_utc=started, **of)
    ledger.add(
        machine,
        run,
        Completion(**at, notebook=notebook, cell_count=3, seconds=1.0, finished_utc=started),
        Claim(
            **at,
            claim_id="c",
            sentence=sentence,
            verdict="holds",
            value=2.0,
            low=1.8,
            high=2.2,
            unit="x",
        ),
        LessonAnswer(**at, sentence=f"So {sentence}", **ANSWER),
        Claim(
            **at,
            claim_id="e",
            sentence="it is cheap",
            verdict="inconclusive",
            reason="no energy counter",
        ),
        Prediction(
            **at,
            prediction_id="p",
            question="How much?",
            answer="2",
            source="default",
            result="2.16463",
        ),
        Answer(**at, exercise_id="image-bytes", verdict="unsolved", message="Nothing here yet."),
        Memory(**at, name="copy", device="cpu", threads=2, peak_bytes=300, noisy=True),
        Deployment(
            **at,
            model="small",
            batch=1,
            accuracy=0.7,
            latency_p50_ms=0.5,
            size_bytes=10**6,
            **MODEL,
        ),
        Deployment(
            **at,
            model="large",
            batch=1,
            accuracy=0.9,
            latency_p50_ms=5.0,
            size_bytes=10**8,
            **MODEL,
        ),
        Deployment(
            **at, model="int8", batch=1, reason="this CPU has no int8 instructions", **MODEL
        ),
    )


def write_attempt(
    run_key="r1",
    notebook="03_what_limits_speed",
    *,
    status="passed",
    reason=None,
    output=None,
    **where,
):
    """What the runner keeps of one try; `where` is a seed and a host."""
    when = "2026-01-01T10:00:00+00:00"
    row = Attempt(
        run_key=run_key,
        batch_key="b",
        notebook=notebook,
        profile="quick",
        started_utc=when,
        status=status,
        reason=reason,
        seconds=12.5,
        cells_done=3,
        cells_total=3,
        output=output,
        finished_utc=when,
        **where,
    )
    ledger.add(row)


def write_scores(name="Ada & Bob"):
    """A score on each of the two boards of this machine: a file, and a recipe to train fast
    with.
    """
    machine = device.describe()
    at = {"name": name, "device": "cpu", "machine_key": machine.machine_key}
    file = {"points": 5.1, "points_low": 4.9, "points_high": 5.3, "accuracy": 0.82, "latency": 0.3}
    race = {
        "points": 2.4,
        "points_low": 2.2,
        "points_high": 2.6,
        "accuracy": 0.81,
        "seconds": 1.5,
        "seeds": 3,
    }
    of = {
        "race": "quick",
        "dataset": "fashion-mnist",
        "target": 0.8,
        "recipe": '{"network": "cnn-small"}',
    }
    ledger.add(
        machine,
        Scored(
            run_key=f"submit-{name}",
            **at,
            **file,
            size_bytes=90_000,
            engine="onnxruntime",
            precision="int8",
        ),
        RaceScore(run_key=f"race-{name}", **at, **race, **of),
    )
