"""Results of named hardware: written whole and small, read back apart from the reader's own."""

import json
import os

import pytest
from rows_made_up import ANSWER, write_lesson

from labkit import device, ledger
from labkit.errors import LabError
from labkit.files import root
from labkit.ledger import _record, _recorded
from labkit.ledger.rows import Latency, LessonAnswer, Machine, Memory


def page(**changes):
    row = {"run_key": "r", "name": "copy", "device": "cpu", "threads": 1, "peak_bytes": 10**10}
    about = {
        "hardware": "a named machine",
        "date": "2026-01-01",
        "commit": "abc",
        "versions": {"torch": "2"},
    }
    return {**about, "tables": {"memories": [row]}, **changes}


def write(folder, name, content):
    (folder / name).write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )


@pytest.fixture(autouse=True)
def a_clean_commit(monkeypatch):
    monkeypatch.setattr(device, "commit", lambda: "abc")


def content(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_lesson_is_a_file_with_hardware_instructions_profile_date_commit_and_claims(tmp_path):
    write_lesson("r1", sentence="old")
    write_lesson("r2", sentence="new", started="2026-01-02T10:00:00+00:00")
    write_lesson("r3", "01_deployment_fundamentals", sentence="another")
    paths = ledger.record("RTX 4090, Ryzen 7950X", profile="quick", folder=tmp_path)
    assert [path.name for path in paths] == [
        "what-limits-speed.json",
        "deployment-fundamentals.json",
    ]
    first = content(next(iter(paths)))
    assert {"hardware", "date", "commit", "instructions", "tables"} <= set(first)
    assert (first["hardware"], first["profile"]) == ("RTX 4090, Ryzen 7950X", "quick")
    assert [row["sentence"] for row in first["tables"]["claims"]] == ["new", "it is cheap"]
    assert [row["sentence"] for row in first["tables"]["lesson_answers"]] == ["So new"]


def test_the_picture_of_an_answer_and_its_words_stay_with_the_run_that_drew_it(tmp_path):
    write_lesson()
    ledger.add(
        LessonAnswer(
            run_key="r1",
            sentence="Drawn",
            **ANSWER | {"picture": "a.png", "picture_words": "a line"},
        )
    )
    (path,) = ledger.record("Box", profile="quick", folder=tmp_path)
    drawn = content(path)["tables"]["lesson_answers"][-1]
    assert drawn["sentence"] == "Drawn" and drawn["because"]
    assert not {"picture", "picture_words"} & set(drawn)


@pytest.mark.parametrize(
    ("hardware", "isa", "name"),
    [
        ("AMD EPYC, 2 cores", "avx2 fma avx512_bf16", "amd-epyc-2-cores-avx512_bf16"),
        (
            "Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz, 8 cores",
            "avx2 fma",
            "intel-core-i7-8550u-8-cores-avx2",
        ),
        ("../..", "", "machine"),
    ],
)
def test_the_folder_is_named_by_the_hardware_and_its_instructions(hardware, isa, name):
    assert _record._folder_name(hardware, Machine(machine_key="k", cpu_isa=isa)) == name


def test_without_a_name_the_machine_names_itself(tmp_path):
    write_lesson()
    (path,) = ledger.record(profile="quick", folder=tmp_path)
    assert content(path)["hardware"] == device.describe().title


def test_two_machines_of_one_kind_are_kept_apart_by_their_names(tmp_path):
    write_lesson()
    found = {
        path
        for name in ("Desk", "Shelf")
        for path in ledger.record(name, profile="quick", folder=tmp_path)
    }
    assert len(found) == 2
    assert set(ledger.recorded("claims", folder=tmp_path)["hardware"]) == {"Desk", "Shelf"}


def change(path, **fields):
    path.write_text(json.dumps(content(path) | fields), encoding="utf-8")


def test_a_file_of_a_larger_profile_or_with_a_table_more_is_not_replaced(tmp_path):
    write_lesson()
    write_lesson("r2", "01_deployment_fundamentals")
    first, second = ledger.record("Box", profile="quick", folder=tmp_path)
    change(first, profile="lab")
    before = first.read_bytes()
    done = ledger.record("Box", profile="quick", folder=tmp_path)
    assert done == {first: "the file holds the profile lab", second: None}
    assert first.read_bytes() == before
    change(second, tables=content(second)["tables"] | {"ratios": [{}]})
    with pytest.raises(LabError, match="the file has ratios, the new run has none"):
        ledger.record("Box", profile="quick", folder=tmp_path)


def test_a_run_of_a_commit_with_changes_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "commit", lambda: "abc-dirty")
    write_lesson()
    with pytest.raises(LabError, match="abc-dirty"):
        ledger.record(profile="quick", folder=tmp_path / "recorded")
    assert not (tmp_path / "recorded").exists()


