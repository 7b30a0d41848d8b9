"""Writes that are whole or not there at all."""

import json
import os
import stat
from pathlib import Path

import pytest

from labkit import files


def test_a_write_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path):
    target = tmp_path / "new" / "page.json"
    files.write_text(target, '{"größe": 1}')
    files.write_text(target, '{"größe": 2}')
    assert json.loads(target.read_text(encoding="utf-8")) == {"größe": 2}
    assert "größe" in target.read_text(encoding="utf-8")
    assert [path.name for path in target.parent.iterdir()] == ["page.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "page.txt"
    files.write_text(target, "old")
    with pytest.raises(RuntimeError), files.atomic(target) as temporary:
        temporary.write_text("half of the ne")
        raise RuntimeError("the writer broke")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    target = tmp_path / "page.txt"
    files.write_text(target, "old")
    with files.atomic(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
        assert temporary.parent == target.parent
    assert target.read_text() == "new"


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_what_is_published_may_be_read_by_others(tmp_path):
    target = tmp_path / "page.txt"
    files.write_text(target, "shared")
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_publishing_moves_and_syncs(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), real(handle)))
    source, target = tmp_path / "work", tmp_path / "result"
    source.write_text("whole")
    files.publish(source, target)
    assert target.read_text() == "whole" and not source.exists()
    assert len(synced) == (2 if hasattr(os, "O_DIRECTORY") else 1)


def test_the_folders_can_be_moved_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    monkeypatch.delenv("LABKIT_ARTIFACTS", raising=False)
    assert files.root() == tmp_path
    assert files.artifacts() == tmp_path / "artifacts" and files.artifacts().is_dir()
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "elsewhere"))
    assert files.artifacts() == tmp_path / "elsewhere"


def test_the_root_is_the_folder_of_the_notebooks_whatever_the_current_folder_is(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("LABKIT_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert (files.root() / "labkit" / "files.py").is_file()


def test_the_digest_is_that_of_the_bytes(tmp_path):
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert files.sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (
        files.sha256(Path(os.devnull))
        == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
