"""The ledger: typed rows that are there once they are acknowledged."""

import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

from benchmarks.writers import write_rows_with_kills
from labkit import ledger
from labkit.errors import LabError, LedgerError
from labkit.ledger import _store, rows
from labkit.ledger.rows import Completion, Deployment


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A row with a field of each type."""

    TABLE: ClassVar = "samples"
    KEY: ClassVar = ("name",)
    name: str
    count: int | None = None
    seconds: float | None = None
    noisy: bool | None = None
    values: tuple | None = None


@dataclass(frozen=True, kw_only=True)
class LaterSample:
    """The same table after a field was added."""

    TABLE: ClassVar = "samples"
    KEY: ClassVar = ("name",)
    name: str
    count: int | None = None
    joules: float | None = None


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "Sample", Sample, raising=False)
    return tmp_path / "ledger.sqlite"


def test_rows_come_back_as_they_were_written(path):
    full = Sample(name="full", count=3, seconds=0.5, noisy=True, values=(1, 2.5))
    empty = Sample(name="empty")
    ledger.add(full, empty, path=path)
    assert ledger.find(Sample, path=path) == [full, empty]
    assert ledger.find(Sample, path=path, name="full", noisy=True) == [full]
    assert ledger.find(Sample, path=path, count=None) == [empty]


def test_what_is_unknown_is_missing_and_never_zero(path):
    ledger.add(
        Sample(name="full", count=0, seconds=0.0, noisy=False, values=()),
        Sample(name="empty"),
        path=path,
    )
    frame = ledger.load("samples", path=path)
    assert frame.iloc[0][["count", "seconds", "noisy", "values"]].tolist() == [0, 0.0, False, ()]
    assert frame.iloc[1][["count", "seconds", "noisy", "values"]].isna().all()
    assert [str(frame[name].dtype) for name in ("count", "seconds", "noisy")] == [
        "Int64",
        "float64",
        "boolean",
    ]


@pytest.mark.parametrize(
    "field, value",
    [("name", None), ("name", 3), ("count", 1.0), ("count", True), ("count", "1"), ("count", np.int64(1)),
     ("count", 2**63), ("seconds", float("nan")), ("seconds", "1"), ("seconds", True), ("seconds", np.float32(1)),
     ("noisy", 1), ("values", [1]), ("values", (object(),)), ("values", (float("nan"),)), ("values", ((1, 2), 3)),
     ("values", ("a", 1)), ("values", (2**70,)), ("name", "\ud800")],
)  # fmt: skip
def test_a_value_of_another_type_and_nan_are_refused(path, field, value):
    with pytest.raises(LedgerError, match=rf"Sample\.{field}"):
        ledger.add(Sample(**{"name": "x", field: value}), path=path)
    assert ledger.find(Sample, path=path) == []


def test_a_refused_row_keeps_its_whole_transaction_out(path):
    with pytest.raises(LedgerError):
        ledger.add(Sample(name="good"), Sample(name="bad", count="many"), path=path)
    assert ledger.find(Sample, path=path) == []


def test_the_same_key_replaces_the_row(path):
    ledger.add(Sample(name="x", count=1, seconds=1.0), path=path)
    ledger.add(Sample(name="x", count=2), path=path)
    assert ledger.find(Sample, path=path) == [Sample(name="x", count=2)]


def test_a_key_that_is_partly_unknown_is_still_one_key(path):
    class Pair(Sample):
        TABLE, KEY = "pairs", ("name", "count")

    for seconds in (1.0, 2.0):
        ledger.add(
            Pair(name="x", seconds=seconds), Pair(name="x", count=1, seconds=seconds), path=path
        )
    assert [(row.count, row.seconds) for row in ledger.find(Pair, path=path)] == [
        (None, 2.0),
        (1, 2.0),
    ]


def test_a_column_added_later_is_missing_in_older_rows_and_both_programs_go_on(path):
    ledger.add(Sample(name="old", count=1), path=path)
    ledger.add(LaterSample(name="new", joules=2.0), path=path)
    ledger.add(Sample(name="older program", seconds=3.0), path=path)
    found = {row.name: row.joules for row in ledger.find(LaterSample, path=path)}
    assert found == {"old": None, "new": 2.0, "older program": None}
    assert [row.count for row in ledger.find(Sample, path=path)] == [1, None, None]


def age(path, edition):
    """Make a ledger that an older edition of the course would have left."""
    with closing(sqlite3.connect(path)) as stored:
        stored.execute(f"PRAGMA user_version={edition}")


@pytest.mark.parametrize(
    ("edition", "said"), [(0, "an edition before the third"), (2, "edition 2")]
)
def test_a_ledger_of_another_edition_is_refused_in_a_sentence_and_stays_as_it_is(
    edition, said, path
):
    ledger.add(Sample(name="old"), path=path)
    age(path, edition)
    before = path.read_bytes()
    for call in (
        lambda: ledger.find(Sample, path=path),
        lambda: ledger.add(Sample(name="new"), path=path),
    ):
        with pytest.raises(LedgerError, match="another edition") as caught:
            call()
        assert caught.value.found == said
        assert str(path) in caught.value.fix
    assert path.read_bytes() == before
    path.rename(path.with_name("old.sqlite"))
    ledger.add(Sample(name="new"), path=path)
    assert ledger.find(Sample, path=path) == [Sample(name="new")]


def test_a_run_says_of_which_edition_it_is():
    ledger.add(
        rows.Run(
            run_key="r", notebook="04_x", profile="lab", seed=0, started_utc="", machine_key="m"
        )
    )
    assert ledger.load("runs")["edition"].tolist() == [rows.EDITION]


BEGIN = "import sys\nfrom labkit import ledger\nfrom labkit.ledger.rows import Memory\n"
BEGIN += "ledger.add(Memory(run_key=sys.argv[2], name='x', device='cpu'), path=sys.argv[1])"


def test_processes_that_find_no_ledger_at_once_begin_one_and_lose_nothing(path):
    writers = [subprocess.Popen([sys.executable, "-c", BEGIN, str(path), str(n)]) for n in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    assert {row.run_key for row in ledger.find(rows.Memory, path=path)} == set("0123")


def test_who_begins_a_ledger_waits_for_another_who_begins_it(path):
    beginner = threading.Thread(target=ledger.add, args=(Sample(name="x"),), kwargs={"path": path})
    with FileLock(path.with_name(".ledger.lock")):
        beginner.start()
        beginner.join(timeout=0.5)
        assert beginner.is_alive() and not path.exists()
    beginner.join()
    assert ledger.find(Sample, path=path) == [Sample(name="x")]


def test_an_unknown_field_is_refused_and_does_not_find_every_row(path):
    ledger.add(Sample(name="x"), path=path)
    with pytest.raises(LabError, match="no field of Sample 'nonsense'"):
        ledger.find(Sample, path=path, nonsense=1)


def test_an_unknown_table_is_refused(path):
    with pytest.raises(LabError, match="no table of the ledger 'nonsense'"):
        ledger.load("nonsense", path=path)
    with pytest.raises(LabError, match="no table of the ledger 'nonsense'"):
        ledger.recorded("nonsense")


def test_every_row_class_says_its_table_its_key_and_its_types():
    assert {"runs", "completions", "claims", "deployments", "batches", "attempts"} <= set(
        ledger.tables()
    )
    for kind in ledger.tables().values():
        names = [field.name for field in fields(kind)]
        assert set(kind.KEY) <= set(names) and kind.__doc__
        assert ledger.load(kind.TABLE).empty


@pytest.mark.parametrize(
    "damage", [b"this is no database, and long enough to be taken for one" * 99, None]
)
def test_a_damaged_file_is_a_clear_error(path, damage):
    ledger.add(
        *(Sample(name=f"row {number}", values=tuple(range(50))) for number in range(200)), path=path
    )
    content = path.read_bytes()
    path.write_bytes(damage or content[: len(content) // 2])
    with pytest.raises(LedgerError) as caught:
        ledger.find(Sample, path=path)
    assert str(path) in str(caught.value) and caught.value.fix


@pytest.mark.parametrize("text", ["no JSON", "[" * 100_000])
def test_a_damaged_row_is_an_error_that_names_its_table(text, path):
    ledger.add(Sample(name="x", values=(1.0, 2.0)), path=path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('UPDATE samples SET "values" = ?', [text])
    with pytest.raises(LedgerError, match="table samples of the ledger is damaged"):
        ledger.find(Sample, path=path)


def test_a_ledger_that_cannot_be_opened_is_a_clear_error(tmp_path):
    with pytest.raises(LedgerError, match="cannot be used"):
        ledger.add(Sample(name="x"), path=tmp_path)


# A file of at most 200 kB stands for a full disk: the kernel refuses the write, whoever runs the
# test.
FULL_DISK = """
import resource, sys
from labkit import ledger
from labkit.errors import LedgerError
from labkit.ledger.rows import Claim
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for number in range(1000):
    try:
        ledger.add(Claim(run_key="r", claim_id=str(number), sentence="x" * 5000, verdict="holds"), path=sys.argv[1])
    except LedgerError as error:
        print(number)
        sys.exit(3)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limits on Windows")
