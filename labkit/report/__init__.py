"""Write the report: one HTML page with all results of this ledger.

The page shows the answers of the lessons, what failed, what surprised the reader, each lesson, and
tables of what was measured. It needs no other files and fetches nothing: styles and pictures are
inside it. The executed notebooks lie beside it.
"""

import math
import os
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from labkit import device, ledger
from labkit.files import artifacts, write_text
from labkit.ledger.claims import by_seed
from labkit.ledger.rows import (
    PROFILES,
    Answer,
    Attempt,
    Claim,
    Decision,
    LessonAnswer,
    OwnResult,
    Prediction,
    RaceScore,
    Run,
)
from labkit.lesson import cards, pages, pictures
from labkit.lesson.progress import progress
from labkit.lesson.syllabus import lessons as syllabus
from labkit.report._tables import newest, panels, reporter_of, sections, starter_of
from labkit.report.leaderboard import board

# {name in the template: (row class, function `Run` -> words that tell the shown runs apart)}
BY_LESSON = {
    "answers": (LessonAnswer, reporter_of),
    "decisions": (Decision, reporter_of),
    "claims": (Claim, reporter_of),
    "predictions": (Prediction, starter_of),
    "exercises": (Answer, starter_of),
}


def write_report(path: Path | None = None) -> Path:
    """Write the report from the ledger and the recorded results. Returns its path.

    path  where to write; None: artifacts/report.html
    """
    path = path or artifacts() / "report.html"
    lessons = _lessons(path.parent)
    page = cards.template("report.html").render(
        when=_when,
        progress=progress(),
        machine=device.describe(),
        commits=_commits(lessons),
        written=_when(ledger.now()),
        lessons=lessons,
        course={lesson.name: lesson for lesson in syllabus()},
        surprises=_surprises(lessons),
        own_network=_own_network(),
        picture=pictures.as_uri,
        tallies=_tallies(),
        boards=board(RaceScore) | board(),
        panels=panels(),
        measured=sections(),
        book=_book(path.parent),
    )
    write_text(path, page)
    return path


def _lessons(folder):
    """Return what the report shows of each lesson: {lesson: {name: list}}.

    Under "attempts" there are the dicts that `_with_pages` makes of the newest attempts. Under each
    name of `BY_LESSON`, such as "claims", there are pairs (text that tells the run apart from other
    runs, rows of that run).

    folder  the folder of the report, from which links lead
    """
    lessons = defaultdict(lambda: defaultdict(list))

    # Of the attempts with the same reporter, notebook and seed the last one counts.
    newest_attempts = {}
    for attempt in ledger.find(Attempt):
        seed = -1 if attempt.seed is None else attempt.seed
        newest_attempts[attempt.reported_by or "", attempt.notebook, seed] = attempt
    attempts = [newest_attempts[key] for key in sorted(newest_attempts)]
    for row in _with_pages(attempts, folder):
        lessons[row["notebook"]]["attempts"].append(row)

    for name, (row_class, label_of) in BY_LESSON.items():
        for notebook, label, rows in newest(row_class, label_of):
            lessons[notebook][name].append((label, rows))
    return dict(sorted(lessons.items()))


def _commits(lessons):
    """Return the commits of the runs that the report shows, each once, in the order of the lessons.

    lessons  what `_lessons` returned
    """
    commit_of = {run.run_key: run.commit for run in ledger.find(Run)}
    commits = {}
    for lesson in lessons.values():
        for attempt in lesson["attempts"]:
            commit = commit_of.get(attempt["run_key"])
            if commit:
                commits[commit] = None  # a dict keeps the order
    return list(commits)


def _surprises(lessons):
    """Return the reader's wrong predictions: [(lesson, `Prediction`)], the one farthest off first.

    Only runs that a reader started by hand count.

    lessons  what `_lessons` returned
    """
    wrong = []
    for name, lesson in lessons.items():
        for label, rows in lesson["predictions"]:
            if label == "by hand":
                wrong += [
                    (name, row) for row in rows if (row.source, row.verdict) == ("reader", "off")
                ]
    return sorted(wrong, key=lambda guess: -_miss(guess[1]))


def _own_network():
    """Return the newest results on the reader's own network: [(lesson, `OwnResult`)].

    Results that others reported are left out.
    """
    own_rows = []
    for name, reporter, rows in newest(OwnResult, reporter_of):
        if not reporter:
            own_rows += [(name, row) for row in rows]
    return own_rows


def _miss(row):
    """Return how far off a prediction is: |log(guess / result)|.

    It is 0 for an answer that is no number. It is infinite if guess and result differ in sign, or
    if one of them is 0.

    row  a `Prediction` with a result
    """
    try:
        factor = float(row.answer) / float(row.result)
    except ValueError:
        return 0.0
    except ZeroDivisionError:
        return math.inf
    return abs(math.log(factor)) if factor > 0 else math.inf


def _tallies():
    """Return the outcomes of claims over several seeds: {(notebook, claim id): text}.

    A text is, for example, "holds in 5 of 5: seeds 0 to 4 on 2 machines, lab". If several profiles
    have been run with several seeds, the outcome of the largest profile is returned.
    """
    sentences = {}
    for profile in PROFILES:
        for claim, tally in by_seed(profile).items():
            if len(tally.verdicts) > 1:
                sentences[claim] = f"{tally.outcome()}: {tally.extent()}, {profile}"
    return sentences


def _with_pages(attempts, folder):
    """Return attempts as dicts, with a link to the executed notebook and to a page that shows it.

    The keys "notebook_file" and "page" hold the links, or None; the other keys are the fields of
    `Attempt`. If the report is part of the book (docs/book/build.py), the page is the book's and
    there is no link to a notebook. A notebook that others reported gets no page: it may hold
    anything.

    folder  the folder of the report, from which the links lead
    """
    # Find the page or the file of each attempt.
    book_pages = {}
    files = {}
    for attempt in attempts:
        page = folder / f"lessons/{attempt.notebook}.html"
        file = artifacts() / (attempt.output or "")
        if page.is_file() and not attempt.reported_by:
            book_pages[attempt] = page
        elif file.is_file():
            files[attempt] = file
    page_of_file = pages.readable_pages(
        [file for attempt, file in files.items() if not attempt.reported_by]
    )

    # Add the links to its fields.
    rows = []
    for attempt in attempts:
        file = files.get(attempt)
        row = asdict(attempt)
        row["page"] = _link(book_pages.get(attempt) or page_of_file.get(file), folder)
        row["notebook_file"] = _link(file, folder)
        rows.append(row)
    return rows


def _link(path, folder):
    """Return the path of a file relative to a folder; None if there is no file."""
    return None if path is None else os.path.relpath(path, folder)


def _book(folder):
    """Return a link from `folder` to the first page of the book, or None if there is no book.

    The book is the course as a website.
    """
    for book in (folder, artifacts() / "book"):
        if (book / "index.html").is_file():
            return os.path.relpath(book / "index.html", folder)
    return None


def _when(text):
    """Return an ISO time as a text for people: to the minute, in UTC."""
    return text.replace("T", " ")[:16] + " UTC" if text else "–"
