"""The judge of the capstone: holds the clock and the labels, and asks submissions that processes of their own serve."""

import math
import secrets
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labkit import engines
from labkit.errors import LabError, require_known
from labkit.ship import gates
from labkit.ship._child import Server, reason_of
from labkit.ship.order import REFERENCE, SHAPE, Exam, Submission, draw_exam

BATCH = 32  # pictures per call where no time is taken
WARM = 10  # calls before the first that counts


@dataclass
class Entry:
    """One submission while it is judged, and what was seen of it.

    refused            why it is out, or None
    times              seconds that its process computed per timed call; where the system does not tell, that passed
    computed           seconds that its process had computed when the last call was over
    alone              its answers to the timed pictures, one per call
    answers            (2 n, 10) its answers to all pictures, in batches
    reference_answers  (rounds, 10) what the file as it is written answers to the timed pictures
    """

    submission: Submission
    child: Server
    content: bytes = b""
    precision: str | None = None
    refused: str | None = None
    times: list = field(default_factory=list)
    computed: float | None = None
    alone: list = field(default_factory=list)
    answers: object = None
    reference_answers: object = None


class Judged(NamedTuple):
    """What the judge saw. `again` is a second process of the reference network: between the two there is only noise."""

    entries: list
    reference: Entry
    again: Entry
    exam: Exam
    seed: int


def judge(submissions, size, seed=None):
    """Ask all submissions and the reference network the pictures of one exam: a `Judged`.

    The exam is drawn when everything of every submission has been loaded. What goes wrong with one puts it out alone.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        reference = folder / "reference.onnx"
        reference.write_bytes(reference_bytes())
        handed_in = [Submission(reference), Submission(reference), *submissions]
        entries = [Entry(submission, stack.enter_context(closing(Server()))) for submission in handed_in]
        for number, entry in enumerate(entries):
            _try(entry, _load, folder / f"{number}.onnx")
        seed = secrets.randbits(31) if seed is None else seed
        exam = draw_exam(size.images, seed)
        chance = np.random.default_rng(seed)
        timed = chance.permutation(len(exam.pictures))[: size.rounds]
        for picture in timed:
            for place in chance.permutation(len(entries)):
                _try(entries[place], _time, exam.pictures[[picture]])
        for entry in entries:
            _try(entry, _ask, exam.pictures, timed)
        judged = Judged(entries[2:], entries[0], entries[1], exam, seed)
        for entry in (judged.reference, judged.again):
            if entry.refused:
                raise LabError("The reference network cannot be served.", found=entry.refused)
        for entry in judged.entries:
            _try(entry, _weigh, judged, timed)
    return judged


@cache
def reference_bytes() -> bytes:
    """The reference network as the bytes of an ONNX file."""
    import torch

    from labkit.export import to_onnx
    from labkit.models.trained import trained

    with tempfile.TemporaryDirectory() as folder:
        return to_onnx(trained(REFERENCE)[0], torch.zeros(1, *SHAPE), Path(folder) / "reference.onnx").read_bytes()


def _try(entry, step, *arguments):
    """Take a step for an entry that is still in; what goes wrong puts it out."""
    if entry.refused is None:
        try:
            step(entry, *arguments)
        except (LabError, OSError) as error:
            entry.refused = reason_of(error)


def _load(entry, copy):
    """Let the child load a copy of the file, and answer for the first times."""
    engine = entry.submission.engine
    require_known(engine, engines.names(runs="onnx"), "engine")
    entry.content = Path(entry.submission.path).read_bytes()
    copy.write_bytes(entry.content)
    entry.precision = entry.child.load(copy, engine)
    for _ in range(WARM):
        entry.child.answer(np.zeros((1, *SHAPE), np.float32))
    entry.computed = entry.child.computed()


def _time(entry, picture):
    """One timed call. What the child computes after its answer, too, is counted: in this call or in the next."""
    begin = time.perf_counter()
    entry.alone.append(entry.child.answer(picture)[0])
    spent = time.perf_counter() - begin
    before, entry.computed = entry.computed, entry.child.computed()
    entry.times.append(spent if None in (before, entry.computed) else entry.computed - before)


def _ask(entry, pictures, timed):
    """Ask all pictures in batches; the file as it is written only the timed ones."""
    entry.answers = _answers(pictures, entry.child.answer)
    entry.reference_answers = _answers(pictures[timed], partial(entry.child.answer, as_written=True))


def _answers(pictures, answer):
    parts = np.array_split(pictures, math.ceil(len(pictures) / BATCH))
    return np.concatenate([answer(part) for part in parts])


def _weigh(entry, judged, timed):
    """The gates that look at the answers."""
    gates.require_steady(entry.answers[timed], np.array(entry.alone))
    gates.require_meaning(entry.reference_answers, entry.answers[timed])
    right = judged.exam.right(entry.answers)
    gates.require_unseen(right, judged.exam.right(judged.reference.answers), judged.exam)
