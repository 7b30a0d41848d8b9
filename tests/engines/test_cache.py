"""Compiled files are programs: which file is used again, when a new one is built, and what is
never loaded.
"""

import hashlib
import multiprocessing
import os
import time
from dataclasses import replace

import onnx
import pytest
import torch
from engines import made_up_onnx as made_up
from typer.testing import CliRunner

from labkit import cli, device, engines
from labkit.engines import cache
from labkit.engines.tensorrt import Settings, engine_file, obtain
from labkit.engines.tensorrt.builder import Source
from labkit.errors import LabError
from labkit.files import artifacts

CONTENT = bytes(range(256)) * 40
MODEL = "a" * 64
SETTINGS = {"batch": (1, 8, 64), "targets": ()}
VERSIONS = {"tensorrt-rtx": "1.7.1"}


def build_anew():
    return CONTENT


def never():
    pytest.fail("it was built again")


def find_or_build(
    build=build_anew, *, model=MODEL, settings=SETTINGS, versions=VERSIONS, suffix=".engine"
):
    return cache.find_or_build(
        "net", model, build, settings=settings, versions=versions, suffix=suffix
    )


def test_a_file_is_built_once_and_then_used_again_byte_for_byte():
    first = find_or_build()
    second = find_or_build(never)
    assert (first.reused, second.reused) == (False, True)
    assert first.content == second.content == second.path.read_bytes() == CONTENT
    assert first.path == second.path
    assert first.path.parent == artifacts() / "engines"


