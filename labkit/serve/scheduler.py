"""Batch continuously: decide again for each step of the network which texts it works on.

A step is called a turn. A turn first writes one token for every text whose prompt has been read.
Then it reads up to `chunk` tokens of waiting prompts, the oldest first. Reading the last token of a
prompt gives the first token of its answer. The cache of the decoder has a row for each text; a text
that has ended frees its row before the next turn.

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
    """A text to continue.

    prompt       list of at least one token
    count        largest number of tokens to write
    temperature  divides the logits; 0: always the likeliest token
    top_p        draw only from the likeliest tokens, as few of them as together have this
                 probability
    seed         seed of the random numbers
    stops        lists of tokens; the first of them that is written ends the text, and is no part of
                 the answer
    tokens       the tokens written so far
    answered     number of `tokens` that certainly belong to the answer. If the last tokens may be
                 the beginning of a stop, they are not counted yet
    read         number of tokens of the prompt that are in the cache
    ended        None until the text has ended; then "length", "stop", "gone" (the client has left)
                 or "failed"
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
        """Draw the next token, and update `tokens`, `answered` and `ended`.

        logits  (1, classes) of the next token
        Raises  ValueError for NaN among the logits
        """
        if logits.isnan().any():
            raise ValueError("the network answered NaN")
        probabilities = chances(logits, self.temperature)
        if self.top_p < 1:
            probabilities = nucleus(probabilities, self.top_p)
        self.tokens.append(int(draw(probabilities, self.generator)))

        # The answer ends before a stop. Tokens that may be the beginning of a stop are held back
        # until a later token shows that they are not.
        written = [len(stop) for stop in self.stops if self.tokens[-len(stop) :] == stop]
        if written:
            self.ended = "stop"
            self.answered = len(self.tokens) - max(written)
        elif len(self.tokens) == self.count:
            self.ended = "length"
            self.answered = len(self.tokens)
        else:
            self.answered = len(self.tokens) - self._possible_stop()

    def _possible_stop(self):
        """Return how many of the last tokens may be the beginning of a stop."""
        begun = 0
        for stop in self.stops:
            for length in range(1, min(len(stop), len(self.tokens) + 1)):
                if self.tokens[-length:] == stop[:length]:
                    begun = max(begun, length)
        return begun


class Writer:
    """A decoder with a cache of `rows` + 1 rows: one row for each text that is being written.

    The last row holds the prompt that is being read.

    longest  largest number of tokens of a row; None: the decoder's own limit
    """

    def __init__(self, decoder, rows=16, longest=None):
        self.decoder = decoder
        self.rows = rows
        self.cache = Cache(decoder, rows + 1, longest)
        self.desk = self.cache.rows(rows, rows + 1)

    def read(self, tokens, *, first):
        """Read tokens of a prompt into the last row of the cache. Returns logits (1, classes).

        tokens  list of tokens
        first   True: they begin a new prompt, so the row is emptied first
        """
        if first:
            self.desk.lengths.zero_()
        return self.decoder.extend(torch.tensor([tokens]), self.desk)[:, -1]

    def seat(self, row):
        """Move the prompt in the last row of the cache, which has been read, to row `row`."""
        self.cache.move(self.rows, row)

    def write(self, tokens):
        """Append one token to each of the first n rows of the cache. Returns logits (n, classes).

        tokens  list of n tokens
        """
        rows = self.cache.rows(0, len(tokens))
        return self.decoder.extend(torch.tensor(tokens)[:, None], rows)[:, -1]

    def move(self, source, target):
        """Move a text from one row of the cache to another."""
        self.cache.move(source, target)


class Scheduler:
    """Decide for each turn which prompts are read and which texts get a token.

    writer   a `Writer`, or an object with the same methods, such as a simulation
    chunk    largest number of tokens of prompts that are read in a turn
    waiting  requests whose prompt has not been read to its end, the oldest first
    writing  requests whose text is being written; a request's index in the list is its row of the
             cache
    """

    def __init__(self, writer, *, chunk=64):
        self.writer = writer
        self.chunk = chunk
        self.waiting = deque()
        self.writing = []

    def add(self, request):
        """Add a request to the waiting ones."""
        self.waiting.append(request)

    def busy(self):
        """Return whether a request waits or a text is being written."""
        return bool(self.waiting or self.writing)

    def turn(self):
        """Write a token for each text, then read a chunk of the waiting prompts.

        If the network raises an error, for example because memory is full, only the requests that
        it was working on fail.

        returns  list of the requests that have a new token, and of those that failed
        """
        self._remove_ended()
        changed = self._write()
        self._remove_ended()
        return changed + self._read()

    def _write(self):
        """Write one more token for each text. Returns the list of their requests."""
        changed = list(self.writing)
        if changed:
            with self._failures_contained(*changed):
                logits = self.writer.write([request.tokens[-1] for request in changed])
                for request, row in zip(changed, logits, strict=True):
                    with self._failures_contained(request):
                        request.take(row[None])
        return changed

    def _read(self):
        """Read waiting prompts, `chunk` tokens in all, while there are free rows.

        Returns a list of the requests whose prompt has been read to its end, which have their first
        token, and of those that failed.
        """
        budget = self.chunk
        started = []
        while budget and self.waiting and len(self.writing) < self.writer.rows:
            request = self.waiting[0]
            tokens = request.prompt[request.read : request.read + budget]
            budget -= len(tokens)
            with self._failures_contained(request):
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
    def _failures_contained(self, *requests):
        """Set `ended` of requests to "failed" if the `with` block raises, and print the error.

        The error is not raised further.
        """
        try:
            yield
        except Exception:  # whatever a model or its memory raises
            traceback.print_exc()
            for request in requests:
                request.ended = "failed"

    def _remove_ended(self):
        """Remove the requests that have ended, and fill the rows of the cache that become free.

        The text of the last row moves to the free row, so that the texts always use the first rows.
        """
        self.waiting = deque(request for request in self.waiting if not request.ended)
        for row in reversed(range(len(self.writing))):
            if self.writing[row].ended:
                last = self.writing.pop()
                if row < len(self.writing):
                    self.writing[row] = last
                    self.writer.move(len(self.writing), row)
