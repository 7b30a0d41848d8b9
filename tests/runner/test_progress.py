"""What a batch shows."""

from dataclasses import replace

import pytest

from labkit import ledger
from labkit.ledger.rows import Attempt
from labkit.runner import progress
from labkit.runner.sources import Notebook
from labkit.runner.tasks import NotebookTask

PASSED = Attempt(
    run_key="b/00_a/1", batch_key="b", notebook="00_a", profile="quick", started_utc="2026-01-01", status="passed",
    seconds=12.34, cells_done=5, cells_total=5,
)  # fmt: skip
FAILED = Attempt(
    run_key="b/01_b/1", batch_key="b", notebook="01_b", profile="quick", started_utc="2026-01-01", status="failed",
    seconds=3.0, cells_done=1, cells_total=None, reason="the worker ended",
)  # fmt: skip


@pytest.fixture
def clock(monkeypatch):
    """A clock to set: `clock[0] = seconds`."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_tell_start_place_and_end_and_how_long_the_batch_may_still_take(clock, capsys):
    shown = progress.Progress(True, {"00_a": 20, "01_b": 100}, 1)
    with shown.moving:
        shown.begin("00_a")
        for second in (1, 11, 12):
            clock[0] = second
            shown.tick({"00_a": f"cell {second}/20"})
        shown.end(PASSED)
        shown.begin("01_b")
        clock[0] = 62
        shown.tick({"01_b": "cell 1/9"})
        shown.end(FAILED)
        shown.finish([PASSED, FAILED])
    assert capsys.readouterr().out.splitlines() == [
        "00_a  started, about 2 min left",
        "00_a  cell 11/20  11 s, about 2 min left",
        "00_a  passed  5/5  12.3 s",
        "01_b  started, about 62 s left",
        "01_b  cell 1/9  50 s, about 31 s left",
        "01_b  failed  1/?  3.0 s  the worker ended",
        "",
        "1 of 2 notebooks passed.",
        "  01_b: the worker ended",
    ]


def test_a_notebook_is_expected_to_take_as_long_as_when_it_last_passed():
    ledger.add(PASSED, FAILED)
    passed, failed = (
        NotebookTask(Notebook(name, None, False, {}), {}) for name in ("00_a", "01_b")
    )
    assert progress.expected_seconds([passed, failed], "quick") == {"00_a": 12.34, "01_b": 45}
    assert progress.expected_seconds([passed], "lab") == {"00_a": 300}
    assert progress.expected_seconds([replace(passed, seed=3)], "quick") == {"00_a, seed 3": 12.34}


def test_where_notebooks_take_longer_than_foreseen_the_rest_is_expected_to_do_so_too(clock):
    shown = progress.Progress(False, {"00_a": 6.17, "01_b": 40}, 1)
    shown.begin("00_a")
    shown.end(PASSED)
    assert shown.left() == "about 80 s left"


def test_two_at_a_time_take_half_as_long_but_no_less_than_the_longest(clock):
    assert progress.Progress(False, {"00_a": 40, "01_b": 40}, 2).left() == "about 40 s left"
    assert progress.Progress(False, {"00_a": 10, "01_b": 70}, 2).left() == "about 70 s left"


def test_a_terminal_gets_a_line_that_moves(clock, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    shown = progress.Progress(True, {"00_a": 20}, 1)
    with shown.moving:
        shown.begin("00_a")
        shown.tick({"00_a": "cell 3/5"})
        assert str(shown.moving.status) == "00_a  cell 3/5  0 s, about 20 s left"
        shown.end(PASSED)
    assert "00_a  passed  5/5  12.3 s" in capsys.readouterr().out


def test_nothing_is_shown_when_asked_for_nothing(capsys):
    silent = progress.Progress(False, {"00_a": 20}, 1)
    with silent.moving:
        silent.begin("00_a")
        silent.tick({"00_a": "cell 1/5"})
        silent.end(PASSED)
        silent.finish([PASSED])
    assert capsys.readouterr().out == ""
