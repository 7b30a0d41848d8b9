"""What can be clicked: a prediction records its answer, a slider calls again."""

import pytest

from labkit.ledger.rows import Prediction
from labkit.lesson import widgets

ROW = Prediction(run_key="r", prediction_id="p", question="Is 1 < 2?", answer="yes", source="default")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_clicking_an_option_records_it_marks_it_and_shows_it():
    clicked = []

    def record(answer):
        clicked.append(answer)
        return Prediction(run_key="r", prediction_id="p", question="?", answer=answer, source="reader")

    _, inputs, note = widgets.question_widget(ROW, ["yes", "no"], record).children
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

    _, inputs, _ = widgets.question_widget(row, None, record).children
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

    widgets.show_sliders(show, {"rate": (0.5, 0.0, 1.0)})
    sliders, first = shown
    sliders.children[0].value = 0.75
    assert calls == [0.5, 0.75]
    assert "rate &lt; 0.5" in first.data
    assert '<img src="data:image/png;base64,cG5n">' in shown[2].data
    assert "rate &lt; 0.75" in shown[2].data
    InteractiveShell.clear_instance()
