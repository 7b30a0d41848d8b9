"""Read the lessons of the course, `notebooks/NN_*.ipynb`, and begin new ones from templates."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import LabError
from labkit.files import notebooks, root, write_together
from labkit.ledger import slug
from labkit.lesson import exercises
from labkit.notebook import read_notebook


class LessonPage(NamedTuple):
    """A lesson of the course, as its notebook describes it.

    title, question  from the first cell
    minutes          working time of a reader, with the exercises; None if the first cell has none
    exercises        list of the `Exercise` that the cells check
    """

    path: Path
    title: str
    question: str
    minutes: int | None  # a reader's, with the exercises
    exercises: list

    @property
    def name(self):
        """Return the name of the notebook without .ipynb, such as "01_deployment_fundamentals"."""
        return self.path.stem

    @property
    def slug(self):
        """Return the slug of the lesson, which is its name without the number: "compile-and-amp".

        Recorded rows and claims name the lesson by its slug.
        """
        return slug(self.name)

    @property
    def heading(self):
        """Return number and title, such as "00 Start here"."""
        return f"{self.name[:2]} {self.title}"


def lessons() -> list:
    """Return the `LessonPage` of each lesson, in the order of the course."""
    return [_read_lesson(path) for path in notebooks()]


def _read_lesson(path):
    """Read a notebook as a `LessonPage`."""
    texts = [cell.source for cell in read_notebook(path).cells]

    def match_of(pattern):
        return re.search(pattern, texts[0], flags=re.MULTILINE)

    # What the first cell says.
    title = path.stem
    title_match = match_of(r"^# (.+)$")
    if title_match:
        title = title_match[1]
    question = ""
    question_match = match_of(r"^\*\*(.+\?)\*\*$")
    if question_match:
        question = question_match[1]
    minutes = None
    minutes_match = match_of(r"About (\d+) minutes(?:, and (\d+) more)?")
    if minutes_match:
        minutes = int(minutes_match[1]) + int(minutes_match[2] or 0)

    # What all cells ask for.
    lesson_exercises = []
    for text in texts:
        lesson_exercises += [exercises.find(exercise_id) for exercise_id in exercises.ids_in(text)]
    return LessonPage(
        path=path,
        title=title,
        question=question,
        minutes=minutes,
        exercises=lesson_exercises,
    )


def new_lesson(number: str, name: str) -> Any:
    """Begin a new lesson from templates: a notebook that runs, its exercises, and test answers.

    number   two digits, such as "21"
    name     words joined by underscores, such as "a_lesson_of_mine"
    returns  the paths of the three new files
    Raises   LabError for a number or name of another form, and for a number that a lesson already
             has
    """
    if not re.fullmatch(r"\d\d", number) or not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise LabError(
            "A lesson has a number of two digits and a name in lower case.",
            expected="such as 21 a_lesson_of_mine",
            found=f"{number} {name}",
            fix="labkit new-lesson 21 a_lesson_of_mine",
        )
    for lesson in (root() / "notebooks").glob(f"{number}_*.ipynb"):
        raise LabError(
            f"There is a lesson {number} already.", found=lesson.name, fix="choose another number"
        )

    # What the templates become, and what stands in the place of their words in capitals.
    notebook = root() / "notebooks" / f"{number}_{name}.ipynb"
    targets = {
        "lesson.ipynb": notebook,
        "exercises.txt": root() / "notebooks" / "exercises" / f"l{number}_{name}.py",
        "answers.txt": root() / "tests" / "lesson" / "answers" / f"l{number}_{name}.py",
    }
    words = {
        "NAME": notebook.stem,
        "TITLE": name.replace("_", " ").capitalize(),
        "PREFIX": name.split("_")[0],
        "NN": number,
    }
    texts = {}
    for template, target in targets.items():
        texts[target] = _fill_template(template, words)
    write_together(texts)
    return targets.values()


def _fill_template(template, words):
    """Return the text of a template with each placeholder replaced by its word.

    words  {placeholder: word}
    """
    path = Path(__file__).parent.parent / "templates" / template
    text = path.read_text(encoding="utf-8")
    for placeholder, word in words.items():
        text = text.replace(placeholder, word)
    return text
