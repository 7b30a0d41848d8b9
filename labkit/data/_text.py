"""The text of the course's own lessons: its paragraphs, and a data set that decoders learn from."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from labkit.data._imageset import require_items
from labkit.files import notebooks
from labkit.notebook import HEADING, markdown_sources

if TYPE_CHECKING:
    import torch

COURSE_TEXT = "course-text"
MIN_WORDS = 6  # shorter ones are headings and labels
HELD_OUT = 10  # one paragraph in so many is in the split "test"


class Paragraph(NamedTuple):
    """A paragraph of the course.

    lesson   name of the notebook or page
    text     the paragraph in one line
    section  the heading above it, such as "1. The gap"
    """

    lesson: str
    text: str
    section: str = ""

    @property
    def location(self) -> str:
        """Return lesson and section as one text: "07_large_batch_tricks: 1. The gap"."""
        return f"{self.lesson}: {self.section}" if self.section else self.lesson


def paragraphs() -> list[Paragraph]:
    """Return every paragraph of every lesson, in the order of reading, without tables and code."""
    prose = []
    for path in notebooks():
        section = ""
        for text in markdown_sources(path):
            for paragraph in re.split(r"\n\s*\n", text):
                line = " ".join(paragraph.split())
                heading = HEADING.match(paragraph.strip())
                section = heading[1] if heading else section
                if _is_prose(line):
                    prose.append(Paragraph(path.stem, line, section))
    return prose


def _is_prose(line):
    """Return whether a line is a paragraph, rather than a row of a table, a heading or a label."""
    return not line.startswith("|") and len(line.split()) >= MIN_WORDS


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TextSet:
    """A text as bytes, from which a network learns to predict the next byte.

    The text is cut into pieces of `length` bytes; `len` is the number of pieces.

    text     uint8 (n,)
    split    "train" or "test"
    classes  the 256 values of a byte
    digest   sha256 of the text
    """

    text: torch.Tensor
    split: str
    length = 256
    name = COURSE_TEXT
    classes = range(256)

    def __len__(self):
        return (len(self.text) - 1) // self.length

    def __repr__(self):
        return f"{self.name} {self.split}: {len(self.text):,} bytes"

    @property
    def digest(self):
        return hashlib.sha256(self.text.numpy().tobytes()).hexdigest()

    @property
    def images(self):
        """Return the pieces, uint8 (N, length).

        The property is called `images` because every data set has its inputs under this name.
        """
        return self.text[:-1].unfold(0, self.length, self.length)

    def subset(self, n, **_):
        """Return a `TextSet` of the first `n` pieces."""
        require_items(self, n)
        return replace(self, text=self.text[: n * self.length + 1])

    def batches(self, batch, *, device=None, seed=None, **_):
        """Yield the batches (tokens, labels) of one epoch, both int64 (batch, length).

        The label of a token is the byte that follows it.

        seed  None: the pieces in order; the last batch may be smaller. A number: the pieces
              shuffled, without a last smaller batch. The number also draws the byte at which the
              first piece begins, so that the text is cut elsewhere in each epoch
        """
        import torch

        if seed is None:
            starts = torch.arange(len(self)) * self.length
        else:
            generator = torch.Generator().manual_seed(seed)
            room = len(self.text) - 1 - len(self) * self.length
            starts = torch.randperm(len(self), generator=generator) * self.length
            starts += torch.randint(room + 1, (), generator=generator)
            starts = starts[: len(self) // batch * batch]
        pieces = self.text.long().unfold(0, self.length + 1, 1)
        for chosen in starts.split(batch):
            piece = pieces[chosen].to(device)
            yield piece[:, :-1], piece[:, 1:]


def course_text(split):
    """Return a split of the course's text as a `TextSet`, one paragraph per line.

    Of every `HELD_OUT` paragraphs, one is in the split "test" and the others are in "train".
    """
    import torch

    lines = []
    for number, paragraph in enumerate(paragraphs()):
        held_out = number % HELD_OUT == 0
        if held_out == (split == "test"):
            lines.append(paragraph.text)
    text = "\n".join(lines).encode()
    return TextSet(text=torch.tensor(list(text), dtype=torch.uint8), split=split)
