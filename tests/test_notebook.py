"""Notebooks are read in one way: sources as text, a digest that outputs do not change, an error
in words.
"""

import nbformat
import pytest

from labkit.errors import LabError
from labkit.notebook import cells_digest, has_outputs, markdown_sources, read_notebook


@pytest.fixture
def path(tmp_path):
    cells = [
        nbformat.v4.new_markdown_cell("# Tea\n\nHot."),
        nbformat.v4.new_code_cell("a = 1\nb = 2"),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "tea.ipynb")
    return tmp_path / "tea.ipynb"


def test_sources_are_text_and_those_of_markdown_can_be_had_alone(path):
    assert [cell.source for cell in read_notebook(path).cells] == ["# Tea\n\nHot.", "a = 1\nb = 2"]
    assert markdown_sources(path) == ["# Tea\n\nHot."]


def test_outputs_do_not_change_the_digest_and_another_source_or_kind_of_cell_does(path):
    digest = cells_digest(path)
    assert not has_outputs(path)

    notebook = read_notebook(path)
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="3")]
    notebook.cells[1].execution_count = 7
    nbformat.write(notebook, path)
    assert has_outputs(path)
    assert cells_digest(path) == digest

    notebook.cells[1] = nbformat.v4.new_markdown_cell("a = 1\nb = 2")
    nbformat.write(notebook, path)
    assert cells_digest(path) != digest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
        "[" * 10**6,
    ],
)
def test_a_file_that_is_no_notebook_is_refused_in_words(tmp_path, text):
    (tmp_path / "tea.ipynb").write_text(text, encoding="utf-8")
    with pytest.raises(LabError, match=r"tea\.ipynb is not a notebook"):
        read_notebook(tmp_path / "tea.ipynb")
