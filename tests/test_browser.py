"""JupyterLab in a real browser, opened as `make lab` does it: run all, edit a cell, click a
prediction.
"""

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
from lesson_checks import LOADED, RUN_ALL, SAVE, STOP, look, run_and_look, wait_until_ready, watch

from labkit import ledger
from labkit.files import root

pytestmark = pytest.mark.browser
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
SHOW_EVERY_CELL = {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}}


def need_browser():
    if CHROMIUM:
        return
    if os.environ.get("LABKIT_REQUIRE_BROWSER") == "1":
        pytest.fail(
            "no chromium on this machine, and here the browser test must run: "
            "apt-get install chromium"
        )
    pytest.skip("no chromium on this machine: apt-get install chromium")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


SMALL_LESSON = (
    "from labkit.lesson import exercise, predict, reveal, start\nlab = "
    'start("99_small", "quick", 0)',
    'predict("how-much", "How much?", unit="x", default=2)',
    "import time\n\nfor number in range(40):\n    print('number', number)\n    time.sleep(0.05)",
    "def image_bytes(images, height, width, bytes_per_value):\n    import pathlib\n\n"
    "    pathlib.Path('begun').touch()\n    while True:\n        pass\n\n\n"
    'image_bytes = exercise("image-bytes").check(image_bytes)',
    'reveal("how-much", 4)',
    "from labkit.train.watch import progress_bar\n\nwith progress_bar(4, 0) as bar:\n    for _ in "
    "range(4):\n"
    "        time.sleep(2)\n        bar.update()\nprint('trained')",
    "with progress_bar(9, 1) as bar:\n    time.sleep(600)",
)


def small_lesson(folder):
    """A root with one short lesson, under the name that opens first."""
    (folder / "notebooks").mkdir(parents=True)
    (folder / "notebooks" / "exercises").symlink_to(root() / "notebooks" / "exercises")
    (folder / "data").symlink_to(root() / "data")
    page = nbformat.read(root() / "notebooks" / "00_start_here.ipynb", as_version=4)
    page.cells = list(map(nbformat.v4.new_code_cell, SMALL_LESSON))
    nbformat.write(page, folder / "notebooks" / "00_start_here.ipynb")
    return folder


def copy_of_the_course(folder):
    """A root with its own notebooks in the profile quick, so that editing one changes nothing in
    the checkout.
    """
    shutil.copytree(root() / "notebooks", folder / "notebooks")
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / "recorded").symlink_to(root() / "artifacts" / "recorded")
    for path in root().iterdir():
        if path.name not in ("notebooks", "artifacts", "my-lessons"):
            (folder / path.name).symlink_to(path)
    for notebook in (folder / "notebooks").glob("*.ipynb"):
        text = notebook.read_text(encoding="utf-8")
        assert 'profile = \\"lab\\"' in text
        notebook.write_text(
            text.replace('profile = \\"lab\\"', 'profile = \\"quick\\"'), encoding="utf-8"
        )
    return folder


