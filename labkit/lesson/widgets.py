"""Widgets for a reader who can click: a prediction's, and sliders.

The kernel may handle a click in another thread, while a cell runs, and two clicks at once.
"""

import contextlib
import io
import math
import threading
from html import escape
from unittest import mock

import ipywidgets as widgets
import matplotlib.pyplot as plt
from IPython.core.pylabtools import print_figure
from IPython.display import HTML, display

from labkit.lesson.cards import card, macros, shell
from labkit.plots import in_words

_one_at_a_time = threading.RLock()


def show_question(row, options, record):
    """Buttons, or a number field with a button; `record(answer)` keeps the answer and returns its row."""
    display(_question_widget(row, options, record))


def _question_widget(row, options, record):
    note = widgets.HTML(card("answered", row))

    def answer(value):
        note.value = card("answered", record(value))

    inputs = _choices(options, row, answer) if options else _number_field(row, answer)
    line = widgets.Box(inputs, layout=widgets.Layout(display="flex", flex_flow="row wrap"))
    frame = widgets.Layout(border_left=f"4px solid {macros().blue}", padding="4px 12px", margin="6px 0")
    return widgets.VBox([line, note], layout=frame)


def _choices(options, row, answer):
    """One button an option; the one clicked last is marked."""
    buttons = [widgets.Button(description=option, layout=widgets.Layout(width="auto")) for option in options]

    def mark(option):
        for button in buttons:
            button.button_style = "info" if button.description == option else ""

    def choose(clicked):
        with _one_at_a_time:
            mark(clicked.description)
            answer(clicked.description)

    for button in buttons:
        button.on_click(choose)
    mark(row.answer if row.source != "default" else None)
    return buttons


def _number_field(row, answer):
    """A number field, its unit, and a button. What is typed is recorded when the field is left, too.

    A text field, because a browser's number field turns 1,5 into 15 where the comma is not its decimal sign.
    """
    field = widgets.Text(value=f"{float(row.answer):g}", layout=widgets.Layout(width="8em"))
    button = widgets.Button(description="Record", layout=widgets.Layout(width="auto"))

    def record(_):
        # The click may be handled before the field's new value has come. That value then calls again, and because the
        # field is read only when it is this call's turn, the newest value is always recorded last.
        with _one_at_a_time:
            try:
                answer(float(field.value.replace(",", ".")))
            except ValueError:
                unit.value = f"{row.unit or ''}: {field.value!r} is not a number"
            else:
                unit.value = row.unit or ""

    field.continuous_update, unit = False, widgets.Label(row.unit or "")
    button.on_click(record)
    field.observe(record, names="value")
    return [field, unit, button]


def show_sliders(function, ranges):
    """Sliders that call `function` again when moved; what it prints and draws replaces the last.

    No `ipywidgets.Output`, which `interact` is made of: a cell with one now and then never ends under papermill
    (nbclient issue 312), and what it shows is lost in a saved notebook.
    """
    sliders = {name: _slider(name, *limits) for name, limits in ranges.items()}
    drawn = {name: slider.value for name, slider in sliders.items()}
    display(widgets.VBox(list(sliders.values())))
    place = display(HTML(_shown_by(function, drawn)), display_id=True)

    def redraw():
        values = {name: slider.value for name, slider in sliders.items()}
        if values != drawn:  # several moves during one long cell are one
            drawn.update(values)
            place.update(HTML(_shown_by(function, values)))

    for slider in sliders.values():
        slider.observe(lambda change: _between_cells(redraw), names="value")


def _slider(name, start, low, high):
    whole = isinstance(start, int)
    kind = widgets.IntSlider if whole else widgets.FloatSlider
    step = 1 if whole else 10 ** math.floor(math.log10((high - low) / 100))  # 100 to 1,000 of them
    look = {"description": name.replace("_", " "), "style": {"description_width": "initial"}}
    return kind(value=start, min=low, max=high, step=step, continuous_update=False, **look)


def _between_cells(call):
    """Call in the main thread, when no cell runs there: pyplot's figures and what is printed belong to the process."""
    kernel = getattr(shell(), "kernel", None)
    if kernel is None or threading.current_thread() is threading.main_thread():
        call()
    else:
        kernel.io_loop.add_callback(call)


def _shown_by(function, values):
    """HTML of what a call prints and draws; figures that are open before it stay as they are."""
    printed = io.StringIO()
    open_before = set(plt.get_fignums())
    with contextlib.redirect_stdout(printed), mock.patch.object(plt, "show"):  # it sends every open figure elsewhere
        function(**values)
    text = f"<pre>{escape(printed.getvalue())}</pre>" if printed.getvalue() else ""
    own = [plt.figure(number) for number in plt.get_fignums() if number not in open_before]
    return text + "".join(map(_picture, own))


def _picture(figure):
    """A figure as an HTML image that says in words what it shows; it is closed."""
    data = print_figure(figure, "png", base64=True)
    plt.close(figure)
    return f'<img alt="{escape(in_words(figure))}" src="data:image/png;base64,{data}">'
