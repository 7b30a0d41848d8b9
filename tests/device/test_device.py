"""The device: picked, described, and the same everywhere it is asked."""

import importlib.util
import logging
import os
import warnings
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from labkit import device
from labkit.device import machine, packages
from labkit.errors import Unavailable


def test_the_best_device_is_picked_and_the_cpu_is_always_there():
    assert device.pick().type == device.kinds()[0]
    assert device.kinds()[-1] == "cpu"
    assert device.pick("cpu") == torch.device("cpu")


def test_a_device_that_is_not_here_is_refused_with_those_that_are(monkeypatch):
    monkeypatch.setattr(device, "kinds", lambda: ("cpu",))
    with pytest.raises(Unavailable, match="labkit doctor"):
        device.pick("cuda")


def test_describe_agrees_with_torch_and_the_system():
    device.describe.cache_clear()  # of a test before, in which torch had other threads
    here = device.describe()
    assert here.torch == torch.__version__
    assert here.torch_threads == torch.get_num_threads()
    assert here.logical_cores >= 1
    assert here.ram_bytes > 2**28
    assert device.describe() is here


def test_a_cpu_has_no_allocator_counter_and_says_none_not_zero():
    assert device.peak_memory_bytes("cpu") is None
    device.reset_peak_memory("cpu")
    device.synchronize("cpu")


@pytest.mark.parametrize(
    ("flags", "able"), [(["avx2", "amx_bf16"], True), (["avx2", "avx512_vnni"], False), ([], False)]
)
def test_a_cpu_multiplies_bf16_when_it_has_one_of_the_instruction_sets(monkeypatch, flags, able):
    monkeypatch.setattr(device, "cpu_isa", lambda: flags)
    assert device.multiplies_bf16("cpu") is able
    assert device.multiplies_bf16(torch.device("cpu")) is able
    assert device.multiplies_bf16("cpu:0") is able


@pytest.mark.parametrize("able", [True, False])
def test_a_gpu_multiplies_bf16_when_torch_says_so_without_emulation(monkeypatch, able):
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: able and not including_emulation,
    )
    assert device.multiplies_bf16("cuda:0") is able


def test_the_commit_is_read_from_git_or_unknown():
    assert device.commit() is None or len(device.commit().removesuffix("-dirty")) == 12


@pytest.mark.parametrize("path", ["/nowhere", ""])
def test_without_git_or_a_checkout_there_is_no_commit(path, monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", path or os.environ["PATH"])
    assert machine.commit.__wrapped__() is None


def test_a_toolkit_without_a_gpu_is_no_news_on_a_cpu_and_other_warnings_are(monkeypatch):
    monkeypatch.setattr(packages.shutil, "which", lambda name: name)
    device.require_compiler("cpu")
    logger = logging.getLogger("torch.utils.cpp_extension")
    words = "No CUDA runtime is found"
    assert f'logger.warning("{words}' in Path(
        importlib.util.find_spec(logger.name).origin
    ).read_text(encoding="utf-8")
    for text, told in (
        (f"{words}, using CUDA_HOME='%s'", False),
        ("Something else about %s", True),
    ):
        assert (
            bool(
                logger.filter(
                    logger.makeRecord(logger.name, logging.WARNING, "", 0, text, ("x",), None)
                )
            )
            == told
        )


def test_torch_does_not_advise_tf32_where_fp32_means_fp32_and_other_warnings_stay(
    monkeypatch, recwarn
):
    monkeypatch.setattr(packages.shutil, "which", lambda name: name)
    device.require_compiler("cpu")
    words = "TensorFloat32 tensor cores"
    assert words in Path(importlib.util.find_spec("torch._inductor.compile_fx").origin).read_text(
        encoding="utf-8"
    )
    for text in (
        f"{words} for float32 matrix multiplication available but not enabled.",
        "Something else",
    ):
        warnings.warn(text, stacklevel=1)
    assert [str(each.message) for each in recwarn] == ["Something else"]


@pytest.mark.parametrize(
    ("named", "counted"), [(480 * 2**20, 128 * 2**20), (32 * 2**20, 32 * 2**20), (None, 2**25)]
)
def test_a_cpu_s_last_cache_is_counted_up_to_what_one_program_may_hold_of_it(
    named, counted, monkeypatch
):
    monkeypatch.setattr(device, "last_level_cache_bytes", lambda: named)
    assert device.cache_bytes(torch.device("cpu")) == counted


@pytest.mark.parametrize("name", ["TMPDIR", "TORCHINDUCTOR_CACHE_DIR"])
def test_a_folder_with_a_space_where_torch_would_compile_is_refused_by_name(
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(packages.shutil, "which", lambda name: name)
    device.require_compiler("cpu")
    (tmp_path / "a b").mkdir()
    monkeypatch.setenv(name, str(tmp_path / "a b"))
    monkeypatch.setattr(packages.tempfile, "tempdir", None)  # what an earlier call found
    with pytest.raises(
        Unavailable, match=rf"has a space[\s\S]*found: {tmp_path}/a b[\s\S]*next: set {name} to"
    ):
        device.require_compiler("cpu")


def test_a_folder_that_may_hold_no_programs_is_refused_as_the_cache_of_kernels(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(packages.shutil, "which", lambda name: name)
    flags = {tmp_path / "noexec": os.ST_NOEXEC | os.ST_NOSUID, tmp_path / "open": os.ST_NOSUID}
    monkeypatch.setattr(
        packages.os, "statvfs", lambda folder: SimpleNamespace(f_flag=flags.get(folder, 0))
    )
    for folder in flags:
        folder.mkdir()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "noexec" / "made" / "later"))
    with pytest.raises(
        Unavailable, match=r"noexec[\s\S]*next: set TORCHINDUCTOR_CACHE_DIR to another folder"
    ):
        device.require_compiler("cpu")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "open"))
    device.require_compiler("cpu")


@pytest.mark.parametrize(
    ("gpus", "backend"),
    [(0, "gloo"), (1, "gloo"), (2, "cpu:gloo,cuda:nccl"), (8, "cpu:gloo,cuda:nccl")],
)
def test_nccl_is_used_where_each_of_two_processes_can_have_a_gpu(gpus, backend, monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert device.collectives(1, 2) == backend
    assert chosen == ([1] if gpus > 1 else [])


@pytest.mark.parametrize("count", [1, 2])
def test_in_a_thread_of_a_pool_the_first_product_runs_on_as_many_threads_as_the_caller_uses(count):
    matrix = torch.randn(300, 300)
    with device.using_threads(count), device.pool(1) as pool:
        pool.submit(int).result()  # the thread of the pool is there
        before = {thread.id for thread in psutil.Process().threads()}
        pool.submit(lambda: matrix @ matrix).result()
        started = {thread.id for thread in psutil.Process().threads()} - before
        assert pool.submit(torch.get_num_threads).result() == count
    assert len(started) <= count - 1  # beside the thread of the pool
