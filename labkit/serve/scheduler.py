"""Batch continuously: decide in every turn which prompts are read and which texts go on.

A turn writes one token for every text whose prompt is read. Then it reads up to `chunk` tokens of
the prompts that wait, oldest first; the last token of a prompt gives the first token of its answer.
A text that has ended frees its row of the cache before the next turn.
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
    count        most tokens to write
    temperature  0: always the likeliest token
    top_p        draw from the fewest likeliest tokens that have together this share, 0 to 1, of the
                 probability
    seed         of the random numbers
    stops        lists of tokens; the first that is written ends the text, and is no part of the
                 answer
    tokens       the tokens written so far
    answered     number of `tokens` that belong to the answer for sure; tokens at the end that are,
                 or may become, one of `stops` do not count
    read         number of tokens of the prompt that are in the cache
    ended        None until the text has ended; then "length", "stop", "gone" or "failed"
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

        logits  (1, classes)
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
        """Return how many tokens at the end may become a stop: they are the beginning of one."""
        begun = 0
        for stop in self.stops:
            for length in range(1, min(len(stop), len(self.tokens) + 1)):
                if self.tokens[-length:] == stop[:length]:
                    begun = max(begun, length)
        return begun


class Writer:
    """A decoder with a cache of `rows` + 1 rows: one per text, the last for the prompt being read.

    longest  most tokens of a row; None: the decoder's own limit
    """

    def __init__(self, decoder, rows=16, longest=None):
        self.decoder = decoder
        self.rows = rows
        self.cache = Cache(decoder, rows + 1, longest)
        self.desk = self.cache.rows(rows, rows + 1)

    def read(self, tokens, *, first):
        """Read more tokens of a prompt into the last row of the cache. Returns logits (1, classes).

        first  whether they begin a new prompt
        """
        if first:
            self.desk.lengths.zero_()
        return self.decoder.extend(torch.tensor([tokens]), self.desk)[:, -1]

    def seat(self, row):
        """Move the prompt that was read to a row of its own."""
        self.cache.move(self.rows, row)

    def write(self, tokens):
        """Append a token to each of the first n rows. Returns the next logits (n, classes).

        tokens  list of n tokens
        """
        rows = self.cache.rows(0, len(tokens))
        return self.decoder.extend(torch.tensor(tokens)[:, None], rows)[:, -1]

    def move(self, source, target):
        """Move a text from one row of the cache to another."""
        self.cache.move(source, target)


class Scheduler:
    """Decide in each turn what the network computes, for all requests that were added.

    writer   a `Writer`, or anything with its methods (a simulation)
    chunk    most tokens of prompts that are read in a turn
    waiting  requests whose prompt is not read to its end, oldest first
    writing  requests whose text is being written; index in the list = row of the cache
    """

    def __init__(self, writer, *, chunk=64):
        self.writer = writer
        self.chunk = chunk
        self.waiting = deque()
        self.writing = []

    def add(self, request):
        """Add a request to those that wait."""
        self.waiting.append(request)

    def busy(self):
        """Return whether there is anything to do."""
        return bool(self.waiting or self.writing)

    def turn(self):
        """Write a token for each text, then read a chunk of the waiting prompts.

        An error, such as one of full memory, ends only the requests that were being computed.

        returns  list of the requests that have a new token, and of those that failed
        """
        self._remove_ended()
        changed = self._write()
        self._remove_ended()
        return changed + self._read()

    def _write(self):
        """Write one more token for each text, and return the requests of these texts."""
        changed = list(self.writing)
        if changed:
            with self._failures_contained(*changed):
                logits = self.writer.write([request.tokens[-1] for request in changed])
                for request, row in zip(changed, logits, strict=True):
                    with self._failures_contained(request):
                        request.take(row[None])
        return changed

    def _read(self):
        """Read prompts, `chunk` tokens in all, and return the requests that have their first token.

        Requests that failed are returned, too.
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
        """Mark requests as failed where the body raises; print the error for the operator."""
        try:
            yield
        except Exception:  # whatever a model or its memory raises
            traceback.print_exc()
            for request in requests:
                request.ended = "failed"

    def _remove_ended(self):
        """Remove the requests that have ended; the text of the last row moves to each free row."""
        self.waiting = deque(request for request in self.waiting if not request.ended)
        for row in reversed(range(len(self.writing))):
            if self.writing[row].ended:
                last = self.writing.pop()
                if row < len(self.writing):
                    self.writing[row] = last
                    self.writer.move(len(self.writing), row)
