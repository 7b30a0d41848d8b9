"""What a lesson must hold to in JupyterLab: it runs, says nothing on the console, and everybody can
read and use it.

In a real browser, in both themes, with the keyboard alone, and again after it was saved and opened
a second time.
"""

from book_checks import FINDINGS

SEEN = (
    *("cells that failed", "console", "lost widgets", "too wide", "broken words"),
    *("findings", "outbound", "not by keyboard"),
)
READY = """async () => {
    await window.jupyterapp.restored;
    const widget = window.jupyterapp.shell.currentWidget;
    await widget.context.ready;
    await widget.sessionContext.ready;
}"""
RUN_ALL = "async () => { await window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
SAVE = "async () => { await window.jupyterapp.shell.currentWidget.context.save(); }"
LOADED = "() => !document.body.innerText.includes('Loading widget')"
STOP = "async () => { await window.jupyterapp.shell.currentWidget.sessionContext.shutdown(); }"
THEME = """async (theme) => {
    await window.jupyterapp.commands.execute('apputils:change-theme', { theme });
    while (document.body.dataset.jpThemeName !== theme) await new Promise((done) => setTimeout(done, 100));
}"""
FAILED = """() => window.jupyterapp.shell.currentWidget.content.widgets.flatMap((cell, place) =>
    (cell.model.toJSON().outputs || []).filter((output) => output.output_type === 'error')
        .map((output) => `cell ${place}: ${output.ename}: ${output.evalue}`.slice(0, 200)))"""
WIDE = """() => [...document.querySelectorAll('.jp-OutputArea-output')]
    .filter((node) => node.scrollWidth > node.clientWidth + 1)
    .map((node) => `${node.scrollWidth} of ${node.clientWidth} pixels: ${node.innerText.slice(0, 80)}`)"""
BROKEN = """() => [...document.querySelectorAll('.jp-OutputArea-output pre')]
    .filter((node) => getComputedStyle(node).wordBreak === 'break-all').map((node) => node.innerText.slice(0, 80))"""
NO_WORDS = "picture without a text"  # JupyterLab shows a PNG without the text that lies beside it
WIDGETS = ".jp-OutputArea-output .jupyter-widgets"


def run_and_look(page, asked):
    """Run the lesson in a tab as a student does, then `look` at it."""
    said = watch(page)
    wait_until_ready(page)
    page.evaluate(RUN_ALL)
    return look(page, asked, said)


def watch(page):
    """A list that grows with what the page says on its console."""
    said = []
    page.on("console", lambda line: line.type == "error" and said.append(line.text[:200]))
    page.on("pageerror", lambda error: said.append(str(error)[:200]))
    return said


def wait_until_ready(page):
    page.locator(".jp-NotebookPanel-toolbar").first.wait_for()
    page.evaluate(READY)


def look(page, asked, said):
    """Look at a lesson that was run: ({what of `SEEN`: [where]}, how many widgets were used). It is
    saved and stopped.

    page   a tab with a JupyterLab that lets scripts in (`--expose-app-in-browser`)
    asked  the addresses that it has asked for; said: as of `watch`
    """
    found = {"cells that failed": page.evaluate(FAILED)}
    used, found["not by keyboard"] = by_keyboard(page)
    found["findings"] = []
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.evaluate(THEME, theme)
        findings = page.evaluate(FINDINGS, ".jp-OutputArea-output")
        found["findings"] += [
            f"{theme}: {finding}" for finding in findings if NO_WORDS not in finding
        ]
    found["too wide"], found["broken words"] = page.evaluate(WIDE), page.evaluate(BROKEN)
    page.evaluate(THEME, "JupyterLab Light")
    page.evaluate(SAVE)
    page.evaluate(STOP)
    # until the server has forgotten the kernel, as when a student comes back later
    page.wait_for_timeout(2000)
    page.reload()
    wait_until_ready(page)
    page.wait_for_function(LOADED)
    found["lost widgets"] = page.locator("text=model not found").all_inner_texts()
    inside = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")
    found["outbound"] = [address for address in asked if not address.startswith(inside)]
    return found | {"console": said}, used


def by_keyboard(page):
    """Use each prediction with keys: (how many, [what did not answer])."""
    wrong, used = [], 0
    cells = page.locator(".jp-CodeCell", has=page.locator(WIDGETS))
    for number in range(cells.count()):
        cell = cells.nth(number)
        for control, expected in _answer(page, cell):
            used += 1
            if control.evaluate("node => node.tabIndex") < 0:
                wrong.append(f"not reached by Tab: {expected}")
            try:
                page.wait_for_function(expected, arg=cell.element_handle(), timeout=30_000)
            except Exception as error:
                wrong.append(f"{cell.inner_text()[:80]!r}: {str(error).splitlines()[0]}")
    return used, wrong


def _answer(page, cell):
    """Answer a prediction; yields its control, and what is then true of the cell."""
    field, buttons = cell.locator(".widget-text input"), cell.locator("button.jupyter-button")
    if field.count():
        field.first.focus()
        for keys in ("Control+A", "7", ".", "5", "Enter"):
            page.keyboard.press(keys)
        yield field.first, "(cell) => cell.innerText.includes('Your answer: 7.5')"
    elif buttons.count():
        buttons.first.focus()
        page.keyboard.press("Space")
        said = f"Your answer: {buttons.first.inner_text()}"
        yield buttons.first, f"(cell) => cell.innerText.includes({said!r})"