@contextmanager
def jupyterlab(folder):
    """The server as `labkit lab` starts it; yields its address, and leaves no process behind."""
    port, token = free_port(), "browser-test"
    own = {f"JUPYTER_{name}_DIR": str(folder / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{name}_DIR": str(folder / name) for name in ("SETTINGS", "WORKSPACES")}
    user = (
        folder / "SETTINGS" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    )
    user.parent.mkdir(parents=True)
    user.write_text(json.dumps(SHOW_EVERY_CELL["@jupyterlab/notebook-extension:tracker"]))
    options = ["--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    options += [f"--IdentityProvider.token={token}", "--expose-app-in-browser"]
    environment = {**os.environ, **own, "LABKIT_ROOT": str(folder), "PYTHONWARNINGS": "default"}
    log = (folder / "server.log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "labkit.cli", "lab", *options],
        env=environment,
        stdout=log,
        stderr=log,
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
        page.set_default_timeout(400_000)  # busy machines need minutes where others need seconds
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        try:
            yield page, asked
        finally:
            browser.close()


def cell_with(page, text):
    return page.locator(".jp-CodeCell", has=page.locator(f'.cm-content:has-text("{text}")')).first


@pytest.mark.timeout(1800)
def test_a_student_runs_all_edits_a_cell_and_answers_a_prediction(tmp_path, own_artifacts, brief):
    need_browser()
    folder = copy_of_the_course(tmp_path / "course")
    with (
        jupyterlab(folder) as first,
        page_of(first.replace("00_start_here", "03_what_limits_speed")) as (page, asked),
    ):
        said = watch(page)
        wait_until_ready(page)
        page.evaluate(RUN_ALL)
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
        cell.locator("text=Well done").wait_for()

        page.locator('button.jupyter-button:has-text("memory")').first.click()
        page.locator("text=Your answer: memory").wait_for()
        answers = ledger.load("answers").set_index("exercise_id")["verdict"]
        assert answers["image-bytes"] == "passed"
        prediction = ledger.load("predictions").set_index("prediction_id").loc["row-bound"]
        assert (prediction["answer"], prediction["source"]) == ("memory", "reader, afterwards")
        assert len(ledger.load("completions")) == 1
        found, used = look(page, asked, said)

    assert not any(found.values()), found
    lesson = nbformat.read(root() / "notebooks" / "03_what_limits_speed.ipynb", as_version=4)
    assert used == sum(cell.source.count("predict(\n") for cell in lesson.cells)


# the lesson above is looked at in the same way
@pytest.mark.release
@pytest.mark.timeout(1800)
def test_a_lesson_runs_is_used_by_keyboard_and_looks_right_in_both_themes_and_when_opened_again(
    tmp_path,
):
    need_browser()
    with jupyterlab(copy_of_the_course(tmp_path / "course")) as first:
        address = first.replace("00_start_here", "02_measuring_honestly")
        with page_of(address) as (page, asked):
            found, used = run_and_look(page, asked)
    assert not any(found.values()), found
    assert used


COMMAND = "name => { window.jupyterapp.commands.execute(name); }"
RESTART = (
    "async () => { await window.jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }"
)


def run_cell(page, text):
    cell = cell_with(page, text)
    cell.locator(".cm-content").click()
    page.evaluate(COMMAND, "notebook:run-cell")
    return cell


@pytest.mark.timeout(1800)
def test_widgets_disturb_no_cell_record_what_is_typed_and_survive_closing(tmp_path, own_artifacts):
    need_browser()
    folder = small_lesson(tmp_path / "course")
    with jupyterlab(folder) as address, page_of(address) as (page, _):
        wait_until_ready(page)
        run_cell(page, "import exercise").locator("text=profile").first.wait_for()
        asked = run_cell(page, "How much?")
        for answer in ("3", "5", "7", "9", "11"):
            asked.locator("input[type=text]").fill(answer)
            # the field's value and the click, 2 ms apart
            asked.locator('button:has-text("Record")').click()
            asked.locator(f"text=Your answer: {answer} x").wait_for()
        time.sleep(0.5)
        row = ledger.load("predictions").iloc[0]
        assert (row["answer"], row["source"]) == ("11", "reader")

        printing = run_cell(page, "range(40)")
        printing.locator("text=number 3").first.wait_for()
        asked.locator("input[type=text]").fill("12")
        # ipykernel 7 handles it in another thread
        asked.locator('button:has-text("Record")').click()
        printing.locator("text=number 39").wait_for()
        numbers = printing.locator(".jp-OutputArea-output pre").first.inner_text().split()
        assert numbers.count("number") == 40, "an answer swallows what a cell prints"
        asked.locator("text=Your answer: 12 x").wait_for()

        stopped = run_cell(page, "while True")
        while not (Path(os.environ["LABKIT_MY_LESSONS"]) / "begun").exists():
            page.wait_for_timeout(200)
        page.evaluate(COMMAND, "notebook:interrupt-kernel")
        stopped.locator("text=You stopped your answer").wait_for()
        run_cell(page, "reveal(").locator("text=You expected").wait_for()
        training = run_cell(page, "progress_bar(")
        training.locator("text=/50%.*2.4/").wait_for()
        training.locator("text=trained").wait_for()
        stopped = run_cell(page, "progress_bar(9")
        stopped.locator("text=/11%/").wait_for()
        page.evaluate(COMMAND, "notebook:interrupt-kernel")
        stopped.locator("text=You stopped it, 1 of 9 steps done").wait_for()
        assert len(stopped.locator(".jp-OutputArea-output").last.inner_text().splitlines()) < 40
        page.evaluate(SAVE)
        page.evaluate(STOP)

        page.reload()
        page.locator("text=Your answer: 12 x").wait_for()
        page.wait_for_function(LOADED)
        assert page.locator("text=model not found").count() == 0
        assert page.locator("text=/\\d%/").count() == 0, "a bar that is done leaves nothing"


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_what_a_student_answered_can_be_read_when_the_kernel_was_started_anew(
    tmp_path, own_artifacts
):
    need_browser()
    with jupyterlab(small_lesson(tmp_path / "course")) as address, page_of(address) as (page, _):
        wait_until_ready(page)
        run_cell(page, "import exercise").locator("text=profile").first.wait_for()
        asked = run_cell(page, "How much?")
        asked.locator("input[type=text]").fill("3")
        asked.locator('button:has-text("Record")').click()
        asked.locator("text=Your answer: 3 x").wait_for()
        for step in (RESTART, SAVE, STOP):
            page.evaluate(step)
        page.reload()
        page.locator("text=Your answer: 3 x").wait_for()
