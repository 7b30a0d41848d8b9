"""Fetching, with a publisher on this machine."""

import gc
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest
import sample_data as sample
import torch

from labkit import data
from labkit.data._published import SETS
from labkit.errors import DataError
from labkit.files import root

# pooch leaves the connections of failed tries to the garbage collector
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def connections_closed():
    gc.freeze()  # what is there already need not be looked through
    yield
    gc.collect()
    gc.unfreeze()


class Publisher(BaseHTTPRequestHandler):
    """Serves `body`; the first answers are those of `faults`."""

    body, faults, asked = b"", [], 0

    def do_GET(self):
        kind = type(self)
        fault = kind.faults[kind.asked] if kind.asked < len(kind.faults) else None
        kind.asked += 1
        self.send_response(fault if isinstance(fault, int) else 200)
        self.send_header("Content-Length", str(len(kind.body)))
        self.end_headers()
        half = kind.body[: len(kind.body) // 2]
        self.wfile.write({"cut": half, "wrong": bytes(len(kind.body))}.get(fault, kind.body))

    def log_message(self, *_):
        pass


@pytest.fixture
def publisher(publish, sets_here, tmp_path, monkeypatch):
    """(address, handler class, truth) of a small CIFAR-10 that counts as the published one."""
    made = publish("cifar10", tmp_path / "published")
    body = (tmp_path / "published/cifar-10-python.tar.gz").read_bytes()
    handler = type("Handler", (Publisher,), {"body": body, "faults": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setattr(pooch.core.time, "sleep", lambda _: None)
    address = f"http://127.0.0.1:{server.server_port}/a.tar.gz"
    monkeypatch.setitem(SETS, "cifar10", replace(SETS["cifar10"], url=address))
    yield address, handler, made
    server.shutdown()
    thread.join()
    server.server_close()


def left(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def listed(name):
    return next(row for row in data.status() if row.name == name)


def test_a_fetched_set_is_checked_and_read_from_its_archive(publisher, sets_here):
    _, handler, made = publisher
    folder = data.fetch("cifar10")
    assert folder == sets_here / "cifar10" and left(folder) == ["cifar-10-python.tar.gz"]
    assert torch.equal(data.load("cifar10").images, torch.from_numpy(made["train"][0]))
    assert data.fetch("cifar10") == folder and handler.asked == 1  # it is there and whole


@pytest.mark.usefixtures("connections_closed")
@pytest.mark.parametrize("faults", [["cut"], ["wrong"], [503], ["cut", 503]])
def test_a_fault_on_the_way_is_tried_again(publisher, faults):
    _, handler, _ = publisher
    handler.faults = faults
    data.fetch("cifar10")
    assert handler.asked == len(faults) + 1
    assert len(data.load("cifar10", "test")) == 20


@pytest.mark.usefixtures("connections_closed")
@pytest.mark.parametrize("fault", ["cut", "wrong", 404])
def test_three_faults_are_an_error_and_leave_nothing(publisher, sets_here, fault):
    _, handler, _ = publisher
    handler.faults = [fault] * 9
    with pytest.raises(DataError, match="could not be fetched") as caught:
        data.fetch("cifar10")
    assert handler.asked == 3
    assert SETS["cifar10"].files["cifar-10-python.tar.gz"] in caught.value.expected
    assert str(sets_here / "cifar10") in caught.value.expected
    assert left(sets_here / "cifar10") == []


@pytest.mark.usefixtures("connections_closed")
def test_without_a_network_the_error_says_what_to_bring_and_where(sets_here, monkeypatch):
    monkeypatch.setattr(pooch.core.time, "sleep", lambda _: None)
    monkeypatch.setitem(
        SETS, "cifar100", replace(SETS["cifar100"], url="http://127.0.0.1:9/closed")
    )
    with pytest.raises(DataError) as caught:
        data.fetch("cifar100")
    for part in (
        "cifar-100-python.tar.gz",
        "169,001,437 bytes",
        "85cd44d0",
        str(sets_here),
        "labkit data get cifar100",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny-imagenet"])
def test_a_missing_set_names_file_place_hash_and_the_one_command(sets_here, name):
    entry = SETS[name]
    with pytest.raises(DataError) as caught:
        data.load(name)
    assert caught.value.fix == f"labkit data get {name}"
    for part in (entry.archive, entry.files[entry.archive], str(sets_here / name)):
        assert part in str(caught.value)


def test_an_archive_at_hand_is_used_after_its_hash(publisher, tmp_path):
    data.fetch("cifar10", source=tmp_path / "published/cifar-10-python.tar.gz")
    assert len(data.load("cifar10", "test")) == 20
    assert publisher[1].asked == 0


def test_a_refused_archive_is_not_kept_and_not_listed(sets_here, tmp_path):
    sample.cifar(tmp_path)
    with pytest.raises(DataError, match="6d958be0"):
        data.fetch("cifar10", source=tmp_path / "cifar-10-python.tar.gz")
    assert left(sets_here / "cifar10") == []
    assert not listed("cifar10").present and listed("cifar10").disk_bytes is None


def test_an_archive_put_in_place_by_hand_must_be_the_published_one_to_be_read_or_listed(sets_here):
    sample.cifar(sets_here / "cifar10")
    with pytest.raises(DataError, match="6d958be0"):
        data.load("cifar10")
    assert not listed("cifar10").present and listed("cifar10").disk_bytes > 0


def test_a_damaged_archive_is_refused_by_load_and_mended_by_fetch(publisher, sets_here):
    path = data.fetch("cifar10") / "cifar-10-python.tar.gz"
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    with pytest.raises(DataError, match="cifar-10-python"):
        data.load("cifar10")
    assert not listed("cifar10").present
    data.fetch("cifar10")
    assert len(data.load("cifar10")) == 100 and listed("cifar10").present


def test_a_source_that_is_not_there_is_refused(sets_here, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        data.fetch("tiny-imagenet", source=tmp_path / "no.zip")
    assert not (sets_here / "tiny-imagenet").exists()


def test_the_committed_set_needs_no_fetching_and_status_tells_all(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/fashion-mnist").symlink_to(root() / "data/fashion-mnist")  # and no other set
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    assert data.fetch("fashion-mnist").name == "fashion-mnist"
    assert tuple(row.name for row in data.status()) == data.names()
    fashion = listed("fashion-mnist")
    assert fashion.present and fashion.disk_bytes > 30_000_000
    assert fashion.how == "git restore data/fashion-mnist"
    assert listed("cifar10").how == "labkit data get cifar10"
