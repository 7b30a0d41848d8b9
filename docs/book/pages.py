"""The pages of the book that are made from the package and the lessons, as MyST Markdown."""

import ast
import re
from html import unescape
from itertools import groupby
from pathlib import Path

from labkit import ledger
from labkit.authoring.sections import sections
from labkit.files import artifacts, deeper_notebooks
from labkit.ledger.rows import Answer, Claim, LessonAnswer, RaceScore
from labkit.lesson import cards
from labkit.lesson.progress import progress
from labkit.lesson.syllabus import lessons
from labkit.notebook import read_notebook
from labkit.report.leaderboard import as_html, board
from labkit.text.course_pages import glossary

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "labkit"
PARTS = {
    "00": "Part I: measure",
    "05": "Part II: train faster",
    "12": "Part III: deploy smaller and faster",
}
# A card's lines: a word of at most eight letters, and from the tenth column on what it says.
_FIELD = re.compile(
    r"^(?=.{9}\S)(What|When|Cost|Not when|Why so|Source) +(?<=^.{9})(.+(?:\n .+)*)",
    flags=re.MULTILINE,
)
_ARXIV = re.compile(r"(?<![\[/\w])(?:arXiv:)?(\d{4}\.\d{5})(?![\]\d])")


def generated(runs):
    """{name of the page: its text}.

    runs  {lesson: the `Attempt` that the book shows}
    """
    return {
        "index": _index(runs),
        "results": _results(runs),
        "guesses": _read(HERE / "guesses.md"),
        "methods": _cards("Methods of training", "methods"),
        "compression": _cards("Methods of compression", "compress"),
        "quantization": _cards("Ways of quantization", "quantize"),
        "commands": _commands(),
        "your-own-network": _read(HERE.parent / "your-own-network.md"),
        "glossary": _glossary(runs),
        "reading": _reading(),
    }


def _read(path):
    return path.read_text(encoding="utf-8")


def _plain(text):
    """Text that Markdown shows as it is, on one line; what stands between backticks is code."""
    parts = " ".join(text.split()).split("`")
    marks = re.compile(r"([\\*_\[\]<>|$#~])")
    shown = [
        f"`{part}`" if place % 2 else marks.sub(r"\\\1", part) for place, part in enumerate(parts)
    ]
    return "".join(shown)


def _linked(text):
    """With a link for each number of arXiv that has none."""
    return _ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def _table(heads, lines):
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _link(lesson):
    return f"[{lesson.heading}](lessons/{lesson.name}.ipynb)"


def _index(runs):
    """index.md with the lessons in their parts, each with its question and its answer, and all
    pages in their order.
    """
    course = lessons()
    asked = "\n".join(part for lesson in course for part in _asked(lesson, runs.get(lesson.name)))
    listed = "\n".join(f"{lesson.heading} <lessons/{lesson.name}>" for lesson in course)
    page = _read(HERE / "index.md").replace("LESSONS_ASKED", asked).replace("LESSONS_LIST", listed)
    deeper = "\n".join(f"lessons/deeper/{path.stem}" for path in deeper_notebooks())
    return page.replace("DEEPER_LIST", deeper)


def _asked(lesson, run):
    """A lesson's link and question, and what the run that the book shows answered, folded."""
    if lesson.name[:2] in PARTS:
        yield f"### {PARTS[lesson.name[:2]]}\n"
    minutes = f" ({lesson.minutes} minutes)" if lesson.minutes else ""
    yield f"**{_link(lesson)}**. {_plain(lesson.question)}{minutes}\n"
    yield from map(_answer, ledger.find(LessonAnswer, run_key=run.run_key) if run else ())


def _answer(row):
    number = _plain(unescape(cards.card("evidence", row)))
    parts = (("Because", row.because), ("Holds for", row.holds_for), ("Not for", row.not_for))
    limits = "\n".join(f"- *{label}* {_plain(text)}" for label, text in parts)
    text = f"**{_plain(row.sentence)}**\n\n{number}\n\n{limits}"
    return f"<details>\n<summary>What this machine answered</summary>\n\n{text}\n\n</details>\n"


def _results(runs):
    """The page of results: the runs that the book shows in numbers, and the way to the whole
    report.
    """
    lines = []
    for lesson in lessons():
        run = runs.get(lesson.name)
        key = run.run_key if run else None
        claims = [row.verdict for row in ledger.find(Claim, run_key=key)] if run else []
        solved = (
            [row.verdict == "passed" for row in ledger.find(Answer, run_key=key)] if run else []
        )
        counts = [
            str(claims.count(verdict)) if run else "–"
            for verdict in ("holds", "fails", "inconclusive")
        ]
        exercises = f"{sum(solved)} of {len(lesson.exercises)}" if run else "–"
        lines.append([_link(lesson), run.profile if run else "not run", *counts, exercises])
    heads = ["lesson", "profile", "claims that hold", "that fail", "left open", "exercises passed"]
    reader = progress()
    own = " ".join(cards.card("progress", reader, True).split()) if reader else ""
    # one block of HTML: no name in it is Markdown
    boards = " ".join(as_html(board(RaceScore) | board()).split())
    page = (
        _read(HERE / "results.md")
        .replace("RESULTS_TABLE", _table(heads, lines))
        .replace("PROGRESS", own)
    )
    # narrow screens scroll the tables, not the page; by keyboard, too
    scrolls = (
        '<div class="pst-scrollable-table-container" role="region" aria-label="The two boards" '
        'tabindex="0">'
    )
    return page.replace("BOARDS", f"{scrolls}{boards}</div>")


