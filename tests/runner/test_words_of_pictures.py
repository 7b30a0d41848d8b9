"""What a picture of an executed notebook says in words."""

import pytest
from nbformat import write
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from labkit.lesson.pages import readable_pages
from labkit.runner.pictures import MAX_CHARACTERS, name_pictures


def with_picture(words):
    output = new_output(
        "display_data", {"image/png": "iVBORw0K"}, metadata={"image/png": {"alt": words}}
    )
    return new_code_cell("show()", outputs=[output])


def said(*cells):
    name_pictures(cells)
    return [
        output.metadata["image/png"]["alt"] for cell in cells for output in cell.get("outputs", [])
    ]


def test_the_words_of_a_picture_begin_with_what_the_text_below_says_of_it():
    text = (
        "*Bars: intervals.* **Blue** is [faster](01.ipynb), by `x`. Why? "
        "Because.\n\nAnother paragraph."
    )
    assert said(with_picture("ms: 3."), new_markdown_cell(text)) == [
        "Bars: intervals. Blue is faster, by x. Because. ms: 3."
    ]


def test_a_picture_keeps_its_words_where_a_heading_or_another_picture_comes_first():
    cells = with_picture("ms: 3."), with_picture("s: 4."), new_markdown_cell("## Next\n\nText.")
    assert said(*cells) == ["ms: 3.", "s: 4."]


def test_a_text_that_leads_to_an_exercise_or_to_code_below_is_not_about_the_picture():
    assert said(with_picture("ms: 3."), new_markdown_cell("**Exercise `x`**. Write it.")) == [
        "ms: 3."
    ]
    assert said(with_picture("ms: 3."), new_markdown_cell("Blue wins. Let us try green:")) == [
        "Blue wins. ms: 3."
    ]


def test_the_message_passes_a_cell_without_a_picture_and_is_put_there_once():
    cells = with_picture("ms: 3."), new_code_cell("claim()"), new_markdown_cell("Blue wins.")
    name_pictures(cells)
    assert said(*cells) == ["Blue wins. ms: 3."]


@pytest.mark.parametrize("metadata", [{}, {"image/png": {"width": 300}}])
def test_a_picture_of_other_code_without_a_text_gets_the_message_alone(metadata):
    output = new_output("display_data", {"image/png": "iVBORw0K"}, metadata=metadata)
    assert said(new_code_cell("show()", outputs=[output]), new_markdown_cell("Blue wins.")) == [
        "Blue wins."
    ]


def test_a_long_message_ends_where_it_would_tire():
    [words] = said(with_picture("ms: 3."), new_markdown_cell("word " * 200))
    assert len(words) <= MAX_CHARACTERS + len(" ms: 3.")
    assert words.endswith("… ms: 3.")


def test_a_readable_page_leaves_out_the_source_that_a_notebook_hides_and_keeps_what_it_shows(
    tmp_path,
):
    shown = [new_output("stream", text="the questions")]
    hidden = new_code_cell(
        "x = 'the answers'", outputs=shown, metadata={"jupyter": {"source_hidden": True}}
    )
    path = tmp_path / "lesson.ipynb"
    write(new_notebook(cells=[hidden, new_code_cell("y = 'open'")]), path)
    page = readable_pages([path])[path].read_text(encoding="utf-8")
    assert "the answers" not in page
    assert "the questions" in page
    assert "open" in page
