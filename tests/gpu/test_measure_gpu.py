"""`labkit gpu`, tried on a CPU with tiny sizes: with torch and NumPy alone, through kills, and
as a record.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from importlib.metadata import requires
from types import SimpleNamespace

import numpy as np
import pytest
from hidden_parts import HOOK
from scipy.stats import binom
from typer.testing import CliRunner

from labkit import cli
from labkit.files import root
from labkit.gpu import ITEMS
from labkit.gpu.arms import Arm, Ready
from labkit.gpu.journal import NAME, Journal
from labkit.gpu.measuring import write_ratio
from labkit.gpu.record import missing, rows_of, tables_of
from labkit.gpu.timing import interval, verdict
from labkit.ledger import recorded
from labkit.ledger._store import row_of
from labkit.ledger.rows import Latency

# torch, what its own installation brings, and NumPy
TORCH_AND_NUMPY = {"torch", "numpy"} | {
    re.match(r"[\w-]+", line)[0].lower() for line in requires("torch")
}
IMPORTED_AS = {
    "pillow": "PIL",
    "pyyaml": "yaml",
    "nvidia-ml-py": "pynvml",
    "ipython": "IPython",
    "ml-dtypes": "ml_dtypes",
}


def dependencies():
    """The names under which the course's dependencies are imported, but torch, what torch needs,
    and NumPy.
    """
    project = tomllib.loads((root() / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    names = {re.match(r"[\w-]+", line)[0].lower() for line in lines}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names} - TORCH_AND_NUMPY


@pytest.fixture
def bare(tmp_path):
    """The environment of a Python with torch and NumPy, and no other dependency of the course."""
    folder = tmp_path / "bare"
    folder.mkdir()
    hook = HOOK.format(modules=sorted(dependencies()), names=())
    (folder / "sitecustomize.py").write_text(hook, encoding="utf-8")
    paths = os.pathsep.join([str(folder), str(root())])
    return {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def command(folder, *words):
    return [sys.executable, "-m", "labkit.gpu", "--tiny", "--out", str(folder), *words]


def rows(folder):
    return [line for line in Journal(folder / f"tiny-{NAME}").lines() if line["kind"] == "row"]


# with --tiny these do what the item of the same name and of another size does
SAME_WHEN_TINY = {"training-224", "inference-224", "tensorrt-64"}


@pytest.mark.slow
def test_all_items_run_with_torch_and_numpy_alone_and_the_record_is_found_by_experiment(
    bare, tmp_path
):
    refused = subprocess.run(
        [sys.executable, "-c", "import typer"], env=bare, capture_output=True, cwd=tmp_path
    )
    assert refused.returncode != 0, "the environment of this test refuses other packages"
    out = tmp_path / "out"
    different = [name for name in ITEMS if name not in SAME_WHEN_TINY]
    words = command(out, "--hardware", "A card, a CPU", "--only", ",".join(different))
    done = subprocess.run(
        words, env=bare, capture_output=True, text=True, cwd=tmp_path, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["item"] for row in rows(out)} == set(different)
    reasons = {row["reason"] for row in rows(out) if row["value"] is None}
    needs_a_gpu = ("CUDA graphs", "Triton", "TensorRT", "only a GPU")
    assert all(any(part in reason for part in needs_a_gpu) for reason in reasons), reasons
    assert {ITEMS[name].function for name in different} == {
        item.function for item in ITEMS.values()
    }
    for experiment in {item.experiment for item in ITEMS.values()} - {"cuda-graph", "tensorrt"}:
        tables = ("trainings", "latencies", "memories", "ratios")
        found = [recorded(table, experiment=experiment, folder=out) for table in tables]
        numbers = [frame for frame in found if len(frame)]
        assert numbers and set(numbers[0]["hardware"]) == {"A card, a CPU"}, experiment
    trained = recorded("trainings", experiment="convnext-training", folder=out)
    assert {"vanilla", "compile", "AMP", "compile + AMP"} <= set(trained["variant"])
    assert str(tmp_path) not in next(out.rglob("gpu-tiny.json")).read_text(encoding="utf-8")


def test_a_bandwidth_stands_with_the_latencies():
    row = {
        "experiment": "fastswish",
        "variant": "ReLU",
        "quantity": "forward, bandwidth",
        "unit": "GB/s",
        "value": 2.5,
    }
    arm = {"batch": 1, "image_size": None, "precision": "fp32", "compiled": False, "network": None}
    ((table, rows),) = tables_of([{**row, **arm, "device": "cuda", "samples": 11}]).items()
    assert table == "latencies"
    stored = row_of(Latency, rows[0])
    assert (stored.name, stored.bytes_per_s, stored.p50_ms) == (
        "ReLU, forward, bandwidth",
        2.5e9,
        None,
    )


@pytest.mark.kills
def test_a_kill_loses_no_row_and_the_same_command_goes_on(bare, tmp_path):
    out = tmp_path / "out"
    words = command(out, "--minutes", "3")
    running = subprocess.Popen(
        words, env=bare, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 120
    while not (out.exists() and len(rows(out)) >= 3):
        assert time.monotonic() < end and running.poll() is None
        time.sleep(0.1)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = rows(out)
    assert len(before) >= 3
    again = subprocess.run(
        command(out, "--only", "ghost"), env=bare, cwd=tmp_path, capture_output=True, timeout=200
    )
    assert again.returncode == 0
    after = rows(out)
    assert after[: len(before)] == before
    assert {row["experiment"] for row in after} >= {"convnext-training", "ghost-batch-norm"}


def test_a_piece_of_a_line_that_a_kill_left_is_left_out_and_the_next_line_is_whole(tmp_path):
    journal = Journal(tmp_path / NAME)
    journal.append(kind="row", number=1)
    with journal.path.open("ab") as file:
        file.write(b'{"kind": "row", "num')
    journal.append(kind="row", number=2)
    assert [line["number"] for line in journal.lines()] == [1, 2]


def test_an_arm_that_was_planned_and_not_measured_becomes_a_row_with_the_reason():
    arm = {
        "experiment": "tensorrt",
        "variant": "fp16",
        "batch": 1,
        "image_size": None,
        "precision": "fp32",
    }
    arm |= {"compiled": False, "network": None}
    done = {**arm, "variant": "fp32"}
    lines = [{"kind": "plan", "arms": [done, arm]}, {"kind": "row", **done, "value": 1.0}]
    (row,) = missing("tensorrt-1", lines, "ended after 60 s")
    assert (row["variant"], row["value"], row["reason"]) == ("fp16", None, "ended after 60 s")
    (row,) = missing("tensorrt-1", [], "ended after 60 s")
    assert row["experiment"] == "tensorrt" and row["reason"] == "ended after 60 s"


def test_a_measured_row_goes_before_one_with_a_reason_and_rows_of_other_machines_are_left_out():
    same = {
        "kind": "row",
        "experiment": "e",
        "variant": "v",
        "quantity": "step",
        "batch": 1,
        "image_size": None,
    }
    same |= {"precision": "fp32", "compiled": False}
    lines = [
        {"kind": "machine", "machine_key": "other"},
        {**same, "value": 9.0},
        {"kind": "machine", "machine_key": "ours"},
        {**same, "value": 2.0, "in_turn": True},
        {**same, "value": 3.0, "in_turn": False},
        {**same, "value": None},
    ]
    assert [row["value"] for row in rows_of(lines, "ours")] == [2.0]


@pytest.mark.parametrize("n", [6, 11, 25, 100])
def test_the_interval_of_a_median_ends_at_the_samples_that_the_binomial_distribution_names(n):
    rank = int(binom.ppf(0.025, n, 0.5))  # the largest k with P(X < k) at most 2.5 %
    timing = interval(np.random.default_rng(0).permutation(n) + 1.0)
    assert (timing.low, timing.high, timing.median) == (rank, n + 1 - rank, (n + 1) / 2)
    assert interval([1.0, 2.0, 3.0]).low is None


def test_a_ratio_within_the_floor_of_the_null_arm_is_no_difference():
    assert verdict(1.05, 1.2, 0.02, 20) == "faster"
    assert verdict(1.01, 1.2, 0.02, 20) == "not distinguishable"
    assert verdict(0.5, 0.9, 0.02, 20) == "slower"
    assert verdict(1.05, 1.2, 0.02, 10) == "too few pairs"


def test_the_row_of_a_ratio_has_the_time_of_one_call_of_a_graph_that_holds_16():
    written = []
    bench = SimpleNamespace(row=lambda *values, **fields: written.append((values, fields)))
    plain, graph = (Arm("cuda-graph", name, network=None) for name in ("ReLU", "ReLU, as a graph"))
    ready = {
        arm: Ready(None, inner=inner, calls=1, output=None, peak_bytes=None, facts={})
        for arm, inner in ((plain, 1), (graph, 16))
    }
    times = {plain: np.full(11, 3.0), graph: np.full(11, 24.0)}  # ms; a replay does it 16 times
    write_ratio(bench, graph, plain, quantity="call", ready=ready, times=times, floor=0.1)
    [((arm, _, ratio, unit), fields)] = written
    assert (arm, ratio, unit, fields["verdict"]) == (graph, 2.0, "x", "faster")
    assert (fields["baseline_ms"], fields["arm_ms"]) == (3.0, 1.5)


def test_the_items_are_listed_and_an_unknown_one_is_refused(tmp_path):
    listed = CliRunner().invoke(cli.app, ["gpu", "--list"]).output
    assert [line.split()[0] for line in listed.splitlines()] == list(ITEMS)
    words = command(tmp_path, "--only", "nothing")
    refused = subprocess.run(words, capture_output=True, text=True, cwd=root())
    assert refused.returncode == 2
    assert "There is no item 'nothing'" in refused.stderr and "Traceback" not in refused.stderr


def test_the_tables_that_matter_most_come_first_and_fit_into_five_minutes():
    early = [item.early for item in ITEMS.values()]
    assert early == sorted(early, reverse=True)
    assert 1 <= sum(early) <= 5, "each has a limit of 60 s"
    assert json.dumps([item.settings for item in ITEMS.values()])  # they go to the worker as text
