"""Every test has its own artifacts and its own copies of the lessons, never the reader's.

It says how far it is.
"""

import os
import shutil
import time
from pathlib import Path

import pytest
from filelock import FileLock

from labkit.ledger import _store

SAY_EVERY_S = 20
WHOLE_LESSON = "runs_to_its_end"
SECONDS = "workbook/seconds"  # in pytest's cache: how long each test took last time


@pytest.fixture(autouse=True)
def own_artifacts(tmp_path, monkeypatch):
    for name in ("LABKIT_RUN_KEY", "LABKIT_HEADLESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "artifacts"))
    monkeypatch.setenv("LABKIT_MY_LESSONS", str(tmp_path / "my-lessons"))
    return tmp_path / "artifacts"


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """In this process nothing waits until it is on the disk: no test cuts the power off. A kill
    loses nothing by it, and the processes that a test starts wait as ever.
    """
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(_store, "SYNCHRONOUS", "OFF")
        yield patch


@pytest.fixture
def synced(unsynced):
    """Files and rows are brought to the disk, as they are outside of tests."""
    unsynced.undo()


@pytest.fixture
def brief(monkeypatch):
    """Measurements and epochs are brief in every Python that this test starts: no number of them
    is read.
    """
    here = Path(__file__).with_name("brief")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    )


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """once(name, make) -> a folder that make(folder) filled, in the first test process of this
    run that asks for it.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name, make):
        place, ready = base / name, base / f"{name}.ready"
        with FileLock(base / f"{name}.lock"):
            if not ready.exists():
                shutil.rmtree(place, ignore_errors=True)  # of an attempt that failed
                place.mkdir()
                make(place)
                ready.touch()
        return place

    return folder


@pytest.hookimpl(trylast=True)  # after `-m` has left out what is not to run
def pytest_collection_modifyitems(config, items):
    """Whole lessons first, as many for each process as for the others: the short tests then fill up
    the end.

    pytest-xdist gives each process an equal run of the list to begin with; who is done takes from
    the end of another's.
    """
    lessons = [item for item in items if item.get_closest_marker("course")]
    short = [item for item in items if not item.get_closest_marker("course")]
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    share, items[:] = -(-len(items) // count), []
    for number in range(count):
        own = lessons[number::count]
        items += own + [short.pop(0) for _ in range(min(share - len(own), len(short)))]
    items += short


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # not in the processes that pytest-xdist starts
        config.pluginmanager.register(HowFar(config))


class HowFar:
    """Says every 20 seconds how far the run is and about how long it may still take."""

    def __init__(self, config):
        self.config = config
        self.cache = getattr(config, "cache", None)  # absent with `-p no:cacheprovider`
        self.expected = self.cache.get(SECONDS, {}) if self.cache else {}
        self.took, self.began, self.said, self.names = {}, time.monotonic(), 0.0, []

    def pytest_collection_finish(self, session):
        self.names = [item.nodeid for item in session.items] or self.names

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        self.names = ids

    def pytest_runtest_logreport(self, report):
        self.took[report.nodeid] = self.took.get(report.nodeid, 0.0) + report.duration
        spent = time.monotonic() - self.began
        if report.when == "teardown" and self.names and spent - self.said >= SAY_EVERY_S:
            self.said = spent
            reporter = self.config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line(
                f"  {self.share():.0%} after {minutes(spent)}, about "
                f"{minutes(self.left(spent))} more"
            )

    def share(self):
        """Share of the work that is done, by the seconds of the last run; a lesson counts as a
        minute at first.
        """
        done, whole = (sum(map(self.seconds, names)) for names in (self.took, self.names))
        return min(0.99, done / whole)

    def seconds(self, name):
        return self.expected.get(name, 60.0 if WHOLE_LESSON in name else 0.4)

    def left(self, spent):
        return spent / max(self.share(), 0.01) - spent

    def pytest_sessionfinish(self):
        if self.cache:
            self.cache.set(SECONDS, {**self.expected, **self.took})


def minutes(seconds):
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
