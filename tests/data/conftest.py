"""A small data set in its true format, whose files count as the published ones."""

from contextlib import ExitStack

import pytest
import sample_data as sample

from labkit.data._published import SETS


@pytest.fixture
def sets_here(tmp_path, monkeypatch):
    """The folder of all sets, empty."""
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    return tmp_path / "data"


@pytest.fixture
def publish(sets_here, monkeypatch):
    """`publish(name, folder)` makes a small set there, by default where `load` looks; returns
    what is in it.
    """

    with ExitStack() as accepted:

        def make(name, folder=None):
            folder = folder or sets_here / name
            entry, made = sample.published(name, folder)
            monkeypatch.setitem(SETS, name, entry)
            if name.startswith("cifar"):
                accepted.enter_context(sample.cifar_accepted(folder / entry.archive, name))
            return made

        yield make
