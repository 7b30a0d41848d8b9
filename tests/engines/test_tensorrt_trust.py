"""Engine files are programs: which are loaded, which are refused, and that TensorRT is not asked before."""

import pytest
from engines import made_up_onnx as made_up
from hostile_engines import FLIPS, MISMATCHES, TAMPERED, flipped, pipe

from labkit import ledger
from labkit.engines import _trusted
from labkit.engines._trusted import Untrusted, vouched
from labkit.engines.tensorrt import Settings, obtain, trust
from labkit.ledger.rows import EngineFile

GPU = {"gpu": "A GPU", "compute_capability": "8.9", "driver": "595.1"}
TODAY = {"library": "tensorrt-rtx", "library_version": "1.7.1", **GPU}
ABOUT = {"onnx_sha256": "a" * 64, "settings": Settings().as_json(), **TODAY}
PLAN = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path):
    place = tmp_path / "engines" / "net.engine"
    _trusted.keep(place, PLAN, **ABOUT)
    return place


@pytest.fixture
def no_library(monkeypatch):
    """Any question to TensorRT fails the test."""
    monkeypatch.setattr(trust, "library", lambda: pytest.fail("the library was asked"))


def test_a_file_that_was_built_here_comes_back_byte_for_byte(path, no_library):
    data, row = vouched(path, **ABOUT)
    assert data == PLAN
    assert (row.size_bytes, row.gpu, row.file) == (len(PLAN), "A GPU", "net.engine")
    assert ledger.find(EngineFile) == [row]


def test_fifty_flipped_files_are_refused_before_the_library_is_asked(path, no_library):
    copies = list(flipped(PLAN))
    assert len(set(copies)) >= FLIPS - 2 and PLAN not in copies
    for copy in copies:
        path.write_bytes(copy)
        with pytest.raises(Untrusted, match="sha256: the file has"):
            vouched(path, **ABOUT)


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_file_for_something_else_is_refused_with_what_differs(name, path, no_library):
    ((field, value),) = MISMATCHES[name].items()
    with pytest.raises(Untrusted) as caught:
        vouched(path, **ABOUT | {field: value})
    assert f"{field}: built for" in str(caught.value)
    assert str(value) in str(caught.value)


def test_all_that_differs_is_said_at_once(path):
    with pytest.raises(Untrusted) as caught:
        vouched(path, **ABOUT | {"gpu": "another", "driver": "1.0"})
    assert "gpu:" in str(caught.value) and "driver:" in str(caught.value)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__)
def test_a_file_that_someone_else_put_there_is_refused_in_no_time(tamper, path, no_library):
    tamper(path)
    with pytest.raises(Untrusted, match=r"."):
        vouched(path, **ABOUT)


def test_the_engine_of_another_network_that_was_built_here_too_is_refused(path):
    _trusted.keep(path.with_name("other.engine"), PLAN + b"x", **ABOUT)
    path.write_bytes(PLAN + b"x")
    with pytest.raises(Untrusted, match="was built here"):
        vouched(path, **ABOUT)


def test_a_file_of_a_forgotten_ledger_is_refused(path, monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "new"))
    with pytest.raises(Untrusted, match="was built here"):
        vouched(path, **ABOUT)


def test_a_missing_file_is_no_surprise(tmp_path):
    with pytest.raises(Untrusted, match="no such file"):
        vouched(tmp_path / "gone.engine", **ABOUT)


class TestObtain:
    """The whole way with a real library: build, reuse, build again."""

    @pytest.fixture(autouse=True)
    def rtx(self):
        pytest.importorskip("tensorrt_rtx_bindings", exc_type=ImportError)

    def test_an_engine_is_built_once_and_reused(self, tmp_path, monkeypatch):
        onnx = made_up.save(made_up.residual(), tmp_path)
        first = obtain(onnx)
        monkeypatch.setattr(trust, "build", lambda *args, **settings: pytest.fail("it was built again"))
        second = obtain(onnx)
        assert (first.how, second.how) == ("built", "reused")
        assert first.plan == second.plan == first.path.read_bytes()

    def test_a_damaged_engine_is_built_again_and_the_reason_is_said(self, tmp_path):
        onnx = made_up.save(made_up.residual(), tmp_path)
        first = obtain(onnx)
        first.path.write_bytes(first.plan[:-1] + b"x")
        again = obtain(onnx)
        assert again.how.startswith("built again: sha256: the file has")
        assert obtain(onnx).how == "reused"

    def test_another_model_or_other_settings_never_meet_the_same_file(self, tmp_path):
        onnx = made_up.save(made_up.residual(), tmp_path)
        other = made_up.save(made_up.residual(seed=7), tmp_path, "other.onnx")
        found = [obtain(onnx), obtain(onnx, Settings(batch=(1, 1, 1))), obtain(other)]
        assert len({engine.path for engine in found}) == 3
        assert {engine.how for engine in found} == {"built"}

    def test_a_pipe_in_its_place_is_replaced(self, tmp_path):
        onnx = made_up.save(made_up.residual(), tmp_path)
        pipe(obtain(onnx).path)
        assert obtain(onnx).how == "built again: there is no such file"
        assert obtain(onnx).how == "reused"

    def test_a_kill_while_writing_leaves_nothing_that_is_loaded(self, tmp_path, monkeypatch):
        onnx = made_up.save(made_up.residual(), tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(_trusted, "atomic", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                obtain(onnx)
        assert obtain(onnx).how == "built"
