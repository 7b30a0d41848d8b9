"""Continuous batching: who is read, who is written for, and when, decided anew in every turn.

A turn writes one token for every text whose prompt is read, then reads up to `chunk` tokens of the prompts that wait,
oldest first; the last token of a prompt gives the first one of its answer. A text that has ended makes room at once.
Source  Yu et al. 2022, Orca, OSDI; Agrawal et al. 2023, arXiv:2308.16369 (chunks)
"""

from collections import deque
from dataclasses import dataclass, field

import torch

from labkit.models.decoder import Cache
from labkit.text.writing import chances, draw


@dataclass(eq=False, kw_only=True)
class Request:
    """A text to go on with.

    prompt       its tokens, a list, at least one
    count        most tokens to write
    stop         the token that ends the text, or None
    tokens       what has been written
    read         tokens of the prompt that are in the cache
    ended        None while it is worked on; "length", "stop" or "gone"
    """

    prompt: list
    count: int
    temperature: float = 0.0
    seed: int = 0
    stop: int | None = None
    tokens: list = field(default_factory=list)
    read: int = 0
    ended: str | None = None

    def __post_init__(self):
        self.random = torch.Generator().manual_seed(self.seed)

    def take(self, logits):
        """Draw the next token from logits (1, classes)."""
        token = int(draw(chances(logits, self.temperature), self.random))
        self.tokens.append(token)
        if token == self.stop:
            self.ended = "stop"
        elif len(self.tokens) == self.count:
            self.ended = "length"


class Writer:
    """A decoder with a cache of `rows` + 1 rows: the last one is for the prompt that is being read."""

    def __init__(self, decoder, rows=16, longest=None):
        self.decoder, self.rows = decoder, rows
        self.cache = Cache(decoder, rows + 1, longest)
        self.desk = self.cache.part(rows, rows + 1)

    def read(self, tokens, *, first):
        """(1, classes) logits after more tokens of a prompt; `first`: of a new one."""
        if first:
            self.desk.lengths.zero_()
        return self.decoder.extend(torch.tensor([tokens]), self.desk)[:, -1]

    def seat(self, row):
        """Give the prompt that was read a row of its own."""
        self.cache.move(self.rows, row)

    def write(self, tokens):
        """(n, classes) logits after one more token for each of the first n rows."""
        return self.decoder.extend(torch.tensor(tokens)[:, None], self.cache.part(0, len(tokens)))[:, -1]

    def move(self, source, target):
        """The text of one row goes on in another."""
        self.cache.move(source, target)


class Scheduler:
    """Requests in, tokens out.

    writer   a `Writer`, or anything with its methods (a simulation)
    chunk    most tokens of prompts that are read in a turn
    waiting  requests whose prompt is not read, oldest first
    writing  those that are written for; their place is their row
    """

    def __init__(self, writer, *, chunk=64):
        self.writer, self.chunk = writer, chunk
        self.waiting, self.writing = deque(), []

    def add(self, request):
        self.waiting.append(request)

    def busy(self):
        return bool(self.waiting or self.writing)

    def turn(self):
        """Write a token for each text, read a chunk: the requests that have a new token, a list."""
        self._leave()
        changed = self._write()
        self._leave()
        return changed + self._read()

    def _write(self):
        """A token more for each text: the requests."""
        answers = self.writer.write([each.tokens[-1] for each in self.writing]) if self.writing else []
        for request, logits in zip(self.writing, answers, strict=True):
            request.take(logits[None])
        return list(self.writing)

    def _read(self):
        """Read prompts, up to a chunk: the requests that have got their first token."""
        budget, begun = self.chunk, []
        while budget and self.waiting and len(self.writing) < self.writer.rows:
            request = self.waiting[0]
            part = request.prompt[request.read : request.read + budget]
            logits = self.writer.read(part, first=request.read == 0)
            request.read, budget = request.read + len(part), budget - len(part)
            if request.read == len(request.prompt):
                self.waiting.popleft()
                self.writer.seat(len(self.writing))
                self.writing.append(request)
                request.take(logits)
                begun.append(request)
        return begun

    def _leave(self):
        """Let those go that have ended; the last row takes the place of each."""
        self.waiting = deque(each for each in self.waiting if not each.ended)
        for row in reversed(range(len(self.writing))):
            if self.writing[row].ended:
                last = self.writing.pop()
                if row < len(self.writing):
                    self.writing[row] = last
                    self.writer.move(len(self.writing), row)
