"""The register of published experiments: where the course treats what five documents contain.

experiments.toml lists the items: each is something that a document measured, planned or taught. The
published numbers stay in the tables of `labkit.ledger.published`.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from labkit.authoring.sections import Section, file_of, find_section, missing_words
from labkit.errors import LabError


@dataclass(frozen=True, kw_only=True)
class Item:
    """One table, row, column, plan or heading of a document.

    The comment at the top of experiments.toml says what each field holds.
    """

    key: str
    item: str
    published: str
    words: list[str]
    lesson: str
    section: str
    table: str = ""
    rows: dict[str, list] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    experiment: str = ""
    claims: list[str] = field(default_factory=list)
    ratios: list[str] = field(default_factory=list)
    trainings: bool = False
    differs: str = ""
    needs: str = ""

    def find(self) -> tuple[Path, Section]:
        """Return the path of the lesson or page, and the section of it, that treat the item.

        Raises  LabError where the lesson, the page or the heading does not exist
        """
        path = file_of(self.lesson)
        if path is None:
            raise LabError(
                f"There is no lesson or page for the published experiment {self.key}.",
                expected="a lesson's name without its number, or a page such as docs/installing.md",
                found=self.lesson,
                fix="correct its `lesson` in labkit/authoring/experiments.toml",
            )
        return path, find_section(path, self.section)

    def missing_words(self) -> list[str]:
        """Return the search words of the item that the text of its section does not contain."""
        _, section = self.find()
        return missing_words(self.words, section.text)


@dataclass(frozen=True, kw_only=True)
class Source:
    """One of the five documents.

    description  kind, title and date of the document, in words
    hardware     the machine that its numbers come from
    remark       what else a reader should know about the document
    """

    title: str
    description: str
    hardware: str
    items: list[Item]
    remark: str = ""


@cache
def sources() -> dict[str, Source]:
    """Return {short key: `Source`} of the five documents, in the order of experiments.toml."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    documents = {}
    for key, table in tables.items():
        items = [Item(key=name, **fields) for name, fields in table["items"].items()]
        documents[key] = Source(**(table | {"items": items}))
    return documents


def items() -> Iterator[Item]:
    """Yield the items of all documents, document by document."""
    for source in sources().values():
        yield from source.items
