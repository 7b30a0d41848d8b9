"""What other people's ledgers bring: once each, checked, marked as reported, whole or not at
all.
"""

import json
import shutil
import sqlite3
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rows_made_up import write_attempt, write_lesson

from labkit import ledger
from labkit.errors import LabError, LedgerError
from labkit.files import artifacts
from labkit.ledger import merge as merging
from labkit.ledger.claims import by_seed
from labkit.ledger.merge import merge, pack
from labkit.ledger.rows import (
    Attempt,
    Batch,
    Claim,
    Deployment,
    Latency,
    Machine,
    Memory,
    Run,
    Scored,
)
from labkit.lesson.claims import as_markdown

OUTPUT = "executed/quick/03_what_limits_speed.ipynb"
FIGURES = {
    "points": 5.0,
    "points_low": 4.0,
    "points_high": 6.0,
    "accuracy": 0.9,
    "latency": 0.5,
    "size_bytes": 100,
}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The artifacts folder of somebody else: `elsewhere(make)` calls make() there and returns
    the folder.
    """

    def made(make=write_lesson, name="ada"):
        with monkeypatch.context() as there:
            there.setenv("LABKIT_ARTIFACTS", str(tmp_path / name))
            make()
            return artifacts()

    return made


def one_lesson():
    """A lesson that was run by the runner, with its executed notebook and a score."""
    write_lesson()
    write_attempt(output=OUTPUT)
    (artifacts() / OUTPUT).parent.mkdir(parents=True)
    (artifacts() / OUTPUT).write_text('{"cells": []}')
    ledger.add(Scored(run_key="submit-1", name="Ada", device="cpu", **FIGURES))


def packed(tmp_path, monkeypatch, folder):
    with monkeypatch.context() as there:
        there.setenv("LABKIT_ARTIFACTS", str(folder))
        return pack(tmp_path / "parcel.zip")


def everything():
    """All that a merge could change: the rows of all tables, and the files."""
    rows = {name: ledger.find(kind) for name, kind in ledger.tables().items()}
    files = sorted(
        path.name for path in artifacts().rglob("*") if "ledger" not in path.name and path.is_file()
    )
    return rows, files


@pytest.mark.parametrize("form", ["folder", "zip", "zip of the folder"])
def test_rows_notebooks_and_scores_come_once_and_are_marked_as_reported(
    form, elsewhere, tmp_path, monkeypatch
):
    parcel = folder = elsewhere(one_lesson)
    if form == "zip":
        parcel = packed(tmp_path, monkeypatch, folder)
    elif form == "zip of the folder":
        parcel = Path(shutil.make_archive(tmp_path / "ada-handed-in", "zip", tmp_path, "ada"))
    came = merge(parcel)
    before = everything()
    assert merge(parcel) == []
    assert everything() == before
    [run], [attempt], [score] = ledger.find(Run), ledger.find(Attempt), ledger.find(Scored)
    assert {row.reported_by for row in (run, attempt, score)} == {
        folder.name if form == "folder" else parcel_name(parcel)
    }
    assert run.run_key == attempt.run_key == "reported/r1"
    assert (artifacts() / attempt.output).read_text() == '{"cells": []}'
    assert attempt.output.startswith("reported/")
    assert len(ledger.find(Claim, run_key="reported/r1")) == 2
    assert {type(row) for row in came} >= {Run, Machine, Claim, Attempt, Scored}


def parcel_name(parcel):
    return str(parcel).rpartition("/")[2]


def test_a_parcel_of_another_name_brings_nothing_twice_and_one_s_own_rows_come_home_to_nothing(
    elsewhere, tmp_path
):
    folder = elsewhere(one_lesson)
    merge(folder)
    shutil.copytree(folder, tmp_path / "again")
    assert merge(tmp_path / "again") == []
    own = pack(tmp_path / "own.zip")
    assert merge(own) == []
    write_lesson("mine")
    assert merge(pack(own)) == []


def test_what_others_reported_to_somebody_is_not_taken_from_there(elsewhere, tmp_path, monkeypatch):
    first = elsewhere(one_lesson)
    second = elsewhere(lambda: (merge(first), write_lesson("r2")), "bob")
    merge(second)
    assert [run.run_key for run in ledger.find(Run)] == ["reported/r2"]


def test_rows_of_ours_are_never_replaced(elsewhere):
    write_lesson("r1", sentence="mine")
    merge(elsewhere(lambda: write_lesson("r1", sentence="theirs")))
    assert [row.sentence for row in ledger.find(Claim, claim_id="c")] == ["mine"]
    assert [run.reported_by for run in ledger.find(Run)] == [None]


def test_batches_do_not_come(elsewhere):
    def make():
        write_lesson()
        ledger.add(Batch(batch_key="b", settings="{}", started_utc=""))

    merge(elsewhere(make))
    assert len(ledger.find(Run)) == 1
    assert ledger.find(Batch) == []


# as the third edition made it
ENGINE_FILES = """CREATE TABLE engine_files ("sha256" TEXT, "file" TEXT, "size_bytes" INTEGER, "onnx_sha256" TEXT,
"settings" TEXT, "library" TEXT, "library_version" TEXT, "gpu" TEXT, "compute_capability" TEXT, "driver" TEXT,
"built_utc" TEXT, UNIQUE (sha256))""".replace("\n", " ")


def add_former_tables(path):
    with closing(sqlite3.connect(path)) as stored, stored:
        stored.execute(ENGINE_FILES)
        stored.execute(
            "INSERT INTO engine_files (sha256, file, size_bytes) VALUES ('0', 'x.engine', 1)"
        )
        stored.execute(
            'CREATE TABLE ceilings ("run_key" TEXT, "bytes_per_s" REAL, UNIQUE (run_key))'
        )
        stored.execute("INSERT INTO ceilings VALUES ('r1', 1e9)")


def test_a_ledger_with_former_tables_opens_and_its_other_rows_count(tmp_path):
    write_lesson("r1")
    add_former_tables(artifacts() / "ledger.sqlite")
    write_lesson("r2")
    assert [run.run_key for run in ledger.find(Run)] == ["r1", "r2"]
    exported = {path.stem for path in ledger.export(tmp_path / "tables")}
    assert "runs" in exported
    assert not {"engine_files", "ceilings"} & exported


def test_a_parcel_with_former_tables_is_taken_without_them(elsewhere):
    folder = elsewhere(
        lambda: (write_lesson("r1"), add_former_tables(artifacts() / "ledger.sqlite"))
    )
    merge(folder)
    assert [run.run_key for run in ledger.find(Run)] == ["reported/r1"]
    with closing(sqlite3.connect(artifacts() / "ledger.sqlite")) as stored:
        tables = {name for (name,) in stored.execute("SELECT name FROM sqlite_master")}
    assert not {"engine_files", "ceilings"} & tables


def test_rows_that_a_killed_process_left_in_the_log_beside_the_ledger_come_too(elsewhere, tmp_path):
    folder = elsewhere()
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as held:
        # the log is not folded in while somebody reads
        held.execute("SELECT count(*) FROM runs").fetchone()
        with closing(sqlite3.connect(folder / "ledger.sqlite")) as writer:
            writer.execute("UPDATE claims SET sentence = 'the newest'")
            writer.commit()
        shutil.copytree(folder, tmp_path / "copy")
    merge(tmp_path / "copy")
    assert {row.sentence for row in ledger.find(Claim)} == {"the newest"}


def test_a_worker_of_ours_brings_rows_that_count_as_ours(elsewhere):
    merge(elsewhere(one_lesson), as_ours={"batch_key": "ours"})
    assert ledger.find(Run)[0].reported_by is None
    assert ledger.find(Attempt)[0].batch_key == "ours"
    assert (artifacts() / OUTPUT).is_file()


def test_claims_say_how_many_of_their_runs_are_reported_and_own_sentences_stand(elsewhere):
    about = {"notebook": "01_deployment_fundamentals", "started": "2026-01-02T00:00:00+00:00"}
    write_lesson("mine", about["notebook"], sentence="mine")
    merge(elsewhere(lambda: write_lesson("r1", **about, sentence="theirs")))
    tally = by_seed("quick")["01_deployment_fundamentals", "c"]
    assert (tally.sentence, tally.outcome()) == ("mine", "holds in 2 of 2")
    assert tally.extent() == "seed 0 on 1 machine, 1 run as reported"


NASTY = "<script>alert(1)</script>\" onload='x' | [a](javascript:b) `c` *d*\x1b[31m\u202e\nnew line"


def nasty(row):
    """The row with nasty words in each of its texts; rows of one run stay together."""
    words = {name: NASTY for name, value in vars(row).items() if isinstance(value, str)}
    return replace(row, **words)


def test_words_of_a_stranger_are_text_on_every_page(elsewhere):
    from nbconvert.filters import markdown2html

    from labkit.report import write_report

    def make():
        one_lesson()
        rows = [row for kind in ledger.tables().values() for row in ledger.find(kind)]
        ledger.add(*map(nasty, rows), replace(nasty(ledger.find(Deployment)[0]), model=r"$\frac{"))

    merge(elsewhere(make, NASTY.replace("/", "").replace("\n", "")))
    stored = "".join(str(row) for kind in ledger.tables().values() for row in ledger.find(kind))
    assert not any(sign in stored for sign in ("\\x1b", "\\u202e", "\\n"))
    page = write_report().read_text(encoding="utf-8")
    assert "alert(1)" in page and "as reported by" in page
    assert not any(sign in page for sign in ("<script>", '" onload', 'href="javascript'))
    (profile,) = {row.profile for row in ledger.find(Run)} - {"quick"}
    (line,) = [
        line for line in as_markdown(profile).splitlines() if "alert" in line and line[0] == "|"
    ]
    shown = markdown2html(f"| a | b | c | d |\n|---|---|---|---|\n{line}\n")
    assert shown.count("<td>") == 4
    assert not any(sign in shown for sign in ("<script", "<a", "<em>", "<code>"))


def damaged(change):
    """A maker of a ledger on which the SQL `change` was run."""

    def make():
        one_lesson()
        with closing(sqlite3.connect(artifacts() / "ledger.sqlite")) as stored:
            stored.executescript(change)

    return make


REFUSED = {
    "PRAGMA user_version=2": "of edition 2",
    'ALTER TABLE memories ADD COLUMN "later" TEXT': "later",
    "CREATE TABLE spy (name TEXT)": "spy",
    "DROP TABLE runs; CREATE VIRTUAL TABLE runs USING fts4(run_key, seed)": "runs",
    'DROP TABLE runs; CREATE TABLE runs ("seed" INTEGER, "run_key" TEXT AS ("seed") '
    'STORED)': "runs",
    "CREATE VIEW runs_too AS SELECT * FROM runs": "view",
    "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END": "trigger",
    "UPDATE memories SET peak_bytes = 'much'": "peak_bytes",
    "UPDATE deployments SET accuracy = 9e999": "not a finite number",
    "UPDATE memories SET name = NULL": "Memory.name",
    "UPDATE memories SET name = zeroblob(2000000)": "too big",
    "UPDATE memories SET name = x'00'": "Memory.name",
    "UPDATE submissions SET points_low = NULL": "only some of its figures",
    "UPDATE claims SET low = NULL": "only some of its figures",
    "ALTER TABLE runs DROP COLUMN profile": "profile",
    "CREATE INDEX i ON runs (profile)": "index",
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), REFUSED.items(), ids=REFUSED)
def test_a_ledger_that_does_not_fit_is_refused_in_a_sentence_and_nothing_is_written(
    change, said, elsewhere
):
    folder, before = elsewhere(damaged(change)), everything()
    with pytest.raises(LabError, match="is no parcel that this ledger can take") as caught:
        merge(folder)
    assert said in caught.value.found and "\n" not in caught.value.found
    assert everything() == before


@pytest.mark.parametrize(
    "text", ["[NaN]", "[1e999]", "[" * 5000, '["x"]', "no list", '{"a": 1}', "3"]
)
def test_samples_that_are_no_finite_numbers_are_refused(text, elsewhere):
    folder = elsewhere(lambda: ledger.add(Latency(run_key="r", name="n", device="cpu")))
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as stored:
        stored.execute("UPDATE latencies SET samples_ms = ?", [text])
        stored.commit()
    with pytest.raises(LabError, match="is no parcel"):
        merge(folder)
    assert ledger.find(Latency) == []


def zip_of(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_what_is_no_parcel_at_all_is_refused(elsewhere, tmp_path, monkeypatch):
    whole = packed(tmp_path, monkeypatch, elsewhere(one_lesson)).read_bytes()
    rows = zipfile.ZipFile(tmp_path / "parcel.zip").read("ledger.sqlite")
    monkeypatch.setattr(merging, "LARGEST", len(rows))
    before = everything()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.zip").write_text("no zip")
    (tmp_path / "empty").mkdir()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 255
    (tmp_path / "flipped.zip").write_bytes(flipped)
    zip_of(tmp_path / "nothing.zip", {"readme.txt": "x"})
    zip_of(tmp_path / "huge.zip", {"ledger.sqlite": rows + bytes(50 * 2**20)})
    zip_of(
        tmp_path / "noise.zip",
        {"ledger.sqlite": b"no database, long enough to be taken for one" * 99},
    )
    names = ["cut.zip", "text.zip", "empty", "flipped.zip", "nothing.zip", "huge.zip"]
    for name in [*names, "noise.zip", "is not there"]:
        with pytest.raises(LabError, match=f"{name} is no parcel") as caught:
            merge(tmp_path / name)
        assert caught.value.found and caught.value.fix
    assert everything() == before


def test_a_damaged_byte_in_what_a_zip_compressed_is_refused_in_words(
    elsewhere, tmp_path, monkeypatch
):
    whole, before = packed(tmp_path, monkeypatch, elsewhere(one_lesson)).read_bytes(), everything()
    with zipfile.ZipFile(tmp_path / "parcel.zip") as archive:
        size = archive.getinfo("ledger.sqlite").compress_size
    for place in range(50, size, size // 20):
        damaged = bytearray(whole)
        damaged[place] ^= 255
        (tmp_path / "damaged.zip").write_bytes(damaged)
        with pytest.raises(LabError, match="is no parcel"):
            merge(tmp_path / "damaged.zip")
    assert everything() == before


def test_files_of_a_parcel_that_no_attempt_names_go_nowhere(elsewhere, tmp_path, monkeypatch):
    packed(tmp_path, monkeypatch, elsewhere(one_lesson))
    rows = zipfile.ZipFile(tmp_path / "parcel.zip").read("ledger.sqlite")
    places = ["../evil.txt", "../../evil.txt", str(tmp_path / "evil.txt")]
    merge(zip_of(tmp_path / "out.zip", {"ledger.sqlite": rows} | dict.fromkeys(places, "x")))
    assert not list(tmp_path.rglob("evil.txt"))


@pytest.mark.parametrize("output", ["../../secret", "/etc/passwd", "link/secret"])
def test_a_notebook_outside_of_the_parcel_is_not_read(output, elsewhere, tmp_path):
    (tmp_path / "secret").write_text("mine")
    folder = elsewhere(lambda: write_attempt(output=output))
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(LabError, match="is no parcel") as caught:
        merge(folder)
    assert "outside itself" in caught.value.found
    assert not ledger.find(Attempt)


def test_too_many_rows_are_refused(elsewhere, monkeypatch):
    folder = elsewhere()
    monkeypatch.setattr(merging, "MOST_ROWS", 2)
    with pytest.raises(LabError, match="is no parcel") as caught:
        merge(folder)
    assert "more than 2 rows" in caught.value.found


def test_where_the_rows_cannot_be_written_no_notebook_is_left(elsewhere, monkeypatch):
    folder = elsewhere(one_lesson)

    def full(*rows):
        raise LedgerError("The disk is full.")

    monkeypatch.setattr(merging, "add", full)
    before = everything()
    with pytest.raises(LedgerError, match="full"):
        merge(folder)
    assert everything() == before


def test_a_parcel_holds_what_the_ledger_says_and_no_other_file(tmp_path):
    one_lesson()
    (artifacts() / "private.txt").write_text("x")
    archive = zipfile.ZipFile(pack(tmp_path / "own.zip"))
    assert sorted(archive.namelist()) == [OUTPUT, "ledger.sqlite"]
    assert json.loads(archive.read(OUTPUT)) == {"cells": []}


def test_other_rows_of_a_run_count_as_rows_of_that_run(elsewhere):
    """A row without a `Run` is stored under a reported key, too."""
    merge(
        elsewhere(lambda: ledger.add(Memory(run_key="alone", name="copy", device="cpu", threads=1)))
    )
    assert [row.run_key for row in ledger.find(Memory)] == ["reported/alone"]