def test_by_itself_it_takes_the_profile_lab_and_writes_where_the_artifacts_are(own_artifacts):
    write_lesson()
    with pytest.raises(LabError, match="labkit run --profile lab"):
        ledger.record()
    (path,) = ledger.record("Box", profile="quick")
    assert path.is_relative_to(own_artifacts / "recorded")
    assert "Box" in set(ledger.recorded("claims")["hardware"])


def test_what_is_unknown_stays_unknown_and_numbers_come_back_the_same(tmp_path):
    write_lesson()
    ledger.record("Box", profile="quick", folder=tmp_path)
    own, there = ledger.load("deployments"), ledger.recorded("deployments", folder=tmp_path)
    assert there["latency_p50_ms"].tolist()[:2] == own["latency_p50_ms"].tolist()[:2]
    assert there["latency_p50_ms"].isna().tolist() == [False, False, True]
    assert set(there["hardware"]) == {"Box"}


def test_samples_stay_at_home_and_no_table_is_left_out_however_large(tmp_path):
    write_lesson()
    names = [f"{'a long name ' * 20}{number}" for number in range(500)]
    ledger.add(
        *(
            Latency(run_key="r1", name=name, device="cpu", p50_ms=1.0, samples_ms=(1.0,) * 9)
            for name in names
        )
    )
    (path,) = ledger.record(profile="quick", folder=tmp_path)
    assert "samples_ms" not in path.read_text(encoding="utf-8")
    assert len(ledger.recorded("latencies", folder=tmp_path)) == 500
    assert len(ledger.recorded("claims", folder=tmp_path)) == 2


def test_recorded_rows_never_mix_with_own_rows(tmp_path):
    write(tmp_path, "one.json", page())
    write(tmp_path, "two.json", page(hardware="another", tables={}))
    ledger.add(Memory(run_key="own", name="copy", device="cpu", threads=1))
    found = ledger.recorded("memories", folder=tmp_path)
    assert found[["run_key", "hardware", "recorded_on", "recorded_commit"]].values.tolist() == [
        ["r", "a named machine", "2026-01-01", "abc"]
    ]
    assert ledger.load("memories")["run_key"].tolist() == ["own"]
    nothing = ledger.recorded("completions", folder=tmp_path)
    assert len(nothing) == 0
    assert {"hardware", "run_key"} <= set(nothing.columns)


def test_with_nothing_to_record_it_says_what_to_run(tmp_path):
    with pytest.raises(LabError, match="labkit run"):
        ledger.record(folder=tmp_path)


def test_a_file_that_changed_is_read_again(tmp_path):
    write(tmp_path, "one.json", page())
    assert len(ledger.recorded("memories", folder=tmp_path)) == 1
    write(tmp_path, "one.json", page(tables={}))
    os.utime(tmp_path / "one.json", ns=(0, 0))
    assert len(ledger.recorded("memories", folder=tmp_path)) == 0


def test_columns_of_another_edition_are_ignored(tmp_path):
    tables = {"memories": [page()["tables"]["memories"][0] | {"later": "x"}]}
    write(tmp_path, "one.json", page(tables=tables))
    assert len(ledger.recorded("memories", folder=tmp_path)) == 1


def test_what_is_committed_can_be_read_and_is_small():
    for path in (root() / "artifacts" / "recorded").rglob("*.json"):
        assert path.stat().st_size <= 200_000
        assert "samples_ms" not in path.read_text(encoding="utf-8")
    assert len(ledger.recorded("machines")) >= 1


# --- found by experiment ---

TRAINING = {
    "run_key": "r",
    "study": "convnext-training-64",
    "variant": "AMP",
    "model": "m",
    "dataset": "d",
}
TRAINING |= {"device": "cpu"}
LATENCY = {"run_key": "r", "name": "GELU", "device": "cuda:0", "batch": 64, "p50_ms": 1.5}


def of_third_edition(folder, name, study="compile-amp"):
    """A file as the third edition wrote it: a lesson's number in its name, and no word of an
    experiment.
    """
    write(
        folder,
        name,
        page(profile="lab", tables={"trainings": [TRAINING | {"study": study, "total_s": 20.0}]}),
    )


def of_today(folder, name="convnext-training.json"):
    about = {
        "edition": 4,
        "experiment": "convnext-training",
        "network": "convnext-homebrew",
        "profile": "lab",
    }
    write(
        folder,
        name,
        page(hardware="a GPU", tables={"trainings": [TRAINING | {"total_s": 10.0}]}, **about),
    )