def test_a_full_disk_is_a_clear_error_and_loses_no_acknowledged_row(tmp_path):
    path = tmp_path / "ledger.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True
    )
    assert done.returncode == 3, done.stderr
    kept = [row.claim_id for row in ledger.find(rows.Claim, path=path)]
    assert kept == [str(number) for number in range(int(done.stdout))]


def test_many_writers_some_of_them_killed_lose_no_acknowledged_row(tmp_path):
    acknowledged, missing, damaged = write_rows_with_kills(tmp_path, writers=4, rows=60, kills=4)
    assert (acknowledged, missing, damaged) == (240, 0, 0)


# Says a row is safe before it is.
HASTY = """
import os, pathlib, sys, time
from labkit import ledger
from labkit.ledger.rows import Memory

folder, number, rows = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
handle = os.open(folder / f"ack-{number}.txt", os.O_RDWR | os.O_CREAT | os.O_APPEND)
for row in range(os.read(handle, 1 << 20).count(b"\\n"), rows):
    os.write(handle, f"w{number} r{row}\\n".encode())
    time.sleep(0.1)
    ledger.add(Memory(run_key=f"w{number}", name=f"r{row}", device="cpu", threads=1), path=folder / "ledger.sqlite")
"""


@pytest.mark.slow
def test_the_drill_of_the_writers_finds_one_that_acknowledges_too_early(tmp_path):
    _, missing, _ = write_rows_with_kills(
        tmp_path, writers=2, rows=15, kills=4, rng=random.Random(2), source=HASTY
    )
    assert missing > 0


