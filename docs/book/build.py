"""Builds the course as a book: a folder of web pages that opens without a server and asks no other
host for anything.

    python docs/book/build.py        (what `make book` does)

A lesson is shown as its newest run that passed, in whatever profile; one that was not run, without
outputs. No lesson runs here. The old artifacts/book is replaced when the new one is whole.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

import pages

from labkit import device, ledger
from labkit.device import packages
from labkit.errors import LabError, as_lab_error, disk_error
from labkit.files import artifacts, atomic_folder, deeper_notebooks
from labkit.ledger.rows import PROFILES, Attempt, Run
from labkit.lesson.syllabus import lessons
from labkit.report import write_report

HERE = Path(__file__).resolve().parent
LEFT_OUT = shutil.ignore_patterns(
    ".buildinfo*", "objects.inv", "*webpack-macros.html", "*.map"
)  # of no use to a reader


def build():
    """Write artifacts/book, and the report, which links it; returns what Sphinx warned of, as
    one text.
    """
    with tempfile.TemporaryDirectory() as name, atomic_folder(artifacts() / "book") as book:
        sources, built = Path(name) / "sources", Path(name) / "built"
        notes = gather(sources, newest_runs())
        warnings = sphinx(sources, built, lesson_notes=notes, drawings=str(artifacts()))
        write_report(built / "report.html")
        shutil.copytree(built, book, ignore=LEFT_OUT, dirs_exist_ok=True)
    write_report()
    return warnings


def sphinx(sources, built, **settings):
    """Build the pages of the folder `sources` into the folder `built`; returns the warnings.

    settings  go before those of conf.py
    Raises    Unavailable without Sphinx; LabError where it gives up
    """
    problem, fix = "Sphinx is not installed: the book cannot be built.", "pip install -e '.[book]'"
    Sphinx = packages.imported("sphinx.application", problem=problem, fix=fix).Sphinx
    options = {"status": None, "warning": io.StringIO(), "parallel": device.usable_cores()}
    app = Sphinx(
        sources, HERE, built, built.with_name("doctrees"), "html", confoverrides=settings, **options
    )
    app.build()
    if app.statuscode:
        raise LabError(
            "Sphinx could not build the book.", found=options["warning"].getvalue()[-2000:]
        )
    return options["warning"].getvalue()


def newest_runs():
    """{lesson: its newest `Attempt` that passed and whose executed notebook is there}."""
    passed = [
        row
        for row in ledger.find(Attempt, status="passed", reported_by=None)
        # not of runs that filled in the solutions
        if row.output and Path(row.output).parent.name in PROFILES
    ]
    there = [row for row in passed if (artifacts() / row.output).is_file()]
    return {row.notebook: row for row in sorted(there, key=lambda row: row.finished_utc)}


def gather(sources, runs):
    """Write all sources of the book into the folder `sources`; returns {page: the note on its
    run}.
    """
    notes = {}
    # The links between lessons and deeper notebooks hold in the book: it has them in the same
    # folders.
    (sources / "lessons" / "deeper").mkdir(parents=True)
    course = {f"lessons/{lesson.name}": lesson.path for lesson in lessons()}
    course |= {f"lessons/deeper/{path.stem}": path for path in deeper_notebooks()}
    for page, path in course.items():
        run = runs.get(path.stem)
        text = (artifacts() / run.output if run else path).read_text(encoding="utf-8")
        (sources / f"{page}.ipynb").write_text(_with_links_of_the_book(text), encoding="utf-8")
        notes[page] = _ran(run) if run else _did_not_run(path)
    for name, text in pages.generated(runs).items():
        (sources / f"{name}.md").write_text(text, encoding="utf-8")
    return notes


def _with_links_of_the_book(notebook):
    """A notebook whose links to docs/ and notebooks/deeper/ lead to the pages of the book."""
    return notebook.replace("](../docs/", "](../").replace("](../notebooks/", "](")


def _ran(attempt):
    """A sentence on the run that a lesson shows: text and code in turns."""
    (run,) = ledger.find(Run, run_key=attempt.run_key) or [None]
    commit = f", commit {run.commit}" if run and run.commit else ""
    when = attempt.finished_utc.replace("T", " ")[:16]
    return (f"All outputs are of one run: profile {attempt.profile}, finished {when} UTC{commit}.",)


def _did_not_run(path):
    lesson = path.stem[:2].isdigit()
    return (
        f"This {'lesson' if lesson else 'notebook'} was not run here, so it is shown without "
        "outputs. To see yours: ",
        f"labkit run {path.stem[:2] if lesson else path.stem}",
        ", then ",
        "make book",
    )


if __name__ == "__main__":
    try:
        print(build(), end="", file=sys.stderr)
    except LabError as error:
        sys.exit(f"make book: {error}")
    except OSError as error:
        sys.exit(f"make book: {as_lab_error(disk_error(error) or error)}")
    print(artifacts() / "book" / "index.html")