def test_rows_of_an_experiment_are_found_in_files_of_the_third_edition_and_of_today(tmp_path):
    of_third_edition(tmp_path, "07_compile_and_amp.json")
    of_third_edition(tmp_path, "07_convnext_tiny_imagenet.json", study="convnext-tiny-imagenet")
    of_third_edition(tmp_path, "04_where_training_time_goes.json", study="training-phases")
    of_today(tmp_path)
    found = ledger.recorded("trainings", experiment="convnext-training", folder=tmp_path)
    columns = [
        "study",
        "total_s",
        "hardware",
        "recorded_edition",
        "profile",
        "experiment",
        "network",
    ]
    assert found[columns].fillna({"network": "not said"}).values.tolist() == [
        ["compile-amp", 20.0, "a named machine", 3, "lab", "convnext-training", "not said"],
        [
            "convnext-tiny-imagenet",
            20.0,
            "a named machine",
            3,
            "lab",
            "convnext-training",
            "not said",
        ],
        ["convnext-training-64", 10.0, "a GPU", 4, "lab", "convnext-training", "convnext-homebrew"],
    ]


def test_the_rows_of_a_lesson_are_found_by_its_slug_whatever_experiment_they_belong_to(tmp_path):
    of_third_edition(tmp_path, "07_compile_and_amp.json")
    assert len(ledger.recorded("trainings", experiment="compile-and-amp", folder=tmp_path)) == 1
    assert len(ledger.recorded("trainings", experiment="07_compile_and_amp", folder=tmp_path)) == 0


def test_one_file_holds_the_pages_of_several_experiments(tmp_path):
    first = page(
        experiment="activations",
        tables={"latencies": [LATENCY, LATENCY | {"experiment": "fastswish"}]},
    )
    second = page(
        experiment="cuda-graph",
        edition=4,
        tables={"latencies": [LATENCY | {"network": "encoder-small"}]},
    )
    write(tmp_path, "gpu.json", [first, second])
    found = ledger.recorded("latencies", folder=tmp_path)
    assert found["experiment"].tolist() == ["activations", "fastswish", "cuda-graph"]
    assert found["network"].fillna("not said").tolist() == ["not said", "not said", "encoder-small"]
    counts = [(row.experiment, row.edition, row.rows) for row in ledger.on_record(tmp_path)]
    assert counts == [("activations", 3, 1), ("cuda-graph", 4, 1), ("fastswish", 3, 1)]


@pytest.mark.parametrize(
    ("name", "edition", "slug"),
    [
        ("00_start_here", 3, "what-limits-speed"),  # it became 03_what_limits_speed
        ("00_start_here", 4, "start-here"),
        ("03_what_limits_speed", 4, "what-limits-speed"),
        ("06_large_batch_tricks", 3, "large-batch-tricks"),
        ("07_large_batch_tricks", 4, "large-batch-tricks"),
        ("bert-batches", 4, "bert-batches"),
    ],
)
def test_a_lesson_keeps_its_slug_when_lessons_are_renumbered(name, edition, slug):
    assert ledger.slug(name, edition) == slug


def test_a_lesson_that_an_earlier_edition_recorded_is_not_recorded_beside_it_under_another_name(
    tmp_path,
):
    write_lesson("r2", "01_deployment_fundamentals")
    (path,) = ledger.record("Box", profile="quick", folder=tmp_path)
    old = path.rename(path.with_name("01_deployment_fundamentals.json"))
    assert ledger.record("Box", profile="quick", folder=tmp_path) == {old: None}
    assert len(ledger.recorded("memories", folder=tmp_path)) == 1


def test_a_file_of_several_experiments_is_not_replaced_by_one(tmp_path):
    write_lesson()
    (path,) = ledger.record("Box", profile="quick", folder=tmp_path)
    write(path.parent, path.name, [content(path), content(path)])
    with pytest.raises(LabError, match="the file holds several experiments"):
        ledger.record("Box", profile="quick", folder=tmp_path)


@pytest.mark.parametrize(
    "damaged", ["no json", {"hardware": "h"}, [1], {"tables": {"ratios": [{"run_key": "r"}]}}]
)
def test_a_damaged_file_is_named_and_no_traceback(tmp_path, damaged):
    write(tmp_path, "ratios.json", damaged)
    with pytest.raises(LabError, match=r"ratios\.json cannot be read"):
        ledger.recorded("ratios", folder=tmp_path)


def test_the_committed_files_are_named_by_their_experiment_and_say_their_edition():
    paths = list((root() / "artifacts" / "recorded").rglob("*.json"))
    pages = {path: stored for path in paths for stored in _recorded.stored_pages(path)}
    assert len(pages) >= 60
    assert all(
        isinstance(content(path), list) or content(path)["experiment"] == path.stem
        for path in paths
    )
    assert {stored["edition"] for stored in pages.values()} >= {3}
    assert set(ledger.recorded("trainings", experiment="convnext-training")["network"]) == {
        "convnext-homebrew"
    }
