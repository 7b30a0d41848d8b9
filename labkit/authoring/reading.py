"""Estimates the minutes that a lesson, or some of its sections, take a reader.

Minutes  words / 200 + lines of code / 12 + 2 per picture + 0.5 per small table or prediction + the
         minutes that the exercises state. A picture that is drawn several times from the same
         object, each time with more in it, counts once
Source   the rates are estimates of this course's authors; trial readers needed about as long
"""

import ast
import re
from typing import NamedTuple

from labkit import lesson as words
from labkit.lesson import exercises
from labkit.lesson.syllabus import LessonPage
from labkit.notebook import read_notebook

WORDS_PER_MINUTE = 200
LINES_PER_MINUTE = 12
MINUTES_PER_PICTURE = 2
MINUTES_PER_TABLE = 0.5
MINUTES_PER_PREDICTION = 0.5
SILENT = {*words.__all__, "print"}  # calls at the end of a cell that show no table
SECTION = re.compile(r"^## (?:(\d+)\. )?", re.MULTILINE)
NO_NUMBER = -1  # of a section
LONG_STRING = 8  # words: a string with more is read as prose
# calls of plots that show nothing by themselves
NO_PICTURES = {"canvas", "log_axis", "front_in_words", "numbered"}


class Reading(NamedTuple):
    """What the estimate of the minutes needs from a lesson.

    words        number of words of prose, and of long strings in code
    lines        number of lines of code
    pictures     number of pictures
    tables       number of tables
    predictions  number of questions that ask for a prediction
    exercises    minutes that the exercises state, in all
    """

    words: int
    lines: int
    pictures: int
    tables: int
    predictions: int
    exercises: int  # minutes that the exercises state

    @property
    def minutes(self):
        """Return the estimated minutes, rounded to five: the formula is no more exact than that."""
        return to_five(self.exact_minutes)

    @property
    def exact_minutes(self):
        """Return the estimated minutes, not rounded."""
        return (
            self.words / WORDS_PER_MINUTE
            + self.lines / LINES_PER_MINUTE
            + self.pictures * MINUTES_PER_PICTURE
            + self.tables * MINUTES_PER_TABLE
            + self.predictions * MINUTES_PER_PREDICTION
            + self.exercises
        )

    @property
    def sentence(self):
        """Return the sentence about the minutes that stands in the first cell of the lesson."""
        if not self.exercises:
            return f"About {self.minutes} minutes."
        return f"About {self.minutes} minutes, {self.exercises} of them for the exercises."


def to_five(minutes):
    """Round minutes to a multiple of five."""
    return 5 * round(minutes / 5)


def reading(lesson: LessonPage) -> Reading:
    """Return the `Reading` of a lesson's notebook as it is committed, without outputs."""
    return _reading_of(read_notebook(lesson.path).cells, lesson.exercises)


def reading_of_sections(lesson: LessonPage) -> dict[int, tuple[Reading, list]]:
    """Return {number of a section: (its `Reading`, list of its exercises)} of a lesson.

    Section 0 is all that stands before the first numbered heading. What stands below a heading
    without a number, such as "Yours", is left out.
    """
    cells_by_section: dict[int, list] = {0: []}
    number = 0
    for cell in read_notebook(lesson.path).cells:
        heading = SECTION.search(cell.source) if cell.cell_type == "markdown" else None
        if heading:
            number = int(heading[1] or NO_NUMBER)
        cells_by_section.setdefault(number, []).append(cell)
    cells_by_section.pop(NO_NUMBER, None)

    readings = {}
    for number, cells in cells_by_section.items():
        exercise_ids = {
            exercise_id for cell in cells for exercise_id in exercises.ids_in(cell.source)
        }
        tasks = [task for task in lesson.exercises if task.id in exercise_ids]
        readings[number] = (_reading_of(cells, tasks), tasks)
    return readings


def _reading_of(cells, tasks):
    """Return the `Reading` of some cells.

    cells  cells of a notebook, with Markdown and code
    tasks  the exercises in these cells
    """
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    trees = [_parsed(source) for source in code]
    words_of_prose = sum(_count_words(text) for text in prose)
    words_of_strings = sum(_count_words_in_strings(tree) for tree in trees)
    predictions = 0
    for tree in trees:
        predictions += sum(_name(call) == "predict" for call in _calls(tree))
    return Reading(
        words=words_of_prose + words_of_strings,
        lines=sum(_count_lines(source) for source in code),
        pictures=_count_pictures(trees),
        tables=_count_tables(trees),
        predictions=predictions,
        exercises=sum(task.minutes for task in tasks),
    )


def _parsed(source):
    """Return the syntax tree of a cell, without IPython's commands.

    A cell that is not Python gives an empty module.
    """
    if source.startswith("%%"):
        source = source.partition("\n")[2]
    try:
        return ast.parse(re.sub("^[%!].*", "", source, flags=re.MULTILINE))
    except SyntaxError:
        return ast.Module([], [])


def _count_words(text):
    """Count the words of a text in Markdown, without the code between fences."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return len(prose.split())


def _count_words_in_strings(tree):
    """Count the words of the long strings in code.

    Long strings, such as claims, are sentences that a reader reads.

    tree  syntax tree of a cell
    """
    total = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            count = len(node.value.split())
            if count > LONG_STRING:
                total += count
    return total


def _count_lines(source):
    """Count the lines of code of a cell, without comments and empty lines."""
    lines = [line.strip() for line in source.splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def _calls(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _name(call):
    """Return the last word of the name of a called function: "ladder" for plots.ladder(...)."""
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def _count_pictures(trees):
    """Count the pictures that cells draw.

    A function of `plots` counts as a picture. Calls of the same function with the same first
    argument, in whatever cells, count once. Each canvas(...) counts as well; in a cell without a
    canvas, each .plot(...) counts.

    trees  a syntax tree per cell
    """
    drawn = set()
    by_hand = 0
    for tree in trees:
        calls = _calls(tree)
        canvases = sum(_name(call) == "canvas" for call in calls)
        by_hand += canvases or sum(_name(call) == "plot" for call in calls)
        for call in calls:
            if _is_of_plots(call):
                first_argument = ast.unparse(call.args[0]) if call.args else None
                drawn.add((_name(call), first_argument))
    return len(drawn) + by_hand


def _is_of_plots(call):
    function = call.func
    is_ours = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "plots"
    return is_ours and function.attr not in NO_PICTURES


def _count_tables(trees):
    """Count the tables that cells show.

    A table is a call of display(...), or the expression at the end of a cell that draws no picture.
    The same expression in several cells counts once.

    trees  a syntax tree per cell
    """
    tables = set()
    for tree in trees:
        tables |= {ast.unparse(call) for call in _calls(tree) if _name(call) == "display"}
        last = tree.body[-1] if tree.body else None
        if (
            isinstance(last, ast.Expr)
            and not _count_pictures([tree])
            and not _is_silent(last.value)
        ):
            tables.add(ast.unparse(last))
    return len(tables)


def _is_silent(expression):
    """Return whether the expression at the end of a cell is known to show no table.

    It shows none if it is a string or another constant, a call of print(...), or a call of a
    function that lessons use, such as check(). For a call of display(...) the result is True as
    well, because such calls are counted elsewhere.
    """
    if isinstance(expression, ast.Call):
        return _name(expression) in {*SILENT, "display", "check", "hint", "show"}
    return isinstance(expression, ast.Constant)
