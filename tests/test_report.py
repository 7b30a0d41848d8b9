"""The report: one page that shows what was measured, and fetches nothing."""

import re

import nbformat
from rows_made_up import write_attempt, write_lesson

from labkit import ledger, report
from labkit.files import artifacts, write_json
from labkit.ledger import _recorded as recorded


def page():
    return report.write_report().read_text(encoding="utf-8")


def text_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL))


def test_an_empty_ledger_gives_a_page_that_says_what_to_do():
    assert "make run" in page()


def test_the_page_shows_status_claims_predictions_exercises_and_deployments():
    write_lesson()
    write_attempt()
    text = text_of(page())
    for part in ("✓ passed", "12.5 s", "3/3", "bf16 is faster", "2 x (from 1.8 to 2.2)", "no energy counter"):
        assert part in text
    for part in ("How much?", "2.16", "image-bytes", "small", "large", "this CPU has no int8 instructions"):
        assert part in text


def test_what_was_not_measured_is_a_dash_with_a_numbered_reason():
    write_lesson()
    html = page()
    row = next(line for line in html.split("<tr") if "<td>int8</td>" in line)
    assert row.count("–") >= 5
    assert "(1)" in row
    assert "(1) this CPU has no int8 instructions" in html


def test_a_failed_notebook_shows_its_reason():
    write_attempt(status="failed", reason="cell 2 ran longer than 5 s")
    assert "✗ failed" in text_of(page())
    assert "cell 2 ran longer than 5 s" in page()


def test_the_page_fetches_nothing():
    write_lesson()
    write_attempt()
    html = page()
    assert not re.search(r"<(script|link|iframe)\b", html)
    sources = re.findall(r'src="([^"]{0,40})', html)
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "@import" not in html


def test_only_the_newest_run_of_a_lesson_counts():
    write_lesson("r1", sentence="the old sentence")
    write_lesson("r2", sentence="the new sentence", started="2026-01-02T10:00:00+00:00")
    assert "the new sentence" in page()
    assert "the old sentence" not in page()


def test_text_of_a_notebook_cannot_inject_markup():
    write_lesson(sentence="<script>alert(1)</script>")
    assert "<script>" not in page()


def test_executed_notebooks_are_linked_as_pages_that_open_in_a_browser():
    cell = nbformat.v4.new_code_cell("1 + 1", outputs=[nbformat.v4.new_output("execute_result", {"text/plain": "2"})])
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title"), cell])
    folder = artifacts() / "executed" / "quick"
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / "00_start_here.ipynb")
    write_attempt(output="executed/quick/00_start_here.ipynb")
    html = page()
    links = re.findall(r'href="([^"]+)"', html)
    assert links == ["executed/quick/00_start_here.html", "executed/quick/00_start_here.ipynb"]
    shown = (artifacts() / links[0]).read_text(encoding="utf-8")
    assert "Title" in shown
    assert not re.search(r"<script|<link|src=\"http", shown)


def test_recorded_rows_stand_beside_own_ones_and_name_their_hardware(monkeypatch, tmp_path):
    write_lesson()
    folder = tmp_path / "recorded"
    recorded.record("RTX 4090, Ryzen 7950X", folder=folder)
    own = ledger.recorded
    monkeypatch.setattr(ledger, "recorded", lambda table: own(table, folder=folder))
    html = page()
    assert "RTX 4090, Ryzen 7950X, recorded" in html
    assert re.findall(r"<figcaption>(.*?)</figcaption>", html) == ["this machine", "RTX 4090, Ryzen 7950X"]
    assert html.count("this machine</td>") >= 3


def test_a_link_never_leaves_the_folder_in_an_absolute_way(tmp_path):
    assert report.relative(tmp_path / "a" / "b.html", tmp_path / "c") == "../a/b.html"


def test_a_page_can_be_written_elsewhere(tmp_path):
    write_json(tmp_path / "other" / "x.json", {})
    assert report.write_report(tmp_path / "other" / "page.html").exists()
