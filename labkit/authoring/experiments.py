"""The register of published experiments: where the course treats what five documents contain.

experiments.toml is the register. It lists items: one item is something that a document measured,
planned or taught. The published numbers themselves are in the tables of `labkit.ledger.published`.
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
    """One table, row, column, plan or heading of a document, and where the course treats it.

    key         id of the item in experiments.toml
    item        name of the item, in a few words
    published   what the document says, in our words
    words       what a reader would search for; the section has to contain each
    lesson      a lesson's name without its number, or a page such as docs/installing.md
    section     heading of the section that treats the item, without its number
    table       name of the published table that has the numbers; "" for none
    rows        {column: [values]}: only rows with these values; {}: all rows
    columns     only these columns of the table; []: all columns
    experiment  name of the experiment whose recorded rows belong to the item; "" for none
    claims      ids of claims of the lesson, whose recorded verdicts the page shows
    ratios      names of variants in the lesson's comparisons, whose recorded ratios the page shows
    trainings   True: the page shows the recorded trainings of `experiment`
    differs     in what the course's experiment differs from the published one, as sentences
    needs       what is needed to measure it, where that is missing here, such as a GPU
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
        """Return (path of the lesson or page, `Section` of it) in which the course treats the item.

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

    title        name of the document, the heading on the page
    description  kind, title and date of the document, in words
    hardware     the machine on which its numbers were measured
    items        the `Item`s of the document
    remark       what else a reader should know about the document; "" for nothing
    """

    title: str
    description: str
    hardware: str
    items: list[Item]
    remark: str = ""


@cache
def sources() -> dict[str, Source]:
    """Return {key: `Source`} of the five documents, in the order of experiments.toml.

    A key is a short name, such as "convnext".
    """
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
