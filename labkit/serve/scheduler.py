"""Continuous batching: in every turn it is decided anew which prompts are read and which texts go
on.

A turn writes one token for every text whose prompt is read, then reads up to `chunk` tokens of the
prompts that wait, oldest first; the last token of a prompt gives the first one of its answer. A
text that has ended makes room at once.
Source  Yu et al. 2022, Orca, OSDI; Agrawal et al. 2023, arXiv:2308.16369 (chunks)
"""

import traceback
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from labkit.models.decoder import Cache
from labkit.text.writing import chances, draw, nucleus


@dataclass(eq=False, kw_only=True)
class Request:
    """A text to go on with.

    prompt       its tokens, a list, at least one
    count        most tokens to write
    temperature  0: always the likeliest token
    top_p        draw from the fewest likeliest tokens that have this share, 0 to 1, of the
                 probability
    stops        lists of tokens; the first that is written ends the text, and is no part of the
                 answer
    tokens       what has been written
    answered     how many of `tokens` are the answer so far: without those that are, or may begin,
                 one of `stops`
    read         tokens of the prompt that are in the cache
    ended        None while it is worked on; "length", "stop", "gone" or "failed"
    """

    prompt: list
    count: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stops: list = field(default_factory=list)
    tokens: list = field(default_factory=list)
    answered: int = 0
    read: int = 0
    ended: str | None = None

    def __post_init__(self):
        self.generator = torch.Generator().manual_seed(self.seed)

    def take(self, logits):
        """Draw the next token from logits (1, classes); ValueError where one of them is NaN."""
        if logits.isnan().any():
            raise ValueError("the network answered NaN")
        probabilities = chances(logits, self.temperature)
        if self.top_p < 1:
            probabilities = nucleus(probabilities, self.top_p)
        self.tokens.append(int(draw(probabilities, self.generator)))

        # A stop ends the text before its first token; the beginning of one is no answer until it is
        # none.
        written = [len(stop) for stop in self.stops if self.tokens[-len(stop) :] == stop]
        if written:
            self.ended = "stop"
            self.answered = len(self.tokens) - max(written)
        elif len(self.tokens) == self.count:
            self.ended = "length"
            self.answered = len(self.tokens)
        else:
            self.answered = len(self.tokens) - self._begun()

    def _begun(self):
        """Return how many of the last tokens may become a stop: the longest beginning of one
        that stands at the end.
        """
        begun = 0
        for stop in self.stops:
            for length in range(1, min(len(stop), len(self.tokens) + 1)):
                if self.tokens[-length:] == stop[:length]:
                    begun = max(begun, length)
        return begun


class Writer:
    """A decoder with a cache of `rows` + 1 rows: the last one is for the prompt that is being
    read.
    """

    def __init__(self, decoder, rows=16, longest=None):
        self.decoder = decoder
        self.rows = rows
        self.cache = Cache(decoder, rows + 1, longest)
        self.desk = self.cache.rows(rows, rows + 1)

    def read(self, tokens, *, first):
        """Read more tokens of a prompt, `first`: of a new one. Returns logits (1, classes)."""
        if first:
            self.desk.lengths.zero_()
        return self.decoder.extend(torch.tensor([tokens]), self.desk)[:, -1]

    def seat(self, row):
        """Give the prompt that was read a row of its own."""
        self.cache.move(self.rows, row)

    def write(self, tokens):
        """Give one more token to each of the first n rows. Returns logits (n, classes)."""
        rows = self.cache.rows(0, len(tokens))
        return self.decoder.extend(torch.tensor(tokens)[:, None], rows)[:, -1]

    def move(self, source, target):
        """Let the text of one row go on in another."""
        self.cache.move(source, target)


class Scheduler:
    """Requests in, tokens out.

    writer   a `Writer`, or anything with its methods (a simulation)
    chunk    most tokens of prompts that are read in a turn
    waiting  requests whose prompt is not read, oldest first
    writing  those that are written for; their place is their row
    """

    def __init__(self, writer, *, chunk=64):
        self.writer = writer
        self.chunk = chunk
        self.waiting = deque()
        self.writing = []

    def add(self, request):
        self.waiting.append(request)

    def busy(self):
        return bool(self.waiting or self.writing)

    def turn(self):
        """Write a token for each text, then read a chunk.

        Returns the requests that have a new token, a list, and those that failed: an error, such as
        one of the memory that is full, ends the texts that it concerns, and nobody else's.
        """
        self._leave()
        changed = self._write()
        self._leave()
        return changed + self._read()

    def _write(self):
        """Write one more token for each text. Returns their requests."""
        changed = list(self.writing)
        if changed:
            with self._failing(*changed):
                logits = self.writer.write([request.tokens[-1] for request in changed])
                for request, row in zip(changed, logits, strict=True):
                    with self._failing(request):
                        request.take(row[None])
        return changed

    def _read(self):
        """Read prompts, up to a chunk. Returns the requests that have got their first token."""
        budget = self.chunk
        started = []
        while budget and self.waiting and len(self.writing) < self.writer.rows:
            request = self.waiting[0]
            tokens = request.prompt[request.read : request.read + budget]
            budget -= len(tokens)
            with self._failing(request):
                logits = self.writer.read(tokens, first=request.read == 0)
                request.read += len(tokens)

                # The last token of a prompt gives the first one of the answer.
                if request.read == len(request.prompt):
                    request.take(logits)
                    self.writer.seat(len(self.writing))
                    self.writing.append(request)
            if request.tokens or request.ended:
                self.waiting.popleft()
                started.append(request)
        return started

    @contextmanager
    def _failing(self, *requests):
        """End these requests where an error is raised, and print it for whoever runs the server."""
        try:
            yield
        except Exception:  # whatever a model or its memory raises
            traceback.print_exc()
            for request in requests:
                request.ended = "failed"

    def _leave(self):
        """Let those go that have ended; the last row takes the place of each."""
        self.waiting = deque(request for request in self.waiting if not request.ended)
        for row in reversed(range(len(self.writing))):
            if self.writing[row].ended:
                last = self.writing.pop()
                if row < len(self.writing):
                    self.writing[row] = last
                    self.writer.move(len(self.writing), row)
