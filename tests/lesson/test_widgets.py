"""What can be clicked: a prediction records its answer, a slider calls again."""

import threading

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

    inputs, note = widgets._question_widget(ROW, ["yes", "no"], record).children
    assert note.value == "No answer yet."
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

    inputs, _ = widgets._question_widget(row, None, record).children
    field, unit, button = inputs.children
    field.value = "3.5"
    button.click()
    assert (taken, unit.value) == ([3.5, 3.5], "x"), "once by leaving the field, once by the button"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_decimal_comma_is_one_and_what_is_no_number_is_not_recorded():
    row = Prediction(run_key="r", prediction_id="p", question="?", unit="x", answer="2", source="default")
    taken = []
    inputs, _ = widgets._question_widget(row, None, lambda answer: taken.append(answer) or row).children
    field, unit, _ = inputs.children
    field.value = "1,5"
    field.value = "a lot"
    assert taken == [1.5]
    assert unit.value == "x: 'a lot' is not a number"
    field.value = "2"
    assert (taken, unit.value) == ([1.5, 2.0], "x")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_when_the_click_is_handled_beside_the_new_value_of_its_field_the_new_value_is_recorded_last():
    row = Prediction(run_key="r", prediction_id="p", question="?", unit="x", answer="2", source="default")
    taken, clicked, typed = [], threading.Event(), threading.Event()

    def record(answer):
        if answer == 2:  # the click came first, and the field is about to change
            clicked.set()
            typed.wait(0.2)
        taken.append(answer)
        return row

    inputs, _ = widgets._question_widget(row, None, record).children
    field, _, button = inputs.children

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


@pytest.fixture
def shown(monkeypatch):
    """What is displayed, newest last."""

    class Place:
        def update(self, thing):
            found.append(thing)

    found = []
    monkeypatch.setattr(widgets, "display", lambda thing, **options: found.append(thing) or Place())
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_moved_slider_calls_again_and_puts_the_new_text_and_picture_in_the_place_of_the_old(shown):
    import matplotlib.pyplot as plt

    mine, calls = plt.figure(), []

    def show(rate):
        calls.append(rate)
        print(f"rate < {rate}")
        plt.figure()
        plt.show()

    widgets.show_sliders(show, {"rate": (0.5, 0.0, 1.0)})
    sliders, first = shown
    sliders.children[0].value = 0.75
    assert calls == [0.5, 0.75]
    assert "rate &lt; 0.5" in first.data
    assert "rate &lt; 0.75" in shown[2].data
    assert 'src="data:image/png;base64,' in shown[2].data
    assert plt.get_fignums() == [mine.number], "its own figures are closed, those of others stay"
    plt.close(mine)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_slider_moved_while_a_cell_runs_waits_for_the_end_of_the_cell(shown, monkeypatch, capsys):
    waiting, calls = [], []

    class Shell:
        class kernel:
            class io_loop:
                add_callback = waiting.append

    monkeypatch.setattr(widgets, "shell", lambda: Shell)
    widgets.show_sliders(lambda rate: calls.append(rate), {"rate": (1, 0, 10)})
    slider = shown[0].children[0]

    def move():
        slider.value = 2
        slider.value = 3

    thread = threading.Thread(target=move)  # where ipykernel 7 handles it
    thread.start()
    thread.join()
    assert calls == [1]
    for call in waiting:
        call()
    assert calls == [1, 3], "once, at the place where the slider came to rest"


@pytest.mark.parametrize(
    ("low", "high", "start"), [(0.02, 0.4, 0.1), (0.0, 20.0, 2.0), (0.0, 0.95, 0.36), (0.0, 600.0, 24.0)]
)
def test_a_slider_can_be_moved_back_to_its_start(low, high, start):
    slider = widgets._slider("v", start, low, high)
    steps = (start - low) / slider.step
    assert steps == pytest.approx(round(steps))
    assert (high - low) / slider.step >= 19.9
