import os
import random
import signal
import subprocess
import sys
import time

import pytest
import sample_data as sample

from labkit.data import archives
from labkit.errors import ArchiveError

FILES = {f"top/{part}/{i}": os.urandom(100 + i) for part in "abc" for i in range(5)}


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("write", [sample.write_tar, sample.write_zip])
def test_what_was_packed_comes_out_byte_for_byte(tmp_path, write):
    write(tmp_path / "a", FILES)
    assert tree(archives.extract(tmp_path / "a", tmp_path / "new")) == FILES
    assert dict(archives.contents(tmp_path / "a", FILES)) == FILES
    assert sorted(archives.file_names(tmp_path / "a")) == sorted(FILES)


@pytest.mark.parametrize("write", [sample.write_tar, sample.write_zip])
def test_the_top_folder_becomes_the_target_and_replaces_an_older_one(tmp_path, write):
    write(tmp_path / "a", FILES)
    sample.write_tree(tmp_path / "new", {"old": b"x"})
    archives.extract(tmp_path / "a", tmp_path / "new", top="top")
    assert tree(tmp_path / "new") == {name.removeprefix("top/"): data for name, data in FILES.items()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "new"]


def test_an_error_keeps_the_older_tree(tmp_path):
    sample.write_tar(tmp_path / "a", {**FILES, "elsewhere": b"x"})
    sample.write_tree(tmp_path / "new", {"old": b"x"})
    with pytest.raises(ArchiveError, match="everything in the folder top/"):
        archives.extract(tmp_path / "a", tmp_path / "new", top="top")
    assert tree(tmp_path / "new") == {"old": b"x"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "new"]


def test_a_folder_reads_like_an_archive_of_it(tmp_path):
    sample.write_tree(tmp_path, FILES)
    assert archives.file_names(tmp_path) == sorted(FILES)
    assert dict(archives.contents(tmp_path, FILES)) == FILES


@pytest.mark.parametrize("name", ["a", "a/b", "a/b.c/d-e_f", "ä/名", "a b"])
def test_plain_names_are_safe(name):
    assert archives.unsafe(name) is None


@pytest.mark.parametrize(
    "name", ["", "/a", "../a", "a/..", "a/./b", "a//b", "C:\\a", "c:a", "a\\b", "a\0b", "a.", "a ", "x?"]
)
def test_other_names_are_not(name):
    assert archives.unsafe(name)


def test_more_members_than_any_of_our_sets_has_is_a_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    sample.write_zip(tmp_path / "a", FILES)
    with pytest.raises(ArchiveError, match="bomb"):
        archives.extract(tmp_path / "a", tmp_path / "new")


def test_what_a_killed_run_left_is_swept_after_an_hour(tmp_path):
    sample.write_zip(tmp_path / "a", FILES)
    for age, name in ((0, ".new.young.unpacking"), (2 * archives.STALE_S, ".new.old.unpacking")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    archives.extract(tmp_path / "a", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.young.unpacking", "a", "new"]


SLOWLY = """
import shutil, sys, time
from labkit.data import archives
copy = shutil.copyfileobj
shutil.copyfileobj = lambda *args: (time.sleep(0.005), copy(*args))
print("go", flush=True)
%s
print("done", flush=True)
"""
OURS = "archives.extract(sys.argv[1], sys.argv[2])"
NAIVE = "import pathlib; pathlib.Path(sys.argv[2]).mkdir(); archives.fill(sys.argv[1], pathlib.Path(sys.argv[2]), None)"


def killed_halfway(archive, target, how, wait_s):
    """Start unpacking in another process and kill it after `wait_s`."""
    child = subprocess.Popen([sys.executable, "-c", SLOWLY % how, archive, target], stdout=subprocess.PIPE)
    with child:
        assert child.stdout.readline() == b"go\n"
        time.sleep(wait_s)
        child.send_signal(signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_kill_leaves_no_half_tree(tmp_path):
    sample.write_tar(tmp_path / "a", FILES)
    killed_halfway(tmp_path / "a", tmp_path / "naive", NAIVE, 0.05)
    assert 0 < len(tree(tmp_path / "naive")) < len(FILES)  # the kill does come halfway
    for attempt in range(6):
        target = tmp_path / f"new{attempt}"
        killed_halfway(tmp_path / "a", target, OURS, random.uniform(0.01, 0.07))
        assert not target.exists() or tree(target) == FILES
        assert tree(archives.extract(tmp_path / "a", target)) == FILES
