"""Each command that writes, on a disk that refuses: what was there stays byte for byte, and it
is said in words.
"""

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import nbformat
import pytest
import sample_data as sample
import ship_cheats
import torch
from disk_faults import FAULTS, failing_once, full, read_only
from rows_made_up import write_attempt, write_lesson, write_scores
from test_cli import COMMANDS

from labkit import cli, files, ledger
from labkit.classroom import copies
from labkit.data._published import SETS
from labkit.errors import LabError
from labkit.files import my_lessons
from labkit.ledger import slug
from labkit.ledger.rows import EDITION, Scored
from labkit.text import search
from labkit.train import load_checkpoint

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits and modes of POSIX")

EARLIER = b"an earlier result"
NAMES = "checkpoints/fashion-mnist-cnn-small.pt"
SMALL = ("--model", "cnn-small", "--limit", "64", "--batch-size", "32", "--epochs", "1")
TRAIN = ("train", *SMALL, "--profile", "none")


class Terminal(io.StringIO):
    """Where a command speaks to; it has a descriptor, as a terminal has."""

    def __init__(self):
        super().__init__()
        self._handle = os.open(os.devnull, os.O_WRONLY)

    def fileno(self):
        return self._handle


def ended(*words):
    """(exit code, what was said) of the command in this process, as `labkit` itself would end."""
    said, before = Terminal(), (sys.stdout, sys.stderr, sys.argv)
    sys.stdout = sys.stderr = said
    sys.argv = ["labkit", *map(str, words)]
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout, sys.stderr, sys.argv = before
    return code, said.getvalue()


def call(*words):
    code, said = ended(*words)
    assert code == 0, said
    return said


def snapshot(folder):
    """{path: sha256} of all files below a folder; of the ledger, whose file may change, its
    rows.
    """
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith(("ledger.sqlite", ".ledger")):
            found[str(path)] = sha256(path.read_bytes()).hexdigest()
        elif path.name == "ledger.sqlite":
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as stored:
                found[str(path)] = [line for line in stored.iterdump() if line.startswith("INSERT")]
    return found


