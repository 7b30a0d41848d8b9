"""Finds the sections of lessons and pages.

A section is a heading and all that stands below it, until the next heading of the same or a higher
level.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from labkit.errors import LabError
from labkit.files import root
from labkit.notebook import read_notebook

HEADING = re.compile(r"(#{1,6}) +(.+?) *#*$")
NUMBER = re.compile(r"^\d+\. +")


class Section(NamedTuple):
    """A section of a lesson or of a page.

    heading  the heading with its number, such as "1. The gap"
    text     heading, prose and code (without outputs) until the next heading of the same or a
             higher level. But the section of a title (level 1) ends at the next heading of any
             level
    """

    heading: str
    text: str

    @property
    def name(self):
        """Return the heading without its number.

        Sections are looked up by this name, because their numbers change more often than the words.
        """
        return NUMBER.sub("", self.heading)


def file_of(name: str) -> Path | None:
    """Return the path of a lesson or a page; None where the file does not exist.

    name  a lesson's name without its number, such as "large_batch_tricks", or a page, such as
          "docs/installing.md"
    """
    if name.endswith(".md"):
        page = root() / name
        return page if page.is_file() else None
    lessons = (root() / "notebooks").rglob("*.ipynb")
    for path in sorted(lessons):
        if re.sub(r"^\d+_", "", path.stem) == name:
            return path
    return None


def sections(path: Path) -> list[Section]:
    """Return the sections of a notebook or of a page in Markdown, in order."""
    lines = list(_lines(path))
    headings = []  # (number of its line, level, words)
    for line_number, (line, is_prose) in enumerate(lines):
        heading = _heading(line) if is_prose else None
        if heading:
            level, words = heading
            headings.append((line_number, level, words))
    page_sections = []
    for number, (begin, level, words) in enumerate(headings):
        end = len(lines)
        for next_begin, next_level, _ in headings[number + 1 :]:
            if next_level <= level or level == 1:
                end = next_begin
                break
        text = "\n".join(line for line, _ in lines[begin:end])
        page_sections.append(Section(words, text))
    return page_sections


def find_section(path: Path, name: str) -> Section:
    """Return the section of a file whose heading, without its number, is `name`.

    Raises  LabError where there is none; the error lists the headings of the file
    """
    page_sections = sections(path)
    for section in page_sections:
        if section.name == name:
            return section
    raise LabError(
        f"{path.name} has no section of this heading.",
        expected=" · ".join(section.name for section in page_sections),
        found=name,
        fix="name one of them, without its number",
    )


def link_to(path: Path, section: Section, folder: Path) -> str:
    """Return the link from a page in `folder` to a section of the file `path`.

    The link is a relative path and "#" with an anchor, in the form that JupyterLab gives to
    headings of a notebook, or that the websites of git hosts give to headings of a page.
    """
    if path.suffix == ".ipynb":
        anchor = section.heading.replace(" ", "-")
    else:
        anchor = re.sub(r"[^\w\- ]", "", section.heading.lower()).replace(" ", "-")
    return f"{Path(os.path.relpath(path, folder)).as_posix()}#{quote(anchor)}"


def missing_words(words: list[str], text: str) -> list[str]:
    """Return those of some words or phrases that do not stand in a text as whole words.

    Upper and lower case count as the same. A plural in the text also counts for its singular.
    """
    plain_text = _plain(text)
    missing = []
    for word in words:
        pattern = rf"(?<!\w){re.escape(_plain(word))}(e?s)?(?!\w)"
        if not re.search(pattern, plain_text):
            missing.append(word)
    return missing


def _plain(text):
    """Return a text in lower case, without Markdown's emphasis and with single spaces."""
    words = re.sub(r"[*`]", "", text).lower().split()
    return " ".join(words)


def _heading(line):
    """Return (level, words) of a line that is a heading of Markdown, else None."""
    match = HEADING.match(line)
    if match is None:
        return None
    return len(match[1]), match[2]


def _lines(path):
    """Yield (line, whether the line is prose) of a notebook or a page in Markdown.

    Code is not prose: neither a code cell, nor what stands between fences in Markdown.
    """
    if path.suffix == ".md":
        yield from _prose(path.read_text(encoding="utf-8"))
        return
    for cell in read_notebook(path).cells:
        if cell.cell_type == "markdown":
            yield from _prose(cell.source)
        else:
            yield from ((line, False) for line in cell.source.splitlines())


def _prose(text):
    """Yield (line, whether the line is prose) of a text in Markdown."""
    fenced = False
    for line in text.splitlines():
        fence = line.lstrip().startswith(("```", "~~~"))
        yield line, not (fenced or fence)
        fenced ^= fence
