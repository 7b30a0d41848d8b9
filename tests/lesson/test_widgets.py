"""What can be clicked: a prediction records its answer."""

import threading

import pytest

from labkit.ledger.rows import Prediction
from labkit.lesson import widgets


@pytest.fixture
def shown(monkeypatch):
    """What is displayed, newest last."""

    class Place:
        def update(self, thing):
            found.append(thing)

    found = []
    monkeypatch.setattr(widgets, "display", lambda thing, **options: found.append(thing) or Place())
    return found


ROW = Prediction(
    run_key="r", prediction_id="p", question="Is 1 < 2?", answer="yes", source="default"
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_clicking_an_option_records_it_marks_it_and_shows_it(shown):
    clicked = []

    def record(answer):
        clicked.append(answer)
        return Prediction(
            run_key="r", prediction_id="p", question="?", answer=answer, source="reader"
        )

    widgets.show_question(ROW, ["yes", "no"], record)
    inputs, note = shown
    assert "No answer yet." in note.data
    inputs.children[1].click()
    assert clicked == ["no"]
    assert [button.style.text_color for button in inputs.children] == [None, "white"]
    assert "Your answer: <b>no</b>" in shown[2].data, (
        "in the place of the note, and no part of the widget"
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_number_is_recorded_by_its_button(shown):
    row = Prediction(
        run_key="r", prediction_id="p", question="?", unit="x", answer="2", source="default"
    )
    taken = []

    def record(answer):
        taken.append(answer)
        return row

    widgets.show_question(row, None, record)
    field, unit, button = shown[0].children
    field.value = "3.5"
    button.click()
    assert (taken, unit.value) == ([3.5, 3.5], "x"), "once by leaving the field, once by the button"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_decimal_comma_is_one_and_what_is_no_number_is_not_recorded(shown):
    row = Prediction(
        run_key="r", prediction_id="p", question="?", unit="x", answer="2", source="default"
    )
    taken = []
    widgets.show_question(row, None, lambda answer: taken.append(answer) or row)
    field, unit, _ = shown[0].children
    field.value = "1,5"
    field.value = "a lot"
    assert taken == [1.5]
    assert unit.value == "x: 'a lot' is not a number"
    field.value = "2"
    assert (taken, unit.value) == ([1.5, 2.0], "x")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_when_the_click_is_handled_beside_the_new_value_of_its_field_the_new_value_is_recorded_last(
    shown,
):
    row = Prediction(
        run_key="r", prediction_id="p", question="?", unit="x", answer="2", source="default"
    )
    taken, clicked, typed = [], threading.Event(), threading.Event()

    def record(answer):
        if answer == 2:  # the click came first, and the field is about to change
            clicked.set()
            typed.wait(0.2)
        taken.append(answer)
        return row

    widgets.show_question(row, None, record)
    field, _, button = shown[0].children

    def type_a_number():
        clicked.wait()
        field.value = "3.5"
        typed.set()

    threads = [threading.Thread(target=button.click), threading.Thread(target=type_a_number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken[-1] == 3.5
