"""Fetching, with a publisher on this machine."""

import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest
import sample_data as sample
import torch

from labkit import data
from labkit.data import catalog
from labkit.errors import DataError


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
def publisher(tmp_path, monkeypatch):
    """(address, sha256, handler class, truth) of a small CIFAR-10."""
    made = sample.cifar_tar(tmp_path / "published.tar.gz")
    body = (tmp_path / "published.tar.gz").read_bytes()
    handler = type("Handler", (Publisher,), {"body": body, "faults": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "sets"))
    monkeypatch.setattr(pooch.core.time, "sleep", lambda _: None)
    yield f"http://127.0.0.1:{server.server_port}/a.tar.gz", sha256(body).hexdigest(), handler, made
    server.shutdown()
    thread.join()
    server.server_close()


def left(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_fetched_set_is_checked_unpacked_and_read(publisher, tmp_path):
    address, digest, handler, made = publisher
    folder = data.fetch("cifar10", source=address, sha256=digest)
    assert folder == tmp_path / "sets/cifar10"
    assert left(folder) == ["cifar-10-batches-py", "cifar-10-python.tar.gz", "manifest.json"]
    assert torch.equal(data.load("cifar10").images, torch.from_numpy(made["train"][0]))
    assert data.fetch("cifar10") == folder and handler.asked == 1  # it is there and whole


def test_the_publisher_is_the_one_of_the_catalogue(publisher, monkeypatch):
    address, digest, _, _ = publisher
    entry = catalog.SETS["cifar10"]
    mirrored = type(entry)(**{**vars(entry), "url": address, "digest": f"sha256:{digest}"})
    monkeypatch.setitem(catalog.SETS, "cifar10", mirrored)
    data.fetch("cifar10")
    assert len(data.load("cifar10", "test")) == 20


@pytest.mark.parametrize("faults", [["cut"], ["wrong"], [503], ["cut", 503]])
def test_a_fault_on_the_way_is_tried_again(publisher, faults):
    address, digest, handler, _ = publisher
    handler.faults = faults
    data.fetch("cifar10", source=address, sha256=digest)
    assert handler.asked == len(faults) + 1
    assert len(data.load("cifar10", "test")) == 20


@pytest.mark.parametrize("fault", ["cut", "wrong", 404])
def test_three_faults_are_an_error_and_leave_nothing(publisher, tmp_path, fault):
    address, digest, handler, _ = publisher
    handler.faults = [fault] * 9
    with pytest.raises(DataError, match="could not be fetched") as caught:
        data.fetch("cifar10", source=address, sha256=digest)
    assert handler.asked == 3
    assert digest in caught.value.expected and str(tmp_path / "sets/cifar10") in caught.value.expected
    assert not (tmp_path / "sets/cifar10").exists()


def test_without_a_network_the_error_says_what_to_bring_and_where(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    monkeypatch.setattr(pooch.core.time, "sleep", lambda _: None)
    with pytest.raises(DataError) as caught:
        data.fetch("cifar100", source="http://127.0.0.1:9/closed")
    for part in ("cifar-100-python.tar.gz", "169,001,437 bytes", "85cd44d0", str(tmp_path), "labkit data get cifar100"):
        assert part in str(caught.value)


def test_a_missing_set_names_file_place_hash_and_the_one_command(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    for name in ("cifar10", "cifar100", "tiny-imagenet"):
        entry = catalog.SETS[name]
        with pytest.raises(DataError) as caught:
            data.load(name)
        assert caught.value.fix == f"labkit data get {name}"
        assert all(part in str(caught.value) for part in (entry.archive, entry.digest, str(tmp_path / name)))


def test_an_archive_at_hand_is_used_after_its_hash(publisher, tmp_path):
    _, digest, handler, _ = publisher
    for source in (tmp_path / "published.tar.gz", f"file://{tmp_path}/published.tar.gz"):
        data.fetch("cifar10", source=source, sha256=digest)
        assert len(data.load("cifar10", "test")) == 20
    assert handler.asked == 0


def test_an_archive_that_is_not_the_published_one_must_be_named_by_its_hash(publisher, tmp_path):
    with pytest.raises(DataError, match="sha256=") as caught:
        data.fetch("cifar10", source=tmp_path / "published.tar.gz")
    assert "6d958be0" in caught.value.expected and publisher[1] in caught.value.found
    assert left(tmp_path / "sets/cifar10") == []


def test_an_archive_put_in_place_by_hand_must_be_the_published_one(publisher, tmp_path):
    sample.cifar_tar(tmp_path / "sets/cifar10/cifar-10-python.tar.gz")
    with pytest.raises(DataError, match="6d958be0"):
        data.load("cifar10")


def test_a_damaged_set_is_refused_by_load_and_mended_by_fetch(publisher, tmp_path):
    _, digest, _, _ = publisher
    folder = data.fetch("cifar10", source=tmp_path / "published.tar.gz", sha256=digest)
    path = folder / "cifar-10-batches-py/data_batch_2"
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    with pytest.raises(DataError, match="data_batch_2 is damaged"):
        data.load("cifar10")
    data.fetch("cifar10", source=tmp_path / "published.tar.gz", sha256=digest)
    assert len(data.load("cifar10")) == 100


def test_a_hostile_archive_with_the_right_hash_is_still_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "sets"))
    sample.write_tar(tmp_path / "a.tar.gz", {"cifar-10-batches-py/../../../escaped": b"x"})
    digest = sha256((tmp_path / "a.tar.gz").read_bytes()).hexdigest()
    with pytest.raises(DataError, match="climbs out"):
        data.fetch("cifar10", source=tmp_path / "a.tar.gz", sha256=digest)
    assert left(tmp_path / "sets/cifar10") == ["cifar-10-python.tar.gz"]


def test_a_source_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    with pytest.raises(DataError, match="There is no archive"):
        data.fetch("tiny-imagenet", source=tmp_path / "no.zip")
    assert not (tmp_path / "tiny-imagenet").exists()


def test_the_committed_set_needs_no_fetching_and_status_tells_all(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    assert data.fetch("fashion-mnist").name == "fashion-mnist"
    rows = {row.name: row for row in data.status()}
    assert tuple(rows) == data.names()
    assert rows["fashion-mnist"].present and rows["fashion-mnist"].disk_bytes > 30_000_000
    assert rows["fashion-mnist"].how == "git restore data/fashion-mnist"
    assert rows["cifar10"].how == "labkit data get cifar10"
