"""The lessons of the course: every `notebooks/NN_*.ipynb`, with its title and its exercises."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from labkit.files import root
from labkit.lesson import exercises


@dataclass(frozen=True)
class LessonPage:
    """One notebook: its path, the heading and the question of its first cell, the exercises its cells ask for."""

    path: Path
    title: str
    question: str
    exercises: tuple

    @property
    def name(self):
        return self.path.stem


def lessons():
    """All lessons in order."""
    return [read_lesson(path) for path in sorted((root() / "notebooks").glob("[0-9][0-9]_*.ipynb"))]


def read_lesson(path):
    """A notebook's title and exercises."""
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    title = re.search(r"^# (.+)$", texts[0], flags=re.MULTILINE)
    asked = [name for text in texts for name in re.findall(r"""\bexercise\(["']([\w-]+)["']\)""", text)]
    question = re.search(r"^\*\*(.+\?)\*\*$", texts[0], flags=re.MULTILINE)
    return LessonPage(
        path=Path(path),
        title=title[1] if title else Path(path).stem,
        question=question[1] if question else "",
        exercises=tuple(map(exercises.find, asked)),
    )
