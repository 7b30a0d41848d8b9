"""The doctor: one line each, true, with a reason and a fix for what is missing."""

import importlib
import sys

import pytest

from labkit import device, doctor, engines
from labkit.device import packages
from labkit.device.packages import Check, check, install


def test_everything_needed_is_here_and_what_is_missing_has_a_fix():
    checks = doctor.examine()
    assert [each.name for each in checks if each.needed and not each.ok] == []
    assert all(each.detail for each in checks)
    assert all(each.fix for each in checks if not each.ok)


@pytest.mark.parametrize(("kinds", "here"), [(("cuda", "cpu"), True), (("cpu",), False)])
def test_an_engine_that_needs_a_gpu_runs_only_where_there_is_one(monkeypatch, kinds, here):
    monkeypatch.setattr(device, "kinds", lambda: kinds)
    found = {each.name: each for each in doctor._engines()}
    assert found["engine tensorrt"].ok is here
    assert ("on cuda only" in found["engine tensorrt"].detail) is not here
    assert found["engine eager"].ok


def test_a_package_that_is_not_installed_is_said_to_be_missing_with_what_that_means():
    found = check("no-such-package", without="no numbers", fix="install it")
    assert (found.ok, found.detail, found.fix) == (False, "not installed: no numbers", "install it")


def test_a_package_that_does_not_load_says_why(monkeypatch):
    def fail(name):
        raise ImportError("libcuda.so.1: cannot open shared object file\nmore")

    monkeypatch.setattr(importlib, "import_module", fail)
    found = check("torch")
    assert not found.ok
    assert (
        found.detail
        == "installed, but does not load: ImportError: libcuda.so.1: cannot open shared object file"
    )
    assert "--force-reinstall" in found.fix


@pytest.mark.parametrize(
    ("python", "pip", "command"),
    [
        (
            "/opt/conda/envs/workbook/bin/python",
            True,
            "/opt/conda/envs/workbook/bin/python -m pip install netron",
        ),
        ("/my work/.venv/bin/python", True, "'/my work/.venv/bin/python' -m pip install netron"),
        ("/venv/bin/python", False, "uv pip install --python /venv/bin/python netron"),
    ],
)
def test_what_to_install_is_a_command_for_the_python_that_runs(monkeypatch, python, pip, command):
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr(packages, "_version", lambda name: "26.0" if pip else None)
    assert install("netron") == command


@pytest.mark.parametrize(
    ("flags", "found"), [(["avx512_bf16"], [True, False]), ([], [False, False])]
)
def test_number_formats_follow_the_instruction_sets(monkeypatch, flags, found):
    monkeypatch.setattr(device, "cpu_isa", lambda: flags)
    assert [each.ok for each in doctor._cpu_types()] == found


def test_a_ledger_that_cannot_be_written_is_reported_not_raised(monkeypatch, tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(
        b"not a database, but long enough to be taken for one" * 20
    )
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path))
    found = doctor._tried("ledger", doctor._ledger)
    assert (found.ok, found.needed) == (False, True)
    assert "move it away" in found.fix


@pytest.mark.parametrize("rtx", [True, False])
def test_without_tensorrt_and_pycuda_it_says_what_stands_in_what_that_does_not_show_and_the_command(
    monkeypatch, rtx
):
    here = {"tensorrt-rtx-cu13-bindings": "1.7"} if rtx else {}
    monkeypatch.setattr(packages, "_version", here.get)
    monkeypatch.setattr(packages, "_import_problem", lambda module: None)
    found = {each.name: each for each in engines.get("tensorrt").check()}
    assert (found["tensorrt"].ok, found["pycuda"].ok) == (False, False)
    assert ("TensorRT-RTX builds engines" in found["tensorrt"].detail) is rtx
    assert "no time of an engine and no tactics" in found["tensorrt"].detail
    assert "labkit gpu" in found["tensorrt"].fix
    assert "rehearsal" in found["pycuda"].detail and "no time" in found["pycuda"].detail


def test_the_last_line_names_all_that_is_not_here(monkeypatch):
    checks = [
        Check("torch", True, "2", needed=True),
        Check("tensorrt", False, "no"),
        Check("pycuda", False, "no"),
    ]
    assert doctor.verdict(checks).startswith(
        "What every lesson needs is here. Not here: tensorrt, pycuda."
    )
    assert doctor.verdict(checks[:1]) == "What every lesson needs is here."
    assert (
        doctor.verdict([*checks, Check("onnx", False, "no", needed=True)])
        == "Missing and needed: onnx"
    )


def test_without_a_gpu_it_names_the_command_for_a_machine_that_has_one(monkeypatch):
    monkeypatch.setattr(device, "describe", lambda: device.machine.Machine(machine_key="k"))
    found = doctor._gpu()
    assert not found.ok
    assert "labkit gpu" in found.fix and "python -m labkit.gpu" in found.fix
