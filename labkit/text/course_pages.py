"""Read the pages of docs/ that the search of the course looks in.

From the glossary and from the list of published experiments come entries that lead to sections of
lessons. The pages on commands, on installing and on a network of one's own are searched paragraph
by paragraph.
"""

import re
from typing import NamedTuple

from labkit.data import Paragraph
from labkit.files import root
from labkit.notebook import HEADING

LINK = r"\[(?P<section>[^]]+)\]\((?P<address>\S+)\)"
TERM = re.compile(
    r"^- \*\*(?P<name>.+?)\*\*(?: \((?P<spellings>.+?)\))?: (?P<meaning>.+) " + LINK + "$",
    re.MULTILINE,
)
EXPERIMENT = re.compile(
    r"^\| (?P<item>[^|]+) \| (?P<published>[^|]+) \| " + LINK + r" \|", re.MULTILINE
)
GUIDES = ("commands.md", "installing.md", "your-own-network.md")
FENCED = re.compile(r"^[ ]*```.*?^[ ]*```$", re.MULTILINE | re.DOTALL)
# a paragraph begins after an empty line, at an item of a list, and at a row of a table
BEGINS = re.compile(r"\n\s*\n|\n(?=- |\|)")
RULE = re.compile(r"[|\- ]+")  # the line below the head of a table
ANCHOR = re.compile(r"<a id=[^>]*></a>")


class Term(NamedTuple):
    """A term of the glossary.

    name       the term, as the lessons write it
    spellings  other names of the same thing
    meaning    one sentence
    section    lesson and heading that explain the term, such as "05_where_training_time_goes: 9.
               Workers that load"
    address    link to that section, relative to docs/
    """

    name: str
    spellings: list[str]
    meaning: str
    section: str
    address: str

    @property
    def text(self) -> str:
        """Return name, spellings and meaning as one line."""
        also = f" ({', '.join(self.spellings)})" if self.spellings else ""
        return f"{self.name}{also}: {self.meaning}"


class PublishedItem(NamedTuple):
    """A row of docs/published-experiments.md.

    text     what was published: a name and a result
    section  lesson and heading that rebuild it
    """

    text: str
    section: str


def glossary() -> list[Term]:
    """Return the terms of docs/glossary.md in alphabetical order; [] if the page is missing."""
    terms = []
    for entry in TERM.finditer(_page("glossary.md")):
        spellings = entry["spellings"].split(", ") if entry["spellings"] else []
        terms.append(
            Term(entry["name"], spellings, entry["meaning"], entry["section"], entry["address"])
        )
    return terms


def published_items() -> list[PublishedItem]:
    """Return the rows of docs/published-experiments.md that name a section of a lesson.

    The list is empty if the page is missing.
    """
    items = []
    for row in EXPERIMENT.finditer(_page("published-experiments.md")):
        published = row["published"].replace(" [Table]", "").partition("(#table-")[0]
        items.append(PublishedItem(f"{row['item']}: {published}", row["section"]))
    return items


def guides() -> list[Paragraph]:
    """Return the paragraphs, list items and table rows of the pages that help to use the course.

    These are the pages on commands, on installing and on a network of one's own. A missing page
    adds nothing.
    """
    return [paragraph for name in GUIDES for paragraph in _paragraphs_of(name)]


def _paragraphs_of(name):
    """Return the paragraphs, list items and table rows of a page as a list of `Paragraph`.

    Each has the heading above it as its section. Blocks of code are left out.

    name  name of a file in docs/
    """
    page_paragraphs = []
    section = ""
    blocks = BEGINS.split(FENCED.sub("", _page(name)))
    for block, next_block in zip(blocks, [*blocks[1:], ""], strict=True):
        line = " ".join(ANCHOR.sub("", block).split())
        heading = HEADING.match(line)
        if heading:
            section = heading[1]
            continue
        # The rule of a table and the row above it, its head, say nothing to search for.
        if not line or RULE.fullmatch(block) or RULE.fullmatch(next_block):
            continue
        if line.startswith("|"):
            line = ": ".join(cell.strip() for cell in line.strip("|").split(" | "))
        page_paragraphs.append(Paragraph(f"docs/{name}", line, section))
    return page_paragraphs


def _page(name):
    """Return the text of a page of docs/; "" if the page is missing."""
    path = root() / "docs" / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""