def test_exports_equal_the_ledger(path, tmp_path):
    ledger.add(
        Deployment(run_key="r", dataset="d", model="m", engine="eager", precision="fp32", device="cpu", threads=1,
                   batch=8, accuracy=0.5, latency_p50_ms=None, size_bytes=100, noisy=False),
        Sample(name="x", count=1, values=(1, 2)),
        Sample(name="empty"),
        path=path,
    )  # fmt: skip
    written = ledger.export(tmp_path / "export", path=path)
    assert {file.stem for file in written} == set(ledger.tables())
    for name in ledger.tables():
        frame = ledger.load(name, path=path)
        parquet = pd.read_parquet(tmp_path / "export" / f"{name}.parquet")
        csv = pd.read_csv(tmp_path / "export" / f"{name}.csv")
        assert list(parquet.columns) == list(csv.columns) == list(frame.columns)
        assert len(parquet) == len(csv) == len(frame)
    stored = pd.read_parquet(tmp_path / "export" / "deployments.parquet")
    pd.testing.assert_frame_equal(stored, ledger.load("deployments", path=path), check_dtype=False)


def test_rows_are_synced_to_disk_before_add_returns(path, synced):
    with _store.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    ledger.add(
        Completion(run_key="r", notebook="n", cell_count=1, seconds=1.0, finished_utc="now"),
        path=path,
    )
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT count(*) FROM completions").fetchone() == (1,)
    reader.close()
