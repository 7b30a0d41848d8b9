"""Hold the lesson that this kernel is running."""

import os
import time
import uuid
from dataclasses import dataclass

from labkit.errors import LessonError
from labkit.files import artifacts

_lesson = None  # set by `begin`


@dataclass(frozen=True)
class Lesson:
    """The running lesson: its notebook, profile and seed, and the key of its run in the ledger."""

    notebook: str
    profile: str
    seed: int
    run_key: str
    started: float  # time.monotonic()

    @property
    def folder(self):
        """Return the folder for this lesson's files, artifacts/NOTEBOOK; it is made if missing."""
        folder = artifacts() / self.notebook
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def batch_key(self):
        """Return the key of the batch of `labkit run` that this run is part of, or None.

        A run of a batch has the key BATCH_KEY/NAME.
        """
        batch_key, slash, _ = self.run_key.partition("/")
        return batch_key if slash else None

    def choose(self, *, quick, lab, paper=None):
        """Return the one of three values that belongs to this lesson's profile.

        paper  value for the profile "paper"; None: the value of `lab`
        """
        return {"quick": quick, "lab": lab, "paper": lab if paper is None else paper}[self.profile]


def begin(notebook, profile, seed):
    """Make a new `Lesson`, which becomes the running lesson of this kernel, and return it."""
    global _lesson
    key = os.environ.get("LABKIT_RUN_KEY") or f"{notebook}-{uuid.uuid4().hex[:12]}"
    _lesson = Lesson(notebook, profile, seed, key, time.monotonic())
    return _lesson


def current():
    """Return the running lesson; LessonError before `start` was called."""
    if _lesson is None:
        raise LessonError(
            "No lesson has begun.", fix="run the cell that calls start(...), near the top, first"
        )
    return _lesson
