"""Results of named hardware: written whole, read back apart from the reader's own."""

import json

import pytest
from rows_made_up import write_lesson

from labkit import ledger
from labkit.errors import LabError, LedgerError
from labkit.ledger import _recorded as recorded


def test_the_newest_run_of_each_lesson_is_kept_with_hardware_date_versions_and_commit(tmp_path):
    write_lesson("r1", sentence="old")
    write_lesson("r2", sentence="new", started="2026-01-02T10:00:00+00:00")
    path = recorded.record("RTX 4090, Ryzen 7950X", folder=tmp_path)
    assert path.name == "rtx-4090-ryzen-7950x.json"
    page = json.loads(path.read_text(encoding="utf-8"))
    assert {"hardware", "date", "commit", "versions", "tables"} <= set(page)
    assert [row["sentence"] for row in page["tables"]["claims"]] == ["new", "it is cheap"]


def test_what_is_unknown_stays_unknown_and_numbers_come_back_the_same(tmp_path):
    write_lesson()
    recorded.record("Box", folder=tmp_path)
    own, there = ledger.load("deployments"), ledger.recorded("deployments", folder=tmp_path)
    assert there["latency_p50_ms"].tolist()[:2] == own["latency_p50_ms"].tolist()[:2]
    assert there["latency_p50_ms"].isna().tolist() == [False, False, True]
    assert set(there["hardware"]) == {"Box"}


def test_recording_does_not_add_to_the_readers_own_rows(tmp_path):
    write_lesson()
    recorded.record("Box", folder=tmp_path)
    assert len(ledger.load("deployments")) == 3


def test_with_nothing_to_record_it_says_what_to_run(tmp_path):
    with pytest.raises(LabError, match="labkit run"):
        recorded.record("Box", folder=tmp_path)


def test_a_name_without_letters_is_refused(tmp_path):
    write_lesson()
    with pytest.raises(LabError, match="does not name hardware"):
        recorded.record("../..", folder=tmp_path)


def test_a_recorded_file_without_its_origin_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"tables": {}}')
    with pytest.raises(LedgerError, match="commit, date, hardware, versions"):
        ledger.recorded(folder=tmp_path)


def test_what_is_committed_can_be_read():
    for table in ledger.tables():
        ledger.recorded(table)
