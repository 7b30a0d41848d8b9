"""Where somebody can click: the widget of a prediction, and sliders."""

import base64

from labkit.lesson.cards import BLUE, allowed, answer_of, asked, badge, escape, interactive, result_of, show


def show_question(row, options, record):
    """Show a prediction: as a widget where someone can click it, else as a card with the answer taken."""
    if interactive():
        from IPython.display import display

        display(question_widget(row, options, record))
    else:
        show(asked(row, options))


def show_sliders(function, ranges):
    """Sliders that call `function` again when moved; what it prints and draws replaces the last.

    No `ipywidgets.Output`, which `interact` is made of: a cell with one now and then never ends under papermill
    (nbclient issue 312), and what it shows is lost in a saved notebook.
    """
    import ipywidgets as widgets
    from IPython.display import HTML, display

    sliders = {
        name: (widgets.IntSlider if isinstance(start, int) else widgets.FloatSlider)(
            value=start, min=low, max=high, description=name.replace("_", " "), continuous_update=False
        )
        for name, (start, low, high) in ranges.items()
    }
    for slider in sliders.values():
        slider.style.description_width = "initial"

    def draw():
        return HTML(shown_by(function, {name: slider.value for name, slider in sliders.items()}))

    display(widgets.VBox(list(sliders.values())))
    place = display(draw(), display_id=True)
    for slider in sliders.values():
        slider.observe(lambda change: place.update(draw()), names="value")


def shown_by(function, values):
    """What a call prints and draws, as HTML."""
    import matplotlib.pyplot as plt
    from IPython.utils.capture import capture_output

    with capture_output(stderr=False) as caught:
        function(**values)
        plt.show()
    text = f"<pre>{escape(caught.stdout)}</pre>" if caught.stdout else ""
    return text + "".join(picture(output.data["image/png"]) for output in caught.outputs if "image/png" in output.data)


def picture(png):
    """An image, from bytes or base64 text."""
    text = base64.b64encode(png).decode() if isinstance(png, bytes) else png
    return f'<img src="data:image/png;base64,{text.strip()}">'


def question_widget(row, options, record):
    """Buttons, or a number field with a button; `record(answer)` keeps the answer and returns its row."""
    import ipywidgets as widgets

    note = widgets.HTML(f"No answer yet: {answer_of(row)} is assumed.")
    if row.source == "reader":
        note.value = f"Your answer: <b>{answer_of(row)}</b>"

    def answer(value):
        kept = record(value)
        note.value = f"Your answer: <b>{answer_of(kept)}</b>"
        if kept.verdict is not None:
            note.value += (
                f"; {badge(kept.verdict)}: the result was {result_of(kept)}{allowed(kept)} (answered afterwards)"
            )

    if options:
        inputs = [widgets.Button(description=option, layout=widgets.Layout(width="auto")) for option in options]

        def choose(clicked):
            for button in inputs:
                button.button_style = "info" if button is clicked else ""
            answer(clicked.description)

        for button in inputs:
            button.on_click(choose)
    else:
        field = widgets.FloatText(value=float(row.answer), layout=widgets.Layout(width="8em"))
        button = widgets.Button(description="Record", layout=widgets.Layout(width="auto"))
        button.on_click(lambda _: answer(field.value))
        field.observe(lambda change: answer(change.new), names="value")  # Enter, or a click elsewhere
        inputs = [field, widgets.Label(row.unit or ""), button]
    head = widgets.HTML(f'<b style="color:{BLUE}">Predict: {escape(row.question)}</b>')
    row_of_inputs = widgets.Box(inputs, layout=widgets.Layout(display="flex", flex_flow="row wrap"))
    frame = widgets.Layout(border_left=f"4px solid {BLUE}", padding="4px 12px", margin="6px 0")
    return widgets.VBox([head, row_of_inputs, note], layout=frame)
