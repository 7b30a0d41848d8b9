"""Takes the pictures of the README: `python docs/take_pictures.py`, after `make run book` on a
quiet machine.

Each file holds the names of the lessons that the course had then; a test compares them with those
of today.
"""

import io
import sys
from pathlib import Path

from PIL import Image, PngImagePlugin

from labkit import ledger
from labkit.errors import LabError
from labkit.files import artifacts, atomic
from labkit.ledger.rows import Attempt, Latency, Ratio, Run
from labkit.lesson.syllabus import lessons

PICTURES = Path(__file__).resolve().parent / "pictures"
PAGES = {"lesson.png": "book/lessons/03_what_limits_speed.html", "report.png": "report.html"}
SIZE = {"width": 1280, "height": 900}
# of those that no prediction folds
TO_THE_FIRST_PLOT = """[...document.querySelectorAll('.cell_output img')].find(each => each.offsetParent)
    ?.scrollIntoView({block: 'center'})"""
MOST_NOISY = 0.1  # share of the measured rows of a run that was still quiet
ADD = "README.md shows them under its first lines: ![A lesson](docs/pictures/lesson.png)"


def require_a_quiet_run(names):
    """Raise LabError unless every lesson passed at one clean commit, and few of the measured
    rows are noisy.
    """
    newest = {row.notebook: row for row in ledger.find(Attempt, reported_by=None)}
    missing = [name for name in names if name not in newest or newest[name].status != "passed"]
    if missing:
        raise LabError(
            "Not every lesson passed here.", found=", ".join(missing), fix="make run book"
        )
    keys = {newest[name].run_key for name in names}
    commits = {row.commit for row in ledger.find(Run) if row.run_key in keys}
    if len(commits) > 1 or any("dirty" in (commit or "dirty") for commit in commits):
        raise LabError(
            "The runs are not of one commit.", found=f"{commits}", fix="commit, then make run book"
        )
    rows = [row for kind in (Latency, Ratio) for row in ledger.find(kind) if row.run_key in keys]
    noisy = sum(bool(row.noisy) for row in rows) / max(len(rows), 1)
    if noisy > MOST_NOISY:
        fix = "stop other programs, then make run book"
        raise LabError(
            "The machine was busy.",
            expected="few noisy rows",
            found=f"{100 * noisy:.0f} %",
            fix=fix,
        )


def take(names, chromium):
    """Write the pictures, each with the names of the lessons inside."""
    PICTURES.mkdir(exist_ok=True)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        for name, place in PAGES.items():
            page.goto((artifacts() / place).as_uri())
            page.evaluate(TO_THE_FIRST_PLOT)
            save(PICTURES / name, page.screenshot(), names)
        browser.close()


def save(path, png, names):
    """Write a screenshot as a small PNG that holds the names of the lessons."""
    told = PngImagePlugin.PngInfo()
    told.add_text("lessons", " ".join(names))
    with atomic(path) as temporary:
        Image.open(io.BytesIO(png)).convert("P", palette=Image.Palette.ADAPTIVE).save(
            temporary, "PNG", pnginfo=told, optimize=True
        )


def lessons_in(path):
    """The names of the lessons that the course had when this picture was taken; none where it
    does not say.
    """
    with Image.open(path) as picture:
        return picture.info.get("lessons", "").split()


if __name__ == "__main__":
    every = [lesson.name for lesson in lessons()]
    try:
        require_a_quiet_run(every)
        take(every, sys.argv[1] if len(sys.argv) > 1 else "/usr/bin/chromium")
    except LabError as error:
        sys.exit(f"take_pictures: {error}")
    print(*(PICTURES / name for name in PAGES), ADD, sep="\n")
