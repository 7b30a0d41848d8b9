"""Show the widgets by which a reader who can click answers a prediction.

The kernel may handle a click in another thread while a cell runs. It may also handle two clicks at
the same time.
"""

import threading

import ipywidgets as widgets
from IPython.display import HTML, display

from labkit.lesson.cards import card, macros

CHOSEN = "#1565c0", "white"  # ipywidgets' own colours have too little contrast
_one_at_a_time = threading.RLock()


def show_question(row, options, record):
    """Show a button for each option, or a field for a number.

    The reader's answer is shown as an output, which is no widget. So a saved notebook still shows
    the answer when its kernel has ended.

    row      the `Prediction` as stored so far
    options  texts of the buttons; None: show the number field
    record   function (answer) that stores the answer and returns the new `Prediction`
    """

    def answer(value):
        answer_display.update(HTML(card("answered", record(value))))

    inputs = _choices(options, row, answer) if options else _number_field(row, answer)
    layout = widgets.Layout(
        display="flex",
        flex_flow="row wrap",
        padding="4px 12px",
        border_left=f"4px solid {macros().blue}",
    )
    display(widgets.Box(inputs, layout=layout))
    answer_display = display(HTML(card("answered", row)), display_id=True)


def _choices(options, row, answer):
    """Return a list of buttons, one for each option; the button that was clicked last is marked.

    row     the `Prediction`: an answer in it is marked from the start
    answer  function (option) that stores and shows the answer
    """
    buttons = [
        widgets.Button(description=option, layout=widgets.Layout(width="auto"))
        for option in options
    ]

    def mark(option):
        for button in buttons:
            chosen = button.description == option
            button.style.button_color, button.style.text_color = CHOSEN if chosen else (None, None)

    def choose(clicked):
        with _one_at_a_time:
            mark(clicked.description)
            answer(clicked.description)

    # The answer of an earlier run of the cell is marked from the start.
    for button in buttons:
        button.on_click(choose)
    if row.source != "default":
        mark(row.answer)
    else:
        mark(None)
    return buttons


def _number_field(row, answer):
    """Return [number field, label with the unit, button].

    The number is recorded when the button is clicked, and when the reader leaves the field. The
    field is a text field: a browser's number field turns 1,5 into 15 if its decimal sign is not the
    comma.

    row     the `Prediction`; its answer is the first value of the field
    answer  function (number) that stores and shows the answer
    """
    field = widgets.Text(value=f"{float(row.answer):g}", layout=widgets.Layout(width="8em"))
    field.continuous_update = False
    unit = widgets.Label(row.unit or "")
    button = widgets.Button(description="Record", layout=widgets.Layout(width="auto"))

    def record(_):
        # The click may be handled before the field's new value has come. That value then calls
        # again, and because the field is read only when it is this call's turn, the newest value is
        # always recorded last.
        with _one_at_a_time:
            try:
                answer(float(field.value.replace(",", ".")))
            except ValueError:
                unit.value = f"{row.unit or ''}: {field.value!r} is not a number"
            else:
                unit.value = row.unit or ""

    button.on_click(record)
    field.observe(record, names="value")
    return [field, unit, button]
