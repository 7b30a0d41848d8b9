"""A small data set in its true format, whose files count as the published ones."""

import pytest
import sample_data as sample

from labkit.data._published import SETS


@pytest.fixture
def sets_here(tmp_path, monkeypatch):
    """The folder of all sets, empty."""
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "sets"))
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    return tmp_path / "sets"


@pytest.fixture
def publish(sets_here, monkeypatch):
    """`publish(name, folder)` makes a small set there, by default where `load` looks; returns what is in it."""

    def make(name, folder=None):
        entry, made = sample.published(name, folder or sets_here / name)
        monkeypatch.setitem(SETS, name, entry)
        return made

    return make
