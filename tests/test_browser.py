"""JupyterLab in a real browser, opened as `make lab` does it: run all, edit a cell, click a prediction."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import nbformat
import psutil
import pytest

from labkit import ledger
from labkit.files import root

pytestmark = pytest.mark.browser
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
SHOW_EVERY_CELL = {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}}
RUN_ALL = """async () => {
    const app = window.jupyterapp;
    await app.restored;
    const widget = app.shell.currentWidget;
    await widget.context.ready;
    await widget.sessionContext.ready;
    const fine = await app.commands.execute('notebook:run-all-cells');
    await widget.context.save();
    return fine;
}"""


def need_browser():
    if CHROMIUM:
        return
    if os.environ.get("LABKIT_REQUIRE_BROWSER") == "1":
        pytest.fail("no chromium on this machine, and here the browser test must run: apt-get install chromium")
    pytest.skip("no chromium on this machine: apt-get install chromium")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


SMALL_LESSON = (
    'from labkit.lesson import exercise, predict, reveal, start\nlab = start("99_small", "quick", 0)',
    'predict("how-much", "How much?", unit="x", default=2)',
    "import time\n\nfor number in range(40):\n    print('number', number)\n    time.sleep(0.05)",
    "def image_bytes(images, height, width, bytes_per_value):\n    while True:\n        pass\n\n\n"
    'image_bytes = exercise("image-bytes").check(image_bytes)',
    'reveal("how-much", 4)',
)


def small_lesson(folder):
    """A root with one short lesson, under the name that opens first."""
    (folder / "notebooks").mkdir(parents=True)
    (folder / "data").symlink_to(root() / "data")
    page = nbformat.read(root() / "notebooks" / "00_start_here.ipynb", as_version=4)
    page.cells = list(map(nbformat.v4.new_code_cell, SMALL_LESSON))
    nbformat.write(page, folder / "notebooks" / "00_start_here.ipynb")
    return folder


def copy_of_the_course(folder):
    """A root with its own notebooks, so that editing one changes nothing in the checkout."""
    shutil.copytree(root() / "notebooks", folder / "notebooks")
    (folder / "data").symlink_to(root() / "data")
    first = folder / "notebooks" / "00_start_here.ipynb"
    text = first.read_text(encoding="utf-8")
    assert 'profile = \\"lab\\"' in text
    first.write_text(text.replace('profile = \\"lab\\"', 'profile = \\"quick\\"'), encoding="utf-8")
    return folder


@contextmanager
def jupyterlab(folder):
    """The server as `labkit lab` starts it; yields its address, and leaves no process behind."""
    port, token = free_port(), "browser-test"
    own = {f"JUPYTER_{name}_DIR": str(folder / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{name}_DIR": str(folder / name) for name in ("SETTINGS", "WORKSPACES")}
    user = folder / "SETTINGS" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    user.parent.mkdir(parents=True)
    user.write_text(json.dumps(SHOW_EVERY_CELL["@jupyterlab/notebook-extension:tracker"]))
    options = ["--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    options += [f"--IdentityProvider.token={token}", "--expose-app-in-browser"]
    environment = {**os.environ, **own, "LABKIT_ROOT": str(folder), "PYTHONWARNINGS": "default"}
    log = (folder / "server.log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "labkit.cli", "lab", *options], env=environment, stdout=log, stderr=log
    )
    try:
        wait_for(port, server, folder / "server.log")
        yield f"http://127.0.0.1:{port}/lab/tree/my-lessons/00_start_here.ipynb?token={token}"
    finally:
        family = [*psutil.Process(server.pid).children(recursive=True), psutil.Process(server.pid)]
        for process in family:
            process.kill()
        psutil.wait_procs(family, timeout=10)
        server.wait()
        log.close()


def wait_for(port, server, log, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start: {log.read_text()[-2000:]}")


@contextmanager
def page_of(address):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page(viewport={"width": 1300, "height": 1600})
        page.set_default_timeout(20_000)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        try:
            yield page, asked
        except Exception:
            keep_screenshot(page, "failure")
            raise
        finally:
            browser.close()


def cell_with(page, text):
    return page.locator(".jp-CodeCell", has=page.locator(f'.cm-content:has-text("{text}")')).first


@pytest.mark.timeout(240)
def test_a_student_runs_all_edits_a_cell_and_answers_a_prediction(tmp_path, own_artifacts):
    need_browser()
    folder = copy_of_the_course(tmp_path / "course")
    with jupyterlab(folder) as address, page_of(address) as (page, asked):
        page.locator(".jp-NotebookPanel-toolbar [data-status='idle']").wait_for()
        assert page.evaluate(RUN_ALL), "a cell of 00_start_here failed"
        assert set(ledger.load("answers")["verdict"]) == {"unsolved"}

        cell = cell_with(page, "def image_bytes")
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(
            "def image_bytes(images, height, width, bytes_per_value):\n"
            "    return images * height * width * bytes_per_value\n\n\n"
            'image_bytes = exercise("image-bytes").check(image_bytes)'
        )
        page.keyboard.press("Shift+Enter")
        cell.locator("text=Well done.").wait_for()

        page.locator('button.jupyter-button:has-text("memory")').first.click()
        page.locator("text=Your answer: memory").wait_for()
        keep_screenshot(page)

    answers = ledger.load("answers").set_index("exercise_id")["verdict"]
    assert answers["image-bytes"] == "passed"
    prediction = ledger.load("predictions").set_index("prediction_id").loc["row-bound"]
    assert (prediction["answer"], prediction["source"]) == ("memory", "reader, afterwards")
    assert len(ledger.load("completions")) == 1
    outside = [url for url in asked if not url.startswith(("http://127.0.0.1", "data:", "blob:"))]
    assert outside == [], "opening a lesson must not ask the web for anything"


READY = """async () => {
    await window.jupyterapp.restored;
    const widget = window.jupyterapp.shell.currentWidget;
    await widget.context.ready;
    await widget.sessionContext.ready;
}"""
COMMAND = "name => { window.jupyterapp.commands.execute(name); }"
SAVE_AND_STOP = """async () => {
    const widget = window.jupyterapp.shell.currentWidget;
    await widget.context.save();
    await widget.sessionContext.shutdown();
}"""


def run_cell(page, text):
    cell = cell_with(page, text)
    cell.locator(".cm-content").click()
    page.evaluate(COMMAND, "notebook:run-cell")
    return cell


@pytest.mark.timeout(240)
def test_widgets_disturb_no_cell_record_what_is_typed_and_survive_closing(tmp_path, own_artifacts):
    need_browser()
    folder = small_lesson(tmp_path / "course")
    with jupyterlab(folder) as address, page_of(address) as (page, _):
        page.locator(".jp-NotebookPanel-toolbar [data-status='idle']").wait_for()
        page.evaluate(READY)
        run_cell(page, "import exercise").locator("text=profile").wait_for()
        asked = run_cell(page, "How much?")
        for answer in ("3", "5", "7", "9", "11"):
            asked.locator("input[type=text]").fill(answer)
            asked.locator('button:has-text("Record")').click()  # the field's value and the click, 2 ms apart
            asked.locator(f"text=Your answer: {answer} x").wait_for()
        time.sleep(0.5)
        row = ledger.load("predictions").iloc[0]
        assert (row["answer"], row["source"]) == ("11", "reader")

        printing = run_cell(page, "range(40)")
        printing.locator("text=number 3").first.wait_for()
        asked.locator("input[type=text]").fill("12")
        asked.locator('button:has-text("Record")').click()  # ipykernel 7 handles it in another thread
        printing.locator("text=number 39").wait_for()
        numbers = printing.locator(".jp-OutputArea-output pre").first.inner_text().split()
        assert numbers.count("number") == 40, "an answer swallows what a cell prints"
        asked.locator("text=Your answer: 12 x").wait_for()

        stopped = run_cell(page, "while True")
        page.wait_for_timeout(1500)
        page.evaluate(COMMAND, "notebook:interrupt-kernel")
        stopped.locator("text=You stopped your answer").wait_for()
        run_cell(page, "reveal(").locator("text=You expected").wait_for()
        keep_screenshot(page, "widgets")
        page.evaluate(SAVE_AND_STOP)

        page.reload()
        page.locator("text=Your answer: 12 x").wait_for()
        assert page.locator("text=model not found").count() == 0
        keep_screenshot(page, "reopened")


def keep_screenshot(page, name="00_start_here"):
    """A picture of the page, where `$LABKIT_SCREENSHOTS` names a folder for it."""
    folder = os.environ.get("LABKIT_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"))