def earlier(path, content=EARLIER):
    """Put an earlier result there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# ---- one case for each command that writes: it makes what was there before, and returns the words
# to give


@pytest.fixture(scope="session")
def networks(once):
    """A folder with cnn-small as an ONNX file and as a checkpoint."""

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LABKIT_ARTIFACTS", str(folder))
            call(*TRAIN)
            call("export", folder / NAMES, "--out", folder / "m.onnx")

    return once("networks of earlier results", make)


def course_of(place, patch):
    """A course of one lesson in a git repository."""
    folder = place / "course"
    (folder / "notebooks").mkdir(parents=True)
    cell = nbformat.v4.new_code_cell("1  # " + "water " * 100, id="a")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / "notebooks" / "00_tea.ipynb")
    (folder / "README.md").write_text("# A course\n" + "words " * 200)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    patch.setenv("LABKIT_ROOT", str(folder))
    return folder


def export(place, patch, networks):
    return "export", networks / NAMES, "--out", earlier(place / "m.onnx")


def quantize(place, patch, networks):
    return "quantize", networks / "m.onnx", earlier(place / "q.onnx"), "--precision", "fp16"


def view(place, patch, networks):
    return "view", networks / "m.onnx", "--save", earlier(place / "page.html"), "--no-browser"


def train(place, patch, networks):
    earlier(place / "artifacts" / NAMES)
    return TRAIN


def search_(place, patch, networks):
    earlier(place / "artifacts" / "minilm" / "old.safetensors")
    patch.setattr(search, "_exported", lambda path: path)
    patch.setattr(search.engines, "load", lambda *_: None)
    patch.setattr(search, "encoded", lambda tokens, _: torch.ones(len(tokens), 64))
    patch.setattr(search.minilm, "tokens", lambda texts: texts)
    return "search", "a question"


def data_get(place, patch, networks):
    entry, _ = sample.published("cifar10", place / "have")
    patch.setitem(SETS, "cifar10", entry)
    patch.setenv("LABKIT_ROOT", str(place))
    earlier(place / "data" / "cifar10" / entry.archive)
    return "data", "get", "cifar10", "--from", place / "have" / entry.archive


def report(place, patch, networks):
    write_attempt()
    earlier(place / "artifacts" / "report.html")
    return ("report",)


def reset(place, patch, networks):
    course_of(place, patch)
    copies.renew()
    earlier(my_lessons() / "00_tea.ipynb")
    return "reset", "00"


def lab(place, patch, networks):
    course = course_of(place, patch)
    copies.renew()
    cell = nbformat.v4.new_code_cell("2  # " + "tea " * 100, id="a")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), course / "notebooks" / "00_tea.ipynb")
    patch.setattr("labkit.classroom.jupyter.serve", lambda *_: 0)
    return ("lab",)


def new_lesson(place, patch, networks):
    course_of(place, patch)
    return "new-lesson", "98", "making_tea"


def minutes(place, patch, networks):
    course = course_of(place, patch)
    first = nbformat.v4.new_markdown_cell("# Tea\n\nAbout 7 minutes.", id="b")
    nbformat.write(nbformat.v4.new_notebook(cells=[first]), course / "notebooks" / "00_tea.ipynb")
    with (course / "README.md").open("a") as readme:
        readme.write("\n| [`00_tea`](notebooks/00_tea.ipynb) | Why? | 7 |\n")
    (course / "docs").mkdir()
    (course / "docs" / "teaching.md").write_text("| 00 | 7 | 1 |\n" + "words " * 200)
    return ("minutes",)


def release(place, patch, networks):
    course_of(place, patch)
    return "release", place / "students"


def grade(place, patch, networks):
    folder = place / "class"
    (folder / "ada").mkdir(parents=True)
    shutil.copy(files.notebooks()[0], folder / "ada")
    # a process for each answer, of which none touches what is written here
    patch.setattr("labkit.classroom.grading.judge", lambda *_: ("passed", ""))
    for name in ("grades.csv", "grades.html"):
        earlier(folder / name)
    return "grade", folder


def submit(place, patch, networks):
    from labkit.capstone.judge import Score

    found = [Score("Ada", None, ("It answers at random.",), facts={})]
    patch.setattr("labkit.capstone.judge.score", lambda submissions, size: found)
    write_scores()
    return "submit", networks / "m.onnx", "--name", "Ada"


def leaderboard(place, patch, networks):
    from labkit.capstone.order import stored_file

    content = ship_cheats.honest_file().SerializeToString()
    digest = sha256(content).hexdigest()
    earlier(stored_file(digest), content)
    write_scores()
    row = ledger.find(Scored)[0]
    facts = {
        "sha256": digest,
        "medal": "silver",
        "latency_p50_ms": 0.4,
        "latency_p95_ms": 0.5,
        "latency_low": 0.2,
    }
    facts |= {
        "latency_high": 0.4,
        "accuracy_low": 0.8,
        "accuracy_high": 0.9,
        "cost_per_million_usd": 0.01,
    }
    ledger.add(
        Scored(**{**vars(row), **facts, "name": "Bob", "run_key": "submit-Bob", "points": 9.0})
    )
    earlier(place / "card" / "card.html")
    earlier(place / "card" / "model.onnx")
    return "leaderboard", "--card", place / "card"


def ledger_export(place, patch, networks):
    write_lesson()
    earlier(place / "tables" / "claims.csv")
    earlier(place / "tables" / "runs.parquet")
    return "ledger", "export", "--folder", place / "tables"


def ledger_record(place, patch, networks):
    patch.setattr("labkit.device.commit", lambda: "abc")
    write_lesson()
    for path in ledger.record("Box", profile="quick"):
        page = json.loads(path.read_bytes())
        path.write_text(json.dumps(page | {"date": "2020-01-01"}))
    return "ledger", "record", "Box", "--profile", "quick"


def experiment(place, patch, networks):
    ledger_record(place, patch, networks)
    patch.setattr("labkit.experiments.run", lambda *_, **settings: [])
    return "experiment", slug("03_what_limits_speed", EDITION), "--quick", "--record", "Box"


def ledger_published(place, patch, networks):
    return "ledger", "published", "--out", earlier(place / "published.md")


def ledger_claims(place, patch, networks):
    return "ledger", "claims", "--rules", "--out", earlier(place / "claims.md")


def ledger_pack(place, patch, networks):
    write_lesson()
    return "ledger", "pack", earlier(place / "ada.zip")


def ledger_merge(place, patch, networks):
    write_lesson("r1")
    write_attempt("r1", output="executed/quick/00_tea.ipynb")
    earlier(place / "artifacts" / "executed" / "quick" / "00_tea.ipynb")
    call("ledger", "pack", place / "ada.zip")
    patch.setenv("LABKIT_ARTIFACTS", str(place / "mine"))
    write_lesson("r2")
    return "ledger", "merge", place / "ada.zip"


def run(place, patch, networks):
    course_of(place, patch)
    earlier(place / "artifacts" / "executed" / "quick" / "00_tea.ipynb")
    return "run", "00"


WRITE = {
    "export": export, "quantize": quantize, "view": view, "train": train, "search": search_,
    "data get": data_get, "report": report, "reset": reset, "lab": lab, "new-lesson": new_lesson, "release": release,
    "minutes": minutes,
    "grade": grade, "submit": submit, "leaderboard": leaderboard, "ledger export": ledger_export,
    "ledger record": ledger_record, "ledger claims": ledger_claims, "ledger pack": ledger_pack,
    "ledger merge": ledger_merge, "ledger published": ledger_published, "experiment": experiment, "run": run,
}  # fmt: skip
# they add rows to the ledger, in one transaction: see the test of a row
WRITE_ROWS_ONLY = {"doctor", "bench"}
# an engine is named by what it is made of, so that none replaces another:
# tests/engines/test_cache.py
WRITE_UNDER_A_NEW_NAME = {"build"}
# it writes each row anew into a file named by the GPU: tests/gpu/test_measure_gpu.py
WRITE_EACH_ROW_AT_ONCE = {"gpu"}
WRITE_NOTHING = {"list", "progress", "serve", "data list"}


def test_each_command_is_known_to_write_or_not():
    known = {
        *WRITE,
        *WRITE_ROWS_ONLY,
        *WRITE_UNDER_A_NEW_NAME,
        *WRITE_EACH_ROW_AT_ONCE,
        *WRITE_NOTHING,
    }
    assert known == COMMANDS


SLOW = ("run", "export")
NO_RENAME = {"submit"}  # only rows
EVERY = [
    pytest.param(command, fault, marks=[pytest.mark.slow] if command in SLOW else [])
    for command in WRITE
    for fault in FAULTS
    if not (command in NO_RENAME and fault == "failing at the end")
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "place" / "artifacts"))
    monkeypatch.setenv("LABKIT_MY_LESSONS", str(tmp_path / "place" / "my-lessons"))
    (tmp_path / "place").mkdir()
    files.artifacts()
    return tmp_path / "place"


@pytest.mark.parametrize(("command", "fault"), EVERY)
def test_on_a_disk_that_refuses_what_was_there_stays_and_words_say_why(
    command, fault, place, monkeypatch, networks
):
    words = WRITE[command](place, monkeypatch, networks)
    before = snapshot(place)
    with FAULTS[fault](place):
        code, said = ended(*words)
    assert code == (1 if command == "run" and "labkit: " not in said else 2), said
    assert "Traceback" not in said
    assert "next: " in said or command == "run"
    after = snapshot(place)
    assert {path: after.get(path) for path in before} == before
    assert [path for path in after.keys() - before.keys() if ".tmp" in path] == []


@pytest.mark.parametrize("command", [name for name in WRITE if name not in SLOW])
def test_on_a_sound_disk_the_same_words_write(command, place, monkeypatch, networks):
    """Else the test above would show nothing."""
    words = WRITE[command](place, monkeypatch, networks)
    before = snapshot(place)
    code, said = ended(*words)
    assert code == (1 if command == "submit" else 0), said
    assert snapshot(place) != before
    assert [path for path in snapshot(place) if ".tmp" in path] == []


def test_a_row_that_does_not_fit_on_the_disk_leaves_the_ledger_as_it_was(place):
    write_lesson()
    before = snapshot(place)
    with full(place), pytest.raises(LabError, match="cannot be used"):
        write_scores()
    assert snapshot(place) == before


# ---- the result in place of its own source


SAME = {
    "quantize": lambda onnx, checkpoint, to: ("quantize", onnx, to, "--precision", "fp16"),
    "view": lambda onnx, checkpoint, to: ("view", onnx, "--save", to, "--no-browser"),
    "export": lambda onnx, checkpoint, to: ("export", checkpoint, "--out", to),
    "export --weights": lambda onnx, checkpoint, to: (
        "export",
        "cnn-small",
        "--weights",
        checkpoint,
        "--out",
        to,
    ),
}


@pytest.mark.parametrize("link", [None, "symbolic", "hard", "another spelling"])
@pytest.mark.parametrize("command", SAME)
def test_a_result_that_would_replace_its_own_source_is_refused(command, link, place, networks):
    onnx = shutil.copy(networks / "m.onnx", place / "m.onnx")
    checkpoint = shutil.copy(networks / NAMES, place / Path(NAMES).name)
    source = onnx if command in ("quantize", "view") else checkpoint
    to = place / f"link{source.suffix}"
    if link == "symbolic":
        to.symlink_to(source)
    elif link == "hard":
        to.hardlink_to(source)
    else:
        to = source if link is None else place / "sub" / ".." / source.name
        (place / "sub").mkdir()
    before = snapshot(place)
    code, said = ended(*SAME[command](onnx, checkpoint, to))
    assert code == 2, said
    assert "would replace the file that it is made of" in said
    assert snapshot(place) == before


def test_a_ledger_is_not_packed_into_itself(place):
    write_lesson()
    before = snapshot(place)
    code, said = ended("ledger", "pack", place / "artifacts" / "ledger.sqlite")
    assert code == 2 and "would replace" in said
    assert snapshot(place) == before


# ---- several steps


def test_a_training_that_cannot_begin_leaves_the_earlier_checkpoint(place):
    checkpoint = earlier(place / "artifacts" / NAMES)
    assert ended(*TRAIN, "--limit", "16")[0] == 2
    assert checkpoint.read_bytes() == EARLIER


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_training_whose_loss_becomes_no_number_leaves_the_earlier_checkpoint(
    epoch, place, monkeypatch
):
    from labkit.train.watch import Losses

    checkpoint = earlier(place / "artifacts" / NAMES)
    real, steps = Losses.add, []

    def spoilt(self, loss):
        steps.append(1)
        # an epoch has two steps
        return real(self, loss * float("nan") if len(steps) == 2 * epoch else loss)

    monkeypatch.setattr(Losses, "add", spoilt)
    code, said = ended(*TRAIN, "--epochs", "3")
    assert code == 2, said
    assert checkpoint.read_bytes() == EARLIER


def test_a_training_that_is_stopped_between_epochs_can_go_on_and_leaves_the_earlier_checkpoint(
    place, monkeypatch
):
    from labkit.train import loop

    checkpoint = earlier(place / "artifacts" / NAMES)
    real, epochs = loop._Run.epoch, []

    def stop_in_the_second(self, *arguments, **settings):
        epochs.append(1)
        if len(epochs) == 2:
            raise KeyboardInterrupt
        return real(self, *arguments, **settings)

    monkeypatch.setattr(loop._Run, "epoch", stop_in_the_second)
    code, said = ended(*TRAIN, "--epochs", "3")
    assert code == 130 and "with --resume goes on after them" in said
    assert checkpoint.read_bytes() == EARLIER
    unfinished = checkpoint.parent / "unfinished" / checkpoint.name
    kept = unfinished.read_bytes()
    epochs[:] = [1]
    code, said = ended(*TRAIN, "--epochs", "3")  # from the start, stopped in its first epoch
    assert code == 130 and "--resume would go on from that one" in said
    assert unfinished.read_bytes() == kept
    monkeypatch.setattr(loop._Run, "epoch", real)
    call(*TRAIN, "--epochs", "3", "--resume")
    assert len(load_checkpoint(checkpoint)[1]["history"]["epoch_seconds"]) == 3
    assert [path.name for path in unfinished.parent.iterdir()] == []


@pytest.mark.parametrize("words", [(), ("--resume",)])
def test_a_training_that_is_stopped_in_its_first_epoch_does_not_promise_to_go_on(
    words, place, monkeypatch
):
    from labkit.train import loop

    def stop(self, *arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop._Run, "epoch", stop)
    code, said = ended(*TRAIN, *words)
    assert code == 130 and "nothing of this training is kept" in said
    assert "--resume" not in said


def test_a_file_that_its_own_gate_refuses_does_not_replace_the_one_before(place, networks):
    to = earlier(place / "q.onnx")
    code, said = ended(
        *("quantize", networks / "m.onnx", to, "--data", "fashion-mnist", "--count", "64"),
        *("--recipe", "onnxruntime", "--min-sqnr", "99"),
    )
    assert code == 2 and "q.rejected.onnx" in said
    assert to.read_bytes() == EARLIER
    assert sorted(path.name for path in place.glob("*.onnx")) == ["q.onnx", "q.rejected.onnx"]


def test_a_network_that_answers_otherwise_as_an_onnx_file_is_not_left_under_its_name(
    place, monkeypatch
):
    from labkit.export.parity import Parity

    def another(*_):
        raise LabError("The exported model does not answer like the network.")

    monkeypatch.setattr(Parity, "require", another)
    to = earlier(place / "m.onnx")
    assert ended("export", "cnn-small", "--out", to)[0] == 2
    assert [path.name for path in place.glob("*.onnx")] == ["m.onnx"] and to.read_bytes() == EARLIER


@pytest.mark.parametrize("name", ["predict.py", "notes.txt", "model.onnx"])
def test_a_card_does_not_go_into_a_folder_with_other_files(name, place, monkeypatch, networks):
    leaderboard(place, monkeypatch, networks)
    mine = earlier(place / "project" / name)
    code, said = ended("leaderboard", "--card", mine.parent)
    assert code == 2 and name in said
    assert [path.name for path in mine.parent.iterdir()] == [name] and mine.read_bytes() == EARLIER


def test_a_new_card_replaces_an_earlier_one_whole(place, monkeypatch, networks):
    words = leaderboard(place, monkeypatch, networks)
    call(*words)
    call(*words)
    names = {path.name for path in (place / "card").iterdir()}
    assert {"model.onnx", "card.html", "predict.py"} < names
    assert EARLIER not in (place / "card" / "model.onnx").read_bytes()


# ---- the helpers


@pytest.mark.parametrize("fault", [full, read_only, failing_once])
def test_a_folder_stays_as_it_was_until_the_new_one_is_whole(fault, tmp_path):
    folder = tmp_path / "book"
    earlier(folder / "index.html")
    before = snapshot(tmp_path)
    with pytest.raises(OSError), fault(tmp_path), files.atomic_folder(folder) as made:
        (made / "index.html").write_bytes(bytes(1000))
    assert snapshot(tmp_path) == before
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_takes_the_place_of_the_one_before(tmp_path):
    folder = tmp_path / "book"
    earlier(folder / "gone.html")
    (tmp_path / "link").symlink_to(folder)
    with files.atomic_folder(tmp_path / "link") as made:
        (made / "index.html").write_text("new")
    assert [path.name for path in folder.iterdir()] == ["index.html"]
    assert {path.name for path in tmp_path.iterdir()} == {"book", "link"}
    assert (tmp_path / "link").is_symlink()


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "below")
    with pytest.raises(LabError, match="current folder"), files.atomic_folder(tmp_path / "here"):
        pass


def save_with_torch(path):
    torch.save({"a": torch.zeros(1000)}, path)


def save_with_safetensors(path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1000)}, path)


def save_with_onnx(path):
    import onnx

    onnx.save(ship_cheats.honest_file(), path)


@pytest.mark.parametrize(
    "save",
    [save_with_torch, save_with_safetensors, save_with_onnx, lambda p: p.write_bytes(bytes(999))],
)
def test_whatever_library_writes_a_full_disk_is_an_error_of_the_operating_system_that_names_the_file(
    save, tmp_path
):
    target = earlier(tmp_path / "result")
    with pytest.raises(OSError) as refused, full(tmp_path), files.atomic(target) as temporary:
        save(temporary)
    assert refused.value.filename == str(target)
    assert list(tmp_path.iterdir()) == [target] and target.read_bytes() == EARLIER


def test_files_that_belong_together_are_all_new_or_all_old(tmp_path):
    texts = {tmp_path / name: "new" for name in "abc"}
    for path in texts:
        earlier(path)
    with pytest.raises(OSError), failing_once(tmp_path):
        files.write_together(texts)
    assert {path.read_bytes() for path in texts} == {EARLIER}
    files.write_together(texts)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"new"}


@pytest.mark.slow
def test_a_training_in_a_process_of_its_own_ends_in_words_where_its_checkpoint_does_not_fit(place):
    checkpoint = earlier(place / "artifacts" / NAMES)
    words = f"ulimit -f 64; exec {sys.executable} -m labkit.cli {' '.join(TRAIN)}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr and "Traceback" not in done.stderr
    assert checkpoint.read_bytes() == EARLIER
