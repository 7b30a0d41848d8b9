"""How the teaching words look: escaped, readable, and clickable where somebody can click."""

import pytest

from labkit import cards
from labkit.rows import Claim, Prediction

ROW = Prediction(run_key="r", prediction_id="p", question="Is 1 < 2?", answer="yes", source="default")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.16463, "x", "2.165 x"),
        (None, "x", "–"),
        (float("nan"), None, "–"),
        (12345.6, None, "12,346"),
        (0.00123456, "s", "0.001235 s"),
    ],
)
def test_a_number_has_four_digits_and_its_unit(value, unit, text):
    assert cards.number(value, unit) == text


def test_text_from_a_notebook_is_escaped():
    row = Claim(run_key="r", claim_id="c", sentence="<script>1</script>", verdict="holds", value=1.0, low=1.0, high=1.0)
    assert "<script>" not in cards.claimed(row)
    assert "&lt;script&gt;" in cards.claimed(row)


def test_a_card_without_a_notebook_is_plain_text():
    assert cards.plain(cards.asked(ROW, ["yes", "no"])).splitlines() == [
        "Predict: Is 1 < 2?",
        "Options: yes · no",
        "yes (taken because nobody answered)",
    ]


def test_a_claim_shows_its_interval_or_its_reason():
    known = Claim(run_key="r", claim_id="c", sentence="s", verdict="holds", value=1.2, low=1.1, high=1.3, unit="x")
    unknown = Claim(run_key="r", claim_id="c", sentence="s", verdict="inconclusive", reason="no GPU")
    assert cards.evidence(known) == "1.2 x (from 1.1 to 1.3 x)"
    assert cards.evidence(unknown) == "no GPU"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_clicking_an_option_records_it_marks_it_and_shows_it():
    clicked = []

    def record(answer):
        clicked.append(answer)
        return Prediction(run_key="r", prediction_id="p", question="?", answer=answer, source="reader")

    _, inputs, note = cards.question_widget(ROW, ["yes", "no"], record).children
    assert "yes" in note.value
    inputs.children[1].click()
    assert clicked == ["no"]
    assert [button.button_style for button in inputs.children] == ["", "info"]
    assert "Your answer: <b>no</b>" in note.value


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_number_is_recorded_by_its_button():
    row = Prediction(run_key="r", prediction_id="p", question="?", unit="x", answer="2", source="default")
    taken = []

    def record(answer):
        taken.append(answer)
        return row

    _, inputs, _ = cards.question_widget(row, None, record).children
    field, unit, button = inputs.children
    field.value = 3.5
    button.click()
    assert (taken, unit.value) == ([3.5, 3.5], "x"), "once by leaving the field, once by the button"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_moved_slider_calls_again_and_puts_the_new_text_and_picture_in_the_place_of_the_old(monkeypatch):
    import matplotlib.pyplot as plt
    from IPython import display
    from IPython.core.interactiveshell import InteractiveShell

    shell, shown, calls = InteractiveShell.instance(), [], []
    monkeypatch.setattr(display, "display", lambda thing, **options: shown.append(thing) or Place())

    class Place:
        def update(self, thing):
            shown.append(thing)

    def show(rate):
        calls.append(rate)
        print(f"rate < {rate}")
        display_figure(plt.figure())

    def display_figure(figure):
        shell.display_pub.publish({"image/png": b"png", "text/plain": str(figure)})
        plt.close(figure)

    cards.show_sliders(show, {"rate": (0.5, 0.0, 1.0)})
    sliders, first = shown
    sliders.children[0].value = 0.75
    assert calls == [0.5, 0.75]
    assert "rate &lt; 0.5" in first.data
    assert '<img src="data:image/png;base64,cG5n">' in shown[2].data
    assert "rate &lt; 0.75" in shown[2].data
    InteractiveShell.clear_instance()
