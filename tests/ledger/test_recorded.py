"""Results of named hardware: written whole and small, read back apart from the reader's own."""

import json
import os

import pytest
from rows_made_up import write_lesson

from labkit import device, ledger
from labkit.errors import LabError
from labkit.files import root
from labkit.ledger import _recorded
from labkit.ledger.rows import Ceiling, Latency, Machine


def page(**changes):
    row = {"run_key": "r", "name": "copy", "device": "cpu", "threads": 1, "bytes_per_s": 1e10}
    about = {"hardware": "a named machine", "date": "2026-01-01", "commit": "abc", "versions": {"torch": "2"}}
    return {**about, "tables": {"ceilings": [row]}, **changes}


def write(folder, name, content):
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def test_the_newest_run_of_each_lesson_is_kept_with_hardware_date_versions_and_commit(tmp_path):
    write_lesson("r1", sentence="old")
    write_lesson("r2", sentence="new", started="2026-01-02T10:00:00+00:00")
    page = json.loads(ledger.record("RTX 4090, Ryzen 7950X", folder=tmp_path).read_text(encoding="utf-8"))
    assert {"hardware", "date", "commit", "versions", "tables"} <= set(page)
    assert page["hardware"] == "RTX 4090, Ryzen 7950X"
    assert [row["sentence"] for row in page["tables"]["claims"]] == ["new", "it is cheap"]


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        (Machine(machine_key="k", cpu="AMD EPYC", logical_cores=2, cpu_isa="avx2 fma avx512_bf16"),
         "amd-epyc-2-cores-avx512_bf16"),
        (Machine(machine_key="k", cpu="Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz", logical_cores=8, cpu_isa="avx2 fma"),
         "intel-core-i7-8550u-8-cores-avx2"),
        (Machine(machine_key="k", cpu="x", gpu="NVIDIA H100 80GB HBM3", logical_cores=16, cpu_isa="amx_int8"),
         "nvidia-h100-80gb-hbm3-16-cores-amx_int8"),
        (Machine(machine_key="k", cpu="../..", logical_cores=1), "1-cores"),
    ],
)  # fmt: skip
def test_the_file_is_named_by_the_machine_itself(machine, name):
    assert _recorded._file_name(machine) == name


def test_without_a_name_the_machine_names_itself(tmp_path):
    write_lesson()
    path = ledger.record(folder=tmp_path)
    machine = device.describe()
    assert path.stem == _recorded._file_name(machine)
    assert json.loads(path.read_text(encoding="utf-8"))["hardware"].startswith(machine.gpu or machine.cpu)


def test_what_is_unknown_stays_unknown_and_numbers_come_back_the_same(tmp_path):
    write_lesson()
    ledger.record("Box", folder=tmp_path)
    own, there = ledger.load("deployments"), ledger.recorded("deployments", folder=tmp_path)
    assert there["latency_p50_ms"].tolist()[:2] == own["latency_p50_ms"].tolist()[:2]
    assert there["latency_p50_ms"].isna().tolist() == [False, False, True]
    assert set(there["hardware"]) == {"Box"}


def test_samples_stay_at_home_and_a_file_never_grows_too_large(tmp_path):
    write_lesson()
    names = [f"{'a long name ' * 20}{number}" for number in range(500)]
    ledger.add(*(Latency(run_key="r1", name=name, device="cpu", p50_ms=1.0, samples_ms=(1.0,) * 9) for name in names))
    path = ledger.record(folder=tmp_path)
    assert path.stat().st_size <= 200_000
    assert "samples_ms" not in path.read_text(encoding="utf-8")
    assert len(ledger.recorded("deployments", folder=tmp_path)) == 3


def test_recorded_rows_never_mix_with_own_rows(tmp_path):
    write(tmp_path, "one.json", page())
    write(tmp_path, "two.json", page(hardware="another", tables={}))
    ledger.add(Ceiling(run_key="own", name="copy", device="cpu", threads=1))
    found = ledger.recorded("ceilings", folder=tmp_path)
    assert found[["run_key", "hardware", "recorded_on", "recorded_commit"]].values.tolist() == [
        ["r", "a named machine", "2026-01-01", "abc"]
    ]
    assert ledger.load("ceilings")["run_key"].tolist() == ["own"]
    nothing = ledger.recorded("completions", folder=tmp_path)
    assert len(nothing) == 0
    assert {"hardware", "run_key"} <= set(nothing.columns)


def test_with_nothing_to_record_it_says_what_to_run(tmp_path):
    with pytest.raises(LabError, match="labkit run"):
        ledger.record(folder=tmp_path)


def test_a_file_that_changed_is_read_again(tmp_path):
    write(tmp_path, "one.json", page())
    assert len(ledger.recorded("ceilings", folder=tmp_path)) == 1
    write(tmp_path, "one.json", page(tables={}))
    os.utime(tmp_path / "one.json", ns=(0, 0))
    assert len(ledger.recorded("ceilings", folder=tmp_path)) == 0


def test_columns_of_another_edition_are_ignored(tmp_path):
    tables = {"ceilings": [page()["tables"]["ceilings"][0] | {"later": "x"}]}
    write(tmp_path, "one.json", page(tables=tables))
    assert len(ledger.recorded("ceilings", folder=tmp_path)) == 1


def test_a_lesson_sees_the_two_machines_that_differ_most_from_the_readers(tmp_path, monkeypatch):
    here = {"machine_key": "here", "cpu": "AMD", "logical_cores": 2, "cpu_isa": "avx2 fma"}
    others = {
        "same": here,
        "more cores": here | {"logical_cores": 16},
        "other instructions": here | {"cpu_isa": "asimd bf16"},
        "gpu": here | {"gpu": "H100"},
    }
    for name, machine in others.items():
        tables = page()["tables"] | {"machines": [machine | {"machine_key": name}]}
        write(tmp_path, f"{name}.json", page(hardware=name, tables=tables))
    monkeypatch.setattr(device, "describe", lambda: Machine(**here))
    found = ledger.recorded("ceilings", most_different=2, folder=tmp_path)
    assert "gpu" in set(found["hardware"])
    assert "same" not in set(found["hardware"])
    assert len(found) == 2
    assert len(ledger.recorded("ceilings", folder=tmp_path)) == 4


def test_what_is_committed_can_be_read_and_is_small():
    for path in (root() / "artifacts" / "recorded").iterdir():
        assert path.stat().st_size <= 200_000
        assert "samples_ms" not in path.read_text(encoding="utf-8")
    assert len(ledger.recorded("machines")) >= 1
