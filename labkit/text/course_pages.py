"""Read two pages of docs/ that lead to sections of lessons: the glossary and the experiments."""

import re
from typing import NamedTuple

from labkit.files import root

LINK = r"\[(?P<section>[^]]+)\]\((?P<address>\S+)\)"
TERM = re.compile(
    r"^- \*\*(?P<name>.+?)\*\*(?: \((?P<spellings>.+?)\))?: (?P<meaning>.+) " + LINK + "$",
    re.MULTILINE,
)
EXPERIMENT = re.compile(
    r"^\| (?P<item>[^|]+) \| (?P<published>[^|]+) \| " + LINK + r" \|", re.MULTILINE
)


class Term(NamedTuple):
    """A term of the glossary.

    name       as the lessons write it
    spellings  other names of the same thing
    meaning    one sentence
    section    lesson and heading that explain the term, such as "05_where_training_time_goes: 9.
               Workers that load"
    address    of that section, as seen from docs/
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
    """A row of docs/published-experiments.md: what was published, and its section."""

    text: str
    section: str


def glossary() -> list[Term]:
    """Return the terms of docs/glossary.md in alphabetical order; [] without the page."""
    terms = []
    for entry in TERM.finditer(_page("glossary.md")):
        spellings = entry["spellings"].split(", ") if entry["spellings"] else []
        terms.append(
            Term(entry["name"], spellings, entry["meaning"], entry["section"], entry["address"])
        )
    return terms


def published_items() -> list[PublishedItem]:
    """Return the rows of docs/published-experiments.md that name a section; [] without the page."""
    items = []
    for row in EXPERIMENT.finditer(_page("published-experiments.md")):
        published = row["published"].replace(" [Table]", "").partition("(#table-")[0]
        items.append(PublishedItem(f"{row['item']}: {published}", row["section"]))
    return items


def _page(name):
    """Return the text of a page of docs/, or ""."""
    path = root() / "docs" / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""
