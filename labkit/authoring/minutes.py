"""Writes the minutes of each lesson into its first cell, README.md and docs/teaching.md."""

import re
from pathlib import Path

from labkit.authoring import plans
from labkit.authoring.reading import Reading, reading
from labkit.errors import LabError
from labkit.files import root, write_together
from labkit.lesson.syllabus import lessons

SENTENCE = re.compile(r"About \d+ minutes[^.\"\\]*\.")


def write() -> dict[str, Reading]:
    """Estimate the minutes of each lesson, and write them to all places that state them.

    These are the first cells of the lessons and the tables of README.md and docs/teaching.md. In
    docs/teaching.md, some tables are timetables for a term or a workshop: their minutes, exercises
    and points are written, too.

    Returns  {name of a lesson: its `Reading`}
    Raises   LabError where a first cell or a table has no minutes that could be replaced
    """
    readme = root() / "README.md"
    teaching = root() / "docs" / "teaching.md"
    texts = {path: path.read_text(encoding="utf-8") for path in (readme, teaching)}
    readings = {}
    for lesson in lessons():
        counts = reading(lesson)
        readings[lesson.name] = counts
        notebook = lesson.path.read_text(encoding="utf-8")
        texts[lesson.path] = _replaced(lesson.path, notebook, SENTENCE, counts.sentence)
        # the last cell of the lesson's row in the table of README.md
        row = re.compile(rf"(?<=\| \[`{lesson.name}`\])(\(.*\|) \d+ (?=\|$)", re.MULTILINE)
        texts[readme] = _replaced(readme, texts[readme], row, rf"\1 {counts.minutes} ")
        # a row in a table of docs/teaching.md
        row = re.compile(rf"^\| {lesson.name[:2]} (?=\|)", re.MULTILINE)
        _require_place(teaching, texts[teaching], row)
    texts[teaching] = plans.filled(texts[teaching])
    write_together(texts)
    return readings


def _replaced(path: Path, text, pattern, replacement):
    """Return the text of the file `path` with the first match of `pattern` replaced.

    pattern      a compiled regular expression
    replacement  as for `re.sub`
    Raises       LabError where nothing matches
    """
    _require_place(path, text, pattern)
    return pattern.sub(replacement, text, count=1)


def _require_place(path: Path, text, pattern):
    """Raise LabError where nothing in the text of the file `path` matches `pattern`."""
    if not pattern.search(text):
        raise LabError(
            f"{path.name} has no place for the minutes of a lesson.",
            expected='"About 40 minutes." in the first cell, and a row in README.md and '
            "docs/teaching.md",
            found=f"nothing like {pattern.pattern}",
            fix="write it with any number: this command corrects it",
        )
