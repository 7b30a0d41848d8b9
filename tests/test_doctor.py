"""The doctor: one line each, true, with a reason and a fix for what is missing."""

import importlib

import pytest

from labkit import device, doctor


def test_everything_needed_is_here_and_what_is_missing_has_a_fix():
    checks = doctor.examine()
    assert [check.name for check in checks if check.needed and not check.ok] == []
    assert all(check.detail for check in checks)
    assert all(check.fix for check in checks if not check.ok)


def test_a_package_that_is_not_installed_is_said_to_be_missing():
    check = doctor.package("no-such-package", fix="install it")
    assert (check.ok, check.detail, check.fix) == (False, "not installed", "install it")


def test_a_package_that_does_not_load_says_why(monkeypatch):
    def fail(name):
        raise ImportError("libcuda.so.1: cannot open shared object file\nmore")

    monkeypatch.setattr(importlib, "import_module", fail)
    check = doctor.package("torch")
    assert not check.ok
    assert check.detail == "installed, but does not load: ImportError: libcuda.so.1: cannot open shared object file"


@pytest.mark.parametrize(("flags", "found"), [(["avx512_bf16"], [True, False]), ([], [False, False])])
def test_number_formats_follow_the_instruction_sets(monkeypatch, flags, found):
    monkeypatch.setattr(device, "cpu_isa", lambda: flags)
    assert [check.ok for check in doctor.cpu_types()] == found


def test_a_ledger_that_cannot_be_written_is_reported_not_raised(monkeypatch, tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database, but long enough to be taken for one" * 20)
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path))
    check = doctor.ledger_writable()
    assert (check.ok, check.needed) == (False, True)
    assert "move it away" in check.fix
