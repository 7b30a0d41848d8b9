"""What a batch shows."""

from labkit.ledger.rows import Attempt
from labkit.runner import progress

PASSED = Attempt(
    run_key="b/00_a/1", batch_key="b", notebook="00_a", profile="quick", started_utc="2026-01-01", status="passed",
    seconds=12.34, cells_done=5, cells_total=5,
)  # fmt: skip
REFUSED = Attempt(
    run_key="b/01_long_name/1", batch_key="b", notebook="01_long_name", profile="quick", started_utc="2026-01-01",
    status="failed", reason="the notebook has no code cells",
)  # fmt: skip


def test_plain_lines_tell_start_cells_and_end_but_not_every_cell(monkeypatch):
    said, clock = [], iter([0.0, 1.0, 11.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    lines = progress.Lines(said.append)
    lines.begin("00_a")
    for number in (1, 2, 3):
        lines.cell("00_a", number, 5)
    lines.cell(None, 0, 0)
    lines.end(PASSED)
    lines.keep(PASSED)
    assert said.pop() == "00_a  passed before, not run again"
    assert said == ["00_a  started", "00_a  cell 2/5  11 s", "00_a  passed  5/5  12.3 s"]


def test_the_summary_lines_up_and_gives_the_reason():
    assert progress.summary([PASSED, REFUSED]) == [
        "notebook      status  cells  time    reason",
        "00_a          passed  5/5    12.3 s",
        "01_long_name  failed  -      -       the notebook has no code cells",
    ]


def test_the_live_picture_shows_a_line_for_each_running_notebook(capsys):
    with progress.Live() as live:
        live.begin("00_a")
        live.cell("00_a", 3, 5)
        live.begin("01_long_name")
        assert str(live.picture()).split("  ")[:2] == ["00_a", "cell 3/5"]
        assert "01_long_name  cell 0/?" in str(live.picture())
        live.end(PASSED)
        assert "00_a" not in str(live.picture())
        live.finish([PASSED])
    assert "00_a  passed  5/5  12.3 s" in capsys.readouterr().out


def test_nothing_is_shown_when_asked_for_nothing(capsys):
    with progress.choose(False) as silent:
        silent.begin("00_a")
        silent.cell("00_a", 1, 5)
        silent.keep(PASSED)
        silent.end(PASSED)
        silent.finish([PASSED])
    assert capsys.readouterr().out == ""
