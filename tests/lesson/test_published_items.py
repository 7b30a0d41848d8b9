"""The register of published experiments: each item's section has the words that a reader would
search for.
"""

import nbformat
import pytest
from typer.testing import CliRunner

from labkit import cli
from labkit.authoring import experiments, experiments_page
from labkit.authoring.sections import file_of, find_section, link_to, missing_words, sections
from labkit.errors import LabError
from labkit.files import root
from labkit.ledger import published

ITEMS = list(experiments.items())


def named(item):
    return item.key


@pytest.mark.parametrize("item", ITEMS, ids=named)
def test_the_linked_section_has_every_word_of_its_item(item):
    assert item.missing_words() == []


def test_each_item_has_a_name_of_its_own_and_words():
    keys = [item.key for item in ITEMS]
    assert len(set(keys)) == len(keys)
    assert [item.key for item in ITEMS if not (item.words and item.item and item.published)] == []


def test_every_published_table_is_reached_from_an_item():
    assert {item.table for item in ITEMS if item.table} == set(published.studies())


def test_the_rows_and_columns_that_an_item_takes_are_in_its_table():
    for item in ITEMS:
        frame = published.table(item.table) if item.table else None
        assert all(column in frame for column in item.columns), item.key
        for column, values in item.rows.items():
            assert set(values) <= set(frame[column]), item.key


def test_the_factors_in_the_register_are_those_of_the_tables():
    epochs = published.table("compile-amp").set_index("variant")["total_s"]
    assert 1 - epochs["compile + AMP"] / epochs["vanilla"] == pytest.approx(0.26, abs=0.005)
    add = published.table("arithmetic").query("operation == 'add'").set_index("format")
    assert add["energy_pj"]["fp32"] / add["energy_pj"]["int8"] == pytest.approx(30)
    assert add["area_um2"]["fp32"] / add["area_um2"]["int8"] == pytest.approx(116, abs=0.5)
    phases = published.table("training-phases").set_index("variant")
    before, after = phases.loc["baseline"], phases.loc["TorchScript"]
    assert 1 - after["forward_s"] / before["forward_s"] == pytest.approx(1 / 3, abs=0.05)
    assert after["backward_s"] / before["backward_s"] - 1 == pytest.approx(1 / 5, abs=0.02)


def test_the_page_is_made_from_the_register():
    page = (root() / "docs" / "published-experiments.md").read_text(encoding="utf-8")
    assert page == experiments_page.as_page(), (
        "labkit ledger published --out docs/published-experiments.md"
    )


def test_the_page_shows_numbers_and_where_they_are_from():
    page = experiments_page.as_page()
    (row,) = [
        line
        for line in page.splitlines()
        if line.startswith("| The accuracy of a training with FastSwish |")
    ]
    assert "FastSwish, 44.14 %" in row
    (row,) = [line for line in page.splitlines() if line.startswith("| Memory of training: ReLU")]
    assert "ReLU, 6 GB; FastSwish, naive, 11.7 GB; FastSwish, custom backward, 9.1 GB" in row
    assert all(
        line.count(" | ") == 4
        for line in page.splitlines()
        if "planned for" in line and line[0] == "|"
    )


def test_each_recorded_result_that_the_register_names_is_on_record():
    results = experiments_page.RecordedResults()
    naming = [item for item in ITEMS if item.claims or item.ratios or item.trainings]
    assert [item.key for item in naming if not results.sentences(item)] == []


def test_the_command_writes_the_page(tmp_path):
    words = ["ledger", "published", "--out", str(tmp_path / "page.md")]
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == experiments_page.as_page()


def test_the_published_switches_are_options_of_train():
    options = CliRunner().invoke(cli.app, ["train", "--help"]).output
    (command,) = [item for item in ITEMS if item.key == "command"]
    assert [word for word in command.words if word not in options] == []


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of one lesson, whose number is not that of ours."""
    cells = [
        ("markdown", "# Title\n\nIntroduction.\n\n## 1. First part\n\nOne *word* of\nthe `field`."),
        ("code", "# not a heading\nlarge = 1"),
        (
            "markdown",
            "### Below it\n\nDeep.\n\n```\n## fenced\n```\n\n## Second: part?\n\nSamples of lamps.",
        ),
    ]
    (tmp_path / "notebooks").mkdir()
    new_cell = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    notebook = nbformat.v4.new_notebook(cells=[new_cell[kind](source) for kind, source in cells])
    nbformat.write(notebook, tmp_path / "notebooks" / "42_some_lesson.ipynb")
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    return tmp_path


def test_a_section_ends_at_the_next_heading_of_its_level_and_a_title_at_any(course):
    parts = {part.name: part.text for part in sections(file_of("some_lesson"))}
    assert list(parts) == ["Title", "First part", "Below it", "Second: part?"]
    assert parts["Title"].split() == ["#", "Title", "Introduction."]
    assert (
        "large = 1" in parts["First part"]
        and "Deep." in parts["First part"]
        and "## fenced" in parts["Below it"]
    )
    assert "Samples" not in parts["First part"]


def test_words_are_found_whole_in_any_case_and_across_lines(course):
    path = file_of("some_lesson")
    assert missing_words(["WORD of the field"], find_section(path, "First part").text) == []
    assert missing_words(["sample", "lamp", "AMP"], find_section(path, "Second: part?").text) == [
        "AMP"
    ]


def test_a_heading_or_a_lesson_that_is_not_there_is_refused_with_those_that_are(course):
    with pytest.raises(LabError, match="First part"):
        find_section(file_of("some_lesson"), "Third part")
    item = experiments.Item(
        key="k", item="i", published="p", words=["w"], lesson="other_lesson", section="First part"
    )
    assert file_of("other_lesson") is None
    with pytest.raises(LabError, match="other_lesson"):
        item.find()


def test_a_link_leads_from_the_page_to_the_heading(course):
    path = file_of("some_lesson")
    link = link_to(path, find_section(path, "Second: part?"), course / "docs")
    assert link == "../notebooks/42_some_lesson.ipynb#Second%3A-part%3F"
