"""Experiments: found by themselves, each row in the ledger at once, and on record by experiment."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from labkit import cli, device, experiments, ledger
from labkit.errors import LabError
from labkit.experiments import Scale, _timed, convnext_training, resnet50_compile
from labkit.ledger.rows import Completion, Latency, Memory, Run, Training
from labkit.lesson.syllabus import lessons

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def a_clean_commit(monkeypatch):
    monkeypatch.setattr(device, "commit", lambda: "abc")
    monkeypatch.setattr(device, "kinds", lambda: ("cpu",))


@pytest.mark.parametrize("name", experiments.names())
def test_each_experiment_says_what_it_measures_and_how_long_it_takes(name):
    module = experiments.get(name)
    assert experiments.summary(name).endswith(".")
    assert "quick" in module.__doc__ and "inutes" in module.__doc__ and "Source" in module.__doc__
    assert module.MINUTES > 0
    assert callable(module.measure)


def test_no_experiment_has_the_slug_of_a_lesson():
    assert {lesson.slug for lesson in lessons()}.isdisjoint(experiments.names())


def test_an_unknown_experiment_and_no_time_are_refused():
    with pytest.raises(LabError, match="bert-batches"):
        next(experiments.run("bert"))
    for minutes in (0, -1, float("nan"), float("inf")):
        with pytest.raises(LabError, match="minutes above 0"):
            next(experiments.run("bert-batches", minutes=minutes))


def pretend(monkeypatch, measure):
    """Put a quick experiment into the place of activations."""
    module = SimpleNamespace(measure=measure, MINUTES=1, __doc__="Words. quick, minutes.")
    monkeypatch.setattr(experiments, "get", lambda name: module)


def two_rows(scale):
    yield Latency(name="a", device="cpu", network="net", p50_ms=1.0)
    yield Memory(name="b", device="cpu", network="net", saved_bytes=3)


def test_rows_say_run_experiment_machine_and_time_and_a_whole_run_is_recorded_by_experiment(
    monkeypatch, tmp_path
):
    pretend(monkeypatch, two_rows)
    rows = list(experiments.run("activations", quick=True))
    (run,) = ledger.find(Run)
    assert (run.notebook, run.profile, run.commit) == ("activations", "quick", "abc")
    assert {row.run_key for row in rows} == {run.run_key}
    assert {(row.experiment, row.machine_key) for row in rows} == {
        ("activations", device.describe().machine_key)
    }
    assert all(row.measured_utc for row in rows)
    (path,) = ledger.record("Box", profile="quick", folder=tmp_path, experiment="activations")
    assert path.name == "activations.json"
    found = ledger.recorded("memories", experiment="activations", folder=tmp_path)
    assert found[["network", "hardware", "saved_bytes"]].values.tolist() == [["net", "Box", 3]]


def test_an_interrupted_experiment_keeps_its_rows_and_is_not_recorded(monkeypatch, tmp_path):
    pretend(monkeypatch, two_rows)
    rows = experiments.run("activations", quick=True)
    next(rows)
    rows.close()
    assert [row.name for row in ledger.find(Latency)] == ["a"]
    assert ledger.find(Completion) == []
    with pytest.raises(LabError, match="Nothing was recorded"):
        ledger.record("Box", profile="quick", folder=tmp_path)


def test_recording_one_experiment_leaves_the_others_alone(monkeypatch, tmp_path):
    pretend(monkeypatch, two_rows)
    for name in ("activations", "bert-batches"):
        list(experiments.run(name, quick=True))
    (path,) = ledger.record("Box", profile="quick", folder=tmp_path, experiment="bert-batches")
    assert path.name == "bert-batches.json"
    assert len(ledger.record("Box", profile="quick", folder=tmp_path)) == 2


def call(*words, expect=0):
    result = CliRunner().invoke(cli.app, ["experiment", *words])
    assert result.exit_code == expect, result.output
    return result.output


def test_the_command_shows_each_row_records_them_and_lists_what_is_on_record(
    monkeypatch, own_artifacts
):
    with monkeypatch.context() as patched:
        pretend(patched, two_rows)
        output = call("activations", "--quick", "--record", "Ada's box")
    assert "a, batch 1: 1 ms" in output
    assert "b, batch 1: 3 B" in output
    (path,) = (own_artifacts / "recorded").rglob("*.json")
    assert path.name == "activations.json"
    listed = call("--list")
    assert "convnext-training" in listed.partition("On record")[0]
    line = next(line for line in listed.splitlines() if "Ada's box" in line)
    assert (
        line.split()[0] == "activations" and "quick, edition" in line and line.endswith(": 2 rows")
    )


def test_the_command_without_a_name_says_which_there_are():
    result = CliRunner().invoke(cli.app, ["experiment"])
    assert isinstance(result.exception, LabError)
    assert "convnext-training" in str(result.exception)


# --- what they measure ---


def test_an_epoch_is_the_median_step_times_the_steps_of_100000_images():
    row_fields = {"study": "s", "model": "m", "device": "cpu", "batch": 128}
    row = convnext_training._row("AMP", [1.0, 9.0, 2.0], dataset="random", row_fields=row_fields)
    assert (row.total_s, row.images) == (781 * 2.0, 781 * 128)
    assert row.dataset == "random; an epoch of 781 steps from 3 that were timed"


def test_each_variant_is_the_first_in_one_turn_of_four():
    variants = list(convnext_training.VARIANTS)
    orders = [convnext_training.order_of_turn(variants, turn) for turn in range(4)]
    assert sorted(order[0] for order in orders) == sorted(variants)
    assert all(sorted(order) == sorted(variants) for order in orders)


def test_the_ways_do_the_same_step_and_the_first_network_is_left_alone():
    torch.manual_seed(0)
    first = nn.Linear(4, 3)
    before = first.weight.detach().clone()
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    arms = {amp: convnext_training.training_arm(first, amp=amp) for amp in (False, True)}
    for _, train in arms.values():
        train(x, y)
    assert torch.equal(first.weight, before)
    by_hand = nn.Linear(4, 3)
    by_hand.load_state_dict(first.state_dict())
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=1e-3, weight_decay=0.05)
    nn.functional.cross_entropy(by_hand(x), y).backward()
    optimizer.step()
    assert torch.allclose(arms[False][0].weight, by_hand.weight, atol=1e-6)
    # Adam's first step is 1e-3 in size
    assert torch.allclose(arms[True][0].weight, by_hand.weight, atol=3e-3)


def test_without_enough_memory_or_without_a_compiler_there_is_a_reason_and_no_time(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(device, "free_bytes", lambda where: 10**6)
        rows = list(convnext_training.measure(Scale(quick=True, seconds=0.1, device=CPU)))
    assert [row.total_s for row in rows] == [None] * 4
    assert all("GiB are free" in row.reason for row in rows)
    monkeypatch.setattr("labkit.device.packages.shutil.which", lambda name: None)
    rows = {
        row.variant: row
        for row in convnext_training.measure(Scale(quick=True, seconds=0.1, device=CPU))
    }
    assert {way: row.total_s is None for way, row in rows.items()} == {
        "vanilla": False,
        "compile": True,
        "AMP": False,
        "compile + AMP": True,
    }
    assert "C++ compiler" in str(rows["compile"].reason) or "cannot build" in rows["compile"].reason


@pytest.mark.slow
def test_two_networks_train_plain_and_compiled_and_an_epoch_is_so_many_steps(monkeypatch):
    compiled = []

    def compile_(network, **options):
        compiled.append(type(network).__name__)
        return network

    monkeypatch.setattr(torch, "compile", compile_)
    rows = list(resnet50_compile.measure(Scale(quick=True, seconds=0.5, device=CPU)))
    assert [(row.model, row.variant) for row in rows] == [
        (network, f"{network}, 32 pixels, {way}")
        for network in resnet50_compile.QUICK_NETWORKS
        for way in ("vanilla", "compile")
    ]
    assert len(compiled) == 2  # one of each network
    assert all(row.images == 12_500 * 8 and 0 < row.total_s < 1e5 for row in rows)
    assert all("an epoch of 12500 steps from" in row.dataset for row in rows)


def test_without_a_compiler_the_plain_training_is_measured_and_the_compiled_one_says_why_not(
    monkeypatch,
):
    monkeypatch.setattr("labkit.device.packages.shutil.which", lambda name: None)
    rows = list(resnet50_compile.measure(Scale(quick=True, seconds=0.5, device=CPU)))
    assert len({row.variant for row in rows}) == 4, "the ledger tells rows apart by their variant"
    for row in rows:
        if row.variant.endswith("vanilla"):
            assert row.total_s > 0 and row.reason is None
        else:
            assert row.total_s is None and "compile" in row.reason


def test_the_published_size_is_rows_with_a_reason_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(resnet50_compile, "_trainings", lambda *words, **named: [])
    rows = list(resnet50_compile.measure(Scale(quick=False, seconds=1, device=CPU)))
    assert len(rows) == len({row.variant for row in rows}) == 4
    assert {row.reason for row in rows} == {resnet50_compile.NEEDS_GPU}


def timed(monkeypatch, seconds_of_a_call):
    """The rows of three batches whose calls take so long."""
    monkeypatch.setattr(_timed, "_seconds_of_a_call", lambda served, x: seconds_of_a_call * len(x))
    inputs = [torch.zeros(batch, 2) for batch in (1, 4, 16)]
    row_fields = {"name": "n", "network": "net", "device": "cpu"}
    return list(
        _timed.timed_batches(
            "eager", nn.Linear(2, 2).eval(), inputs, seconds=0.2, row_fields=row_fields
        )
    )


def test_a_batch_that_takes_too_long_has_a_reason_and_so_have_larger_ones(monkeypatch):
    one, four, sixteen = timed(monkeypatch, 0.01)  # 8 calls: 0.08, 0.32 and 1.28 s
    assert one.p50_ms > 0 and one.reason is None
    assert (
        four.p50_ms is None
        and four.reason == "one call with batch 4 takes 0.04 s, too long for 8 in 0.2 s"
    )
    assert (sixteen.batch, sixteen.p50_ms, sixteen.reason) == (16, None, four.reason)


def test_what_an_engine_does_not_serve_and_what_memory_does_not_hold_are_reasons(monkeypatch):
    inputs = [torch.zeros(1, 2), torch.zeros(4, 2)]
    settings = {"seconds": 0.1, "row_fields": {"name": "n", "network": "net", "device": "cpu"}}
    rows = list(
        _timed.timed_batches("eager", nn.Linear(2, 2), inputs, precision="int8", **settings)
    )
    assert [row.reason for row in rows] == ["eager has no int8. int8"] * 2
    rows = list(_timed.timed_batches("eager", nn.Linear(3, 2).eval(), inputs, **settings))
    assert all(row.p50_ms is None and row.reason for row in rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's compiler and exporter
@pytest.mark.parametrize(
    ("name", "count", "network"),
    [
        ("convnext-training", 4, "convnext-mini"),
        ("bert-batches", 6, "encoder-small"),
        ("activations", 8, "convnext-mini"),
    ],
)
def test_a_real_experiment_runs_in_a_tiny_form_and_is_found_by_its_name(
    name, count, network, tmp_path, monkeypatch
):
    # The graph is captured and differentiated; code for it takes the compiler a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    rows = list(experiments.run(name, quick=True, minutes=0.02))
    assert len(rows) == count
    assert {row.network for row in rows} == {network}
    seconds = [row.total_s if isinstance(row, Training) else row.p50_ms for row in rows]
    assert all(
        (number and number > 0) or row.reason for number, row in zip(seconds, rows, strict=True)
    )
    assert any(seconds)
    ledger.record("Box", profile="quick", folder=tmp_path)
    found = ledger.recorded(rows[0].TABLE, experiment=name, folder=tmp_path)
    assert len(found) == count and set(found["network"]) == {network}
    if name == "convnext-training":
        assert all(
            "random images" in dataset or "Tiny-ImageNet at" in dataset
            for dataset in found["dataset"]
        )
