"""What the course as a book promises: built in a minute, no broken link, nothing fetched, and
everybody can use it.

    python benchmarks/book.py [--quick]

Quick: the book of what has been run here, about a minute of computing. Full: every lesson is run
first, about fifteen minutes more.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Figures

from labkit.files import artifacts, root

sys.path.insert(0, str(root() / "tests"))
from book_checks import book_pages, broken_links, survey
from test_browser import CHROMIUM, QUIET

SURVEYED = ("outbound", "errors", "findings", "too wide", "not read without scripts", "keyboard")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="take the runs that are there, run no lesson"
    )
    quick, figures = parser.parse_args().quick, Figures()
    with tempfile.TemporaryDirectory() as name:
        folder = artifacts() if quick else Path(name)
        if not quick:
            run(["-m", "labkit.cli", "run", "--profile", "quick"], folder)
        begun = time.monotonic()
        warnings = run(["docs/book/build.py"], folder)
        figures.add("book_built", time.monotonic() - begun, at_most=60, unit="s")
        figures.add("book_warnings", len(warnings.splitlines()), at_most=0)
        look(figures, folder / "book")
    figures.exit()


def run(arguments, folder):
    """Run a command of the course with the artifacts in `folder`; returns what it said on
    stderr.
    """
    environment = {**os.environ, "LABKIT_ARTIFACTS": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=root(), env=environment, capture_output=True, text=True
    ).stderr


def look(figures, book):
    """Read every page, as a program and in a browser."""
    pages = book_pages(book)
    with_outputs = sum("cell_output" in (book / page).read_text("utf-8") for page in pages)
    figures.add("book_pages", len(pages), at_least=1)
    figures.add("book_lessons_with_outputs", with_outputs, at_least=1)
    figures.add("book_broken_links", len(broken_links(book)), at_most=0)
    found = survey(book, pages, chromium=CHROMIUM, options=QUIET) if CHROMIUM else {}
    for what in SURVEYED:
        for each in found.get(what, [])[:5]:
            print(f"# {each}")
        figures.add(
            f"book_{what}".replace(" ", "_"), len(found[what]) if found else None, at_most=0
        )


if __name__ == "__main__":
    main()