DIFFERENCES = {
    "another model": {"model": "b" * 64},
    "another setting": {"settings": SETTINGS | {"batch": (1, 2, 3)}},
    "one setting more": {"settings": SETTINGS | {"precision": "int8"}},
    "another version": {"versions": {"tensorrt-rtx": "1.7.2"}},
    "another library of the same version": {"versions": {"tensorrt": "1.7.1"}},
    "one version more": {"versions": VERSIONS | {"torch": "2.11"}},
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_whatever_was_asked_for_in_another_way_is_another_file(difference):
    other = find_or_build(lambda: b"another", **DIFFERENCES[difference])
    first = find_or_build()
    assert first.path != other.path
    assert (first.content, other.content) == (CONTENT, b"another")


MACHINES = {
    "another CPU": {"cpu": "Another CPU"},
    "another instruction set": {"cpu_isa": "avx2"},
    "another GPU": {"gpu": "Another GPU"},
    "another driver": {"gpu_driver": "999.99"},
}


@pytest.mark.parametrize("change", MACHINES)
def test_another_machine_does_not_load_what_this_one_built(change, monkeypatch):
    first = find_or_build()
    elsewhere = replace(device.describe(), **MACHINES[change])
    monkeypatch.setattr(device, "describe", lambda: elsewhere)
    assert find_or_build().path != first.path


def test_another_generation_of_gpu_is_another_file(monkeypatch):
    first = find_or_build()
    monkeypatch.setattr(device, "compute_capability", lambda: "12.0")
    assert find_or_build().path != first.path


def test_the_order_of_settings_and_what_else_a_machine_runs_do_not_matter(monkeypatch):
    first = find_or_build()
    newer = replace(device.describe(), os="another kernel", python="3.99", torch_threads=99)
    monkeypatch.setattr(device, "describe", lambda: newer)
    turned = dict(reversed(SETTINGS.items()))
    assert find_or_build(never, settings=turned).path == first.path


def test_the_key_is_the_hash_of_what_the_page_says(monkeypatch):
    monkeypatch.setattr(cache, "processor", lambda: {"cpu": "c"})
    text = (
        '{"model": "m", "processor": {"cpu": "c"}, "settings": {"a": [1, 2]}, "versions": '
        '{"torch": "2"}}'
    )
    key = cache.cache_key("m", settings={"a": (1, 2)}, versions={"torch": "2"})
    assert key == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_other_weights_in_a_file_beside_the_model_are_another_model(tmp_path):
    path = tmp_path / "outside.onnx"
    onnx.save(
        made_up.residual(),
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    digest = Source.read(path).sha256
    assert Source.read(path).sha256 == digest
    weights = bytearray((tmp_path / "weights.bin").read_bytes())
    weights[100] ^= 1
    (tmp_path / "weights.bin").write_bytes(weights)
    assert Source.read(path).sha256 != digest


def test_a_failed_build_leaves_nothing():
    with pytest.raises(ValueError, match="no kernel"):
        find_or_build(lambda: (_ for _ in ()).throw(ValueError("no kernel")))
    assert list(artifacts().rglob("*.engine")) == []
    assert not find_or_build().reused


def test_an_interrupted_write_leaves_nothing_that_is_loaded(monkeypatch):
    def interrupted(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("labkit.files.publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            find_or_build()
    assert [path.name for path in artifacts().rglob("*") if path.is_file()] == []
    assert not find_or_build().reused


def _build_large(number):
    """Build in a process of its own, whose file differs from those of the others."""
    return find_or_build(lambda: time.sleep(0.05) or bytes([number]) * 3_000_000).content


@pytest.mark.kills
def test_processes_that_build_the_same_at_once_leave_one_whole_file():
    with multiprocessing.get_context("fork").Pool(4) as pool:
        contents = pool.map(_build_large, range(8))
    final = find_or_build(never).content
    assert final in contents
    for content in contents:
        assert len(content) == 3_000_000
        assert len(set(content)) == 1
    assert len(list((artifacts() / "engines").iterdir())) == 1


def test_what_is_no_file_under_the_name_is_not_read():
    path = find_or_build().path
    path.unlink()
    path.symlink_to(path)  # a link to itself
    assert not find_or_build().reused
    path.unlink()
    os.mkfifo(path)  # reading it would wait for ever
    assert not find_or_build().reused
    assert find_or_build(never).content == CONTENT


class TestGivenByAUser:
    """A compiled file that somebody hands over is refused, whatever it holds and wherever it
    lies.
    """

    @pytest.fixture(params=["theirs.engine", "theirs.plan", "theirs.TRT", "theirs.pt2"])
    def theirs(self, request, tmp_path):
        path = tmp_path / request.param
        path.write_bytes(CONTENT)
        return path

    @pytest.mark.parametrize("engine", ["tensorrt", "onnxruntime", "aotinductor", "eager"])
    def test_no_engine_loads_it(self, engine, theirs, monkeypatch):
        monkeypatch.setattr(engines, "_loaded", lambda *given: pytest.fail("it came to an engine"))
        for path in (theirs, str(theirs)):
            with pytest.raises(LabError, match="is a program") as refused:
                engines.load(engine, path, torch.zeros(1, 1, 8, 8))
            self.require_all_four_parts(refused.value, theirs)

    @pytest.mark.parametrize("command", ["build", "bench"])
    def test_no_command_takes_it_for_a_model(self, command, theirs, monkeypatch):
        monkeypatch.setattr(engine_file, "library", lambda: pytest.fail("TensorRT was asked"))
        refused = CliRunner().invoke(cli.app, [command, str(theirs)]).exception
        self.require_all_four_parts(refused, theirs)

    def test_not_even_from_the_folder_of_the_cache(self):
        path = find_or_build().path
        path.with_name("theirs.engine").write_bytes(CONTENT)
        for given in (path, path.with_name("theirs.engine")):
            with pytest.raises(LabError, match="is a program"):
                engines.load("tensorrt", given, torch.zeros(1, 1, 8, 8))

    def test_under_the_name_of_a_model_it_is_no_model(self, tmp_path):
        renamed = tmp_path / "theirs.onnx"
        renamed.write_bytes(CONTENT)
        with pytest.raises(LabError, match="no ONNX file"):
            engines.load("tensorrt", renamed, torch.zeros(1, 1, 8, 8))

    def test_a_model_is_no_compiled_file(self, tmp_path):
        for name in ("net.onnx", "net", "engine", "net.engine.onnx"):
            cache.refuse_compiled_file(tmp_path / name)

    def require_all_four_parts(self, error, path):
        assert path.name in error.what
        assert "model" in error.expected
        assert error.found == str(path)
        expected_fix = "aotinductor" if path.suffix == ".pt2" else "labkit build MODEL.onnx"
        assert expected_fix in error.fix


class TestEnginesOfTensorRT:
    """The whole way with a real library: build, then use again."""

    @pytest.fixture(autouse=True)
    def rtx(self):
        pytest.importorskip("tensorrt_rtx_bindings", exc_type=ImportError)

    def test_an_engine_is_built_once_and_reused(self, tmp_path, monkeypatch):
        onnx = made_up.save(made_up.residual(), tmp_path)
        first = obtain(onnx)
        monkeypatch.setattr(engine_file, "build", lambda *given: never())
        second = obtain(onnx)
        assert (first.how, second.how) == ("built", "reused")
        assert first.plan == second.plan == first.path.read_bytes()
        assert second.built is None

    def test_another_model_or_other_settings_never_meet_the_same_file(self, tmp_path):
        onnx = made_up.save(made_up.residual(), tmp_path)
        other = made_up.save(made_up.residual(seed=7), tmp_path, "other.onnx")
        built = [obtain(onnx), obtain(onnx, Settings(batch=(1, 1, 1))), obtain(other)]
        assert len({engine.path for engine in built}) == 3
        assert {engine.how for engine in built} == {"built"}

    def test_the_same_model_under_another_name_has_the_same_key(self, tmp_path):
        first = obtain(made_up.save(made_up.residual(), tmp_path, "one.onnx"))
        second = obtain(made_up.save(made_up.residual(), tmp_path, "two.onnx"))
        assert first.path.stem.removeprefix("one-") == second.path.stem.removeprefix("two-")
