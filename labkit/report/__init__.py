"""One self-contained HTML page of what was found here: answers, what failed, what surprised; each lesson; every table.

Nothing in it is fetched from elsewhere: the styles and pictures are inside, the executed notebooks lie beside it.
"""

import math
import os
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from labkit import device, ledger
from labkit.files import artifacts, write_text
from labkit.ledger.claims import by_seed
from labkit.ledger.rows import PROFILES, Answer, Attempt, Claim, Decision, LessonAnswer, Prediction, RaceScore, Run
from labkit.lesson import cards, pages
from labkit.lesson.progress import progress
from labkit.lesson.syllabus import lessons as syllabus
from labkit.report._tables import how, newest, panels, sections, whose
from labkit.ship import board

BY_LESSON = {"answers": (LessonAnswer, whose), "decisions": (Decision, whose), "claims": (Claim, whose)}
BY_LESSON |= {"predictions": (Prediction, how), "exercises": (Answer, how)}


def write_report(path: Path | None = None) -> Path:
    """Write artifacts/report.html (or `path`) from the ledger and the recorded results; returns its path."""
    path = path or artifacts() / "report.html"
    lessons = _lessons(path.parent)
    page = cards.template("report.html").render(
        when=_when,
        progress=progress(),
        machine=device.describe(),
        commits=_commits(lessons),
        written=_when(ledger.now()),
        lessons=lessons,
        course={each.name: each for each in syllabus()},
        surprises=_surprises(lessons),
        tallies=_tallies(),
        boards=board(RaceScore) | board(),
        panels=panels(),
        measured=sections(),
        book=_book(path.parent),
    )
    write_text(path, page)
    return path


def _lessons(folder):
    """{lesson: its attempts, answers, claims, predictions and exercises}, each of them as [(whose, rows)]."""
    found = ledger.find(Attempt)
    attempts = {(row.reported_by or "", row.notebook, -1 if row.seed is None else row.seed): row for row in found}
    lessons = defaultdict(lambda: defaultdict(list))
    for row in _with_pages([attempts[name] for name in sorted(attempts)], folder):
        lessons[row["notebook"]]["attempts"].append(row)
    for part, (kind, apart) in BY_LESSON.items():
        for name, about, rows in newest(kind, apart):
            lessons[name][part].append((about, rows))
    return dict(sorted(lessons.items()))


def _commits(lessons):
    """The commits of the course, in the order of the lessons, that the runs shown are of."""
    of_run = {run.run_key: run.commit for run in ledger.find(Run)}
    found = [of_run.get(row["run_key"]) for lesson in lessons.values() for row in lesson["attempts"]]
    return list(dict.fromkeys(filter(None, found)))


def _surprises(lessons):
    """[(lesson, `Prediction`)] that the reader got wrong by hand, the farthest off first."""
    wrong = []
    for name, lesson in lessons.items():
        for about, rows in lesson["predictions"]:
            if about == "by hand":
                wrong += [(name, row) for row in rows if (row.source, row.verdict) == ("reader", "off")]
    return sorted(wrong, key=lambda found: -_miss(found[1]))


def _miss(row):
    """How far off a guess is, as the logarithm of a factor; an option counts least, another sign most."""
    try:
        factor = float(row.answer) / float(row.result)
    except ValueError:
        return 0.0
    except ZeroDivisionError:
        return math.inf
    return abs(math.log(factor)) if factor > 0 else math.inf


def _tallies():
    """{(notebook, claim id): "holds in 5 of 5: seeds 0 to 4 on 2 machines, lab"} of the largest profile."""
    found = {}
    for profile in PROFILES:
        for about, tally in by_seed(profile).items():
            if len(tally.verdicts) > 1:
                found[about] = f"{tally.outcome()}: {tally.extent()}, {profile}"
    return found


def _with_pages(attempts, folder):
    """Attempts with links to their executed notebooks and to readable pages beside these.

    The copy of the report inside the book (see docs/book/build.py) has the book's pages only. A reported notebook is
    linked as a file, and has no page: it may hold anything.
    """
    in_book, files = {}, {}
    for attempt in attempts:
        page = folder / f"lessons/{attempt.notebook}.html"
        file = artifacts() / (attempt.output or "")
        if page.is_file() and not attempt.reported_by:
            in_book[attempt] = page
        elif file.is_file():
            files[attempt] = file
    beside = pages.beside([file for attempt, file in files.items() if not attempt.reported_by])
    rows = []
    for attempt in attempts:
        file = files.get(attempt)
        links = {"page": in_book.get(attempt) or beside.get(file), "notebook_file": file}
        rows.append(asdict(attempt) | {name: path and os.path.relpath(path, folder) for name, path in links.items()})
    return rows


def _book(folder):
    """A link from `folder` to the first page of the course as a book, or None where there is none."""
    for place in (folder, artifacts() / "book"):
        if (place / "index.html").is_file():
            return os.path.relpath(place / "index.html", folder)
    return None


def _when(text):
    """An ISO time for people: to the minute, in UTC."""
    return text.replace("T", " ")[:16] + " UTC" if text else "–"
