"""One run of a notebook: how long a cell may take, and what is left of an earlier run."""

import json
import time

import papermill  # noqa: F401 (imported before its engine, which would meet half of it)
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit.runner.engine import _LessonRun
from labkit.runner.local import _publish
from labkit.runner.tasks import LIMITS

PAGE = json.dumps(new_notebook(cells=[new_code_cell("1", id="one")]))


@pytest.fixture
def run():
    """A run in the profile quick that has just begun."""
    notebook = new_notebook(cells=[new_code_cell("1")])
    notebook.metadata["papermill"] = {"parameters": {"profile": "quick"}}
    return _LessonRun(notebook, None, cell_s=None, note_progress=None)


def test_a_cell_has_its_own_seconds_or_those_that_the_notebook_has_left_if_these_are_fewer(run):
    limits = LIMITS["quick"]
    assert run.seconds_left(None) == limits.cell_s
    run.deadline = time.monotonic() + 50  # of the notebook's 900 s 850 are gone
    assert run.seconds_left(None) == pytest.approx(50, abs=1)
    run.deadline = time.monotonic() - 1
    assert 0 < run.seconds_left(None) <= 1


def test_a_notebook_that_passes_leaves_no_page_of_an_earlier_failure(tmp_path):
    target = tmp_path / "00_a.ipynb"
    failed = _publish(PAGE, target, "ZeroDivisionError")
    assert failed.name == "00_a.failed.ipynb" and "ZeroDivisionError" in failed.read_text()
    assert _publish(PAGE, target, None) == target
    assert [path.name for path in tmp_path.iterdir()] == ["00_a.ipynb"]