def _glossary(runs):
    """The terms of docs/glossary.md in groups by letter, with links to the lessons of the book."""
    headings = _headings(runs)
    parts = ["# Glossary\n\nThe terms of the lessons, and the section that explains each.\n"]
    for letter, terms in groupby(glossary(), key=lambda term: term.name[0].upper()):
        entries = "\n\n".join(_explained(term, headings) for term in terms)
        parts.append(f"## {letter}\n\n:::{{glossary}}\n{entries}\n:::\n")
    return "\n".join(parts)


def _headings(runs):
    """{lesson: headings of the notebook that the book shows}: an earlier run may have other ones
    than the lesson.
    """
    headings = {}
    for lesson in lessons():
        run = runs.get(lesson.name)
        shown = artifacts() / run.output if run else lesson.path
        headings[lesson.name] = {section.heading for section in sections(shown)}
    return headings


def _explained(term, headings):
    """A term as an entry of Sphinx's glossary: name, other words, meaning, and where it is
    explained.
    """
    also = f"*Also: {', '.join(term.spellings)}.* " if term.spellings else ""
    return f"{term.name}\n  {also}{term.meaning} {_link_in_book(term, headings)}"


def _link_in_book(term, headings):
    """A link to the section that explains a term, or to the page of commands; nothing for a page
    outside the book.
    """
    page, _, heading = term.section.partition(": ")
    if page in headings:
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        jump = f"#{anchor}" if heading in headings[page] else ""
        return f"[{term.section}](lessons/{page}.ipynb{jump})"
    return f"[{heading}](commands.md)" if page == "docs/commands.md" else ""


def _reading():
    """The page of further reading: the ends of the lessons."""
    parts = ["# Further reading\n\nCollected from the ends of the lessons.\n"]
    for lesson in lessons():
        texts = [cell.source for cell in read_notebook(lesson.path).cells]
        found = [re.split(r"\*\*Further reading\.?\*\*", text, maxsplit=1)[1:] for text in texts]
        named = "\n\n".join(part.lstrip(": \n").rstrip() for rest in found for part in rest)
        if named:
            parts.append(f"## {lesson.heading}\n\n{_linked(named)}\n")
    return "\n".join(parts)


def _commands():
    """The tables of docs/commands.md; then `labkit --help` and that of each command, by typer's
    own writer.
    """
    import typer
    from typer.cli import get_docs_for_click

    from labkit.cli.app import app

    command = typer.main.get_command(app)
    _say_in_full(command)
    text = get_docs_for_click(
        obj=command, ctx=typer.Context(command), name="labkit", title="The command line"
    )
    text = re.sub(
        r"^\* `--(?:help|install-completion|show-completion)`.*\n", "", text, flags=re.MULTILINE
    )
    text = re.sub(r"\*\*Options\*\*:\n\s*(?=\*\*|#|\Z)", "", text)
    text = re.sub(r"^Example: (.+)$", r"Example: `\1`", text, flags=re.MULTILINE)
    by_task = _read(HERE.parent / "commands.md").partition("## Your copies")[0]
    # pages that the book does not have
    by_task = re.sub(r" \(\[\w+\.md\]\(\w+\.md\)\)", "", by_task)
    # its links lead into a checkout
    by_task = re.sub(r"\[([^]]+)\]\(published-experiments\.md[^)]*\)", r"\1", by_task)
    text = text.replace("# The command line\n", f"{by_task}## All options\n", 1)
    return text.replace("```console", "```text")


def _say_in_full(command):
    """Let a list of commands show the whole first line of each; typer would cut it."""
    names = command.list_commands(None) if hasattr(command, "commands") else []
    for name in names:
        each = command.get_command(None, name)
        each.short_help = re.split(r"\n| Example:", each.help)[0]
        _say_in_full(each)


def _cards(title, folder):
    """The cards of all methods of a folder of labkit, each with what its file offers."""
    files = sorted(
        path for path in (PACKAGE / folder).rglob("*.py") if _FIELD.search(_docstring(path))
    )
    return f"# {title}\n\n" + _read(HERE / f"{folder}.md") + "\n" + "\n".join(map(_card, files))


def _docstring(path):
    return ast.get_docstring(ast.parse(_read(path))) or ""


def _card(path):
    text = _docstring(path)
    name, _, about = text.partition("\n")[0].partition(": ")
    about = about[:1].upper() + about[1:]
    lines = "\n\n".join(
        f"{field}\n: {_linked(_plain(found))}" for field, found in _FIELD.findall(text)
    )
    place = path.relative_to(PACKAGE.parent).as_posix()
    offered = "\n\n\n".join(_offered(path))
    code = (
        "<details><summary>What the file "
        f"offers</summary>\n\n```python\n{offered}\n```\n\n</details>\n"
        if offered
        else ""
    )
    return f"## {_plain(name)}\n\n{_plain(about)} In `{place}`.\n\n{lines}\n\n{code}"


def _offered(path):
    """Signature and docstring of each public function and class of a file."""
    for node in ast.parse(_read(path)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            node.body, node.decorator_list = node.body[:1], []
            if ast.get_docstring(node):
                yield ast.unparse(node)
