"""The lessons of the course: every `notebooks/NN_*.ipynb` with its title and exercises; and how a new one begins."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import LabError
from labkit.files import notebooks, root, write_text
from labkit.lesson import exercises


class LessonPage(NamedTuple):
    """One notebook: its path; title, question and minutes by its first cell; the exercises its cells ask for."""

    path: Path
    title: str
    question: str
    minutes: int | None  # a reader's, with the exercises
    exercises: list

    @property
    def name(self):
        return self.path.stem

    @property
    def heading(self):
        """Number and title, such as "00 Start here"."""
        return f"{self.name[:2]} {self.title}"


def lessons() -> list:
    """All lessons in order."""
    return [_read_lesson(path) for path in notebooks()]


def _read_lesson(path):
    """A notebook as a `LessonPage`."""
    texts = ["".join(cell["source"]) for cell in json.loads(path.read_bytes())["cells"]]

    def first(pattern):
        return re.search(pattern, texts[0], flags=re.MULTILINE)

    title, question = first(r"^# (.+)$"), first(r"^\*\*(.+\?)\*\*$")
    minutes = first(r"About (\d+) minutes(?:, and (\d+) more)?")
    return LessonPage(
        path=path,
        title=title[1] if title else path.stem,
        question=question[1] if question else "",
        minutes=int(minutes[1]) + int(minutes[2] or 0) if minutes else None,
        exercises=[exercises.find(name) for text in texts for name in exercises.asked(text)],
    )


def new_lesson(number: str, name: str) -> Any:
    """Begin a lesson from the templates: a notebook that runs, its exercises, and answers to test them with.

    number   two digits, such as "20"
    name     words joined by underscores, such as "a_lesson_of_mine"
    returns  the paths of the three files
    Raises   LabError for a number or name of another form, and where a lesson of that number is there already
    """
    if not re.fullmatch(r"\d\d", number) or not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise LabError(
            "A lesson has a number of two digits and a name in lower case.",
            expected="such as 20 a_lesson_of_mine",
            found=f"{number} {name}",
            fix="labkit new-lesson 20 a_lesson_of_mine",
        )
    for there in (root() / "notebooks").glob(f"{number}_*.ipynb"):
        raise LabError(f"There is a lesson {number} already.", found=there.name, fix="choose another number")
    templates = Path(__file__).parent.parent / "templates"
    notebook = root() / "notebooks" / f"{number}_{name}.ipynb"
    targets = {
        "lesson.ipynb": notebook,
        "exercises.txt": root() / "labkit" / "lesson" / "exercises" / f"l{number}_{name}.py",
        "answers.txt": root() / "tests" / "lesson" / "answers" / f"l{number}_{name}.py",
    }
    words = {
        "NAME": notebook.stem,
        "TITLE": name.replace("_", " ").capitalize(),
        "PREFIX": name.split("_")[0],
        "NN": number,
    }
    for template, target in targets.items():
        text = (templates / template).read_text(encoding="utf-8")
        for placeholder, word in words.items():
            text = text.replace(placeholder, word)
        write_text(target, text)
    return targets.values()
