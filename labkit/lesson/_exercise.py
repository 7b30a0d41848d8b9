"""An exercise in the reader's hands: checked, whatever the answer does, and the lesson goes on."""

import contextlib
import io
import linecache
import os
import pickle
import random
import signal
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

from labkit import ledger
from labkit.ledger.rows import Answer
from labkit.lesson import cards, exercises
from labkit.lesson._run import current

LONGEST_S = 60  # of computing: a busy machine takes nothing from them; a check of a right answer takes a few seconds
MOST_CHARACTERS = 4000  # of what an answer prints; the card shows the first 20 lines of them


class _TooLong(BaseException):
    """Time is up; no Exception, so that an answer that catches those does not catch this."""


class _Beginning(io.StringIO):
    """The beginning of what is printed: an answer that prints in an endless loop would fill the memory."""

    def write(self, text):
        return super().write(text[: MOST_CHARACTERS - self.tell()])


def exercise(exercise_id: str) -> "Task":
    """The exercise of that id; call `.check(your_answer)` on it."""
    return Task(exercises.find(exercise_id))


@dataclass(frozen=True)
class Task:
    """An exercise in the reader's hands."""

    exercise: exercises.Exercise

    def check(self, answer):
        """Check the answer, show verdict and hint, and return what later cells should use.

        returns  the answer when it passes, else the reference answer
        """
        with _caught() as printed:
            verdict, message = verdict_on(lambda: answer, self.exercise.verify)
        row = Answer(run_key=current().run_key, exercise_id=self.exercise.id, verdict=verdict, message=message or None)
        ledger.add(row)
        cards.show("checked", self.exercise, row, printed.getvalue())
        return answer if verdict == "passed" else self.exercise.reference

    def solution(self):
        """Print the reference answer, for a reader who asks for it."""
        print(self.exercise.solution or "This is a student edition: it has no solutions.")


def verdict_on(make, verify):
    """("passed" | "wrong" | "unsolved", message) of the answer that `make()` returns, whatever it does."""
    with _put_back() as changed:
        verdict, message = _verdict_on(make, verify)
    if changed:
        note = f"Your answer changed {', '.join(changed)} for the whole notebook; the check put it back."
        message = f"{message or 'It passes.'} {note}"
    return verdict, message


def _verdict_on(make, verify):
    try:
        with _time_limit(LONGEST_S):
            answer = make()
            if exercises.is_stub(answer):
                return "unsolved", "Nothing here yet. The reference answer is used below: read on, and come back."
            verify(answer)
    except exercises.Wrong as error:
        return "wrong", str(error)
    except _TooLong as late:
        said = f"Your answer had not finished after {LONGEST_S} seconds of computing{_line(late)}."
        return "wrong", f"{said} Does a loop never end?"
    except KeyboardInterrupt:
        if not cards.interactive():
            raise
        return "wrong", "You stopped your answer before it had finished. The reference answer is used below."
    except BaseException as error:  # an answer may raise anything, and the lesson goes on
        if isinstance(error, NotImplementedError) and not error.args:  # torch raises it, too, and says for what
            return "unsolved", "Not written yet. The reference answer is used below."
        told = "".join(traceback.format_exception_only(error)).strip().removesuffix(":")
        return "wrong", f"Your answer raised {told}{_line(error)}"
    return "passed", ""


def _line(error):
    """Where the reader's own code was when this was raised: ", in line 3: return x + y", or ""."""
    steps = [step for step in traceback.walk_tb(error.__traceback__) if step[0].f_globals["__name__"] == "__main__"]
    if not steps:
        return ""
    frame, number = steps[-1]
    return f", in line {number}: {linecache.getline(frame.f_code.co_filename, number).strip()}"


@contextlib.contextmanager
def _caught():
    """The beginning of what is printed, on stderr too; what goes past Python's own streams is dropped."""
    printed, own = _Beginning(), (os.dup(1), os.dup(2))
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield printed
    finally:
        for stream, copy in enumerate(own, start=1):
            os.dup2(copy, stream)
            os.close(copy)


@contextlib.contextmanager
def _put_back():
    """Put back what an answer changes for the whole process; the list given is filled with the names of that."""
    import numpy as np
    import torch

    def environment():  # without what torch.compile notes there by itself
        return {name: text for name, text in os.environ.items() if not name.startswith("TORCHINDUCTOR_")}

    def put_environment(before):
        for name in environment().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)

    settings = {
        "torch's seed": (torch.initial_seed, lambda before: None),  # with the state of the random numbers, below
        "NumPy's random numbers": (  # as bytes: they can be compared
            lambda: pickle.dumps(np.random.get_state()),  # noqa: NPY002
            lambda before: np.random.set_state(pickle.loads(before)),  # noqa: NPY002
        ),
        "Python's random numbers": (random.getstate, random.setstate),
        "torch's threads": (torch.get_num_threads, torch.set_num_threads),
        "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "torch's grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        "the working folder": (os.getcwd, os.chdir),
        "environment variables": (environment, put_environment),
    }
    before = {name: get() for name, (get, _) in settings.items()}
    changed = []
    with torch.random.fork_rng(devices=[]):
        try:
            yield changed
        finally:
            for name, (get, put) in settings.items():
                if get() != before[name]:
                    changed.append(name)
                    put(before[name])


@contextlib.contextmanager
def _time_limit(seconds):
    """Raise `_TooLong` inside after so many seconds of computing, in the main thread, which alone hears signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum, frame):
        raise _TooLong

    handler = signal.signal(signal.SIGPROF, stop)
    left, _ = signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, left)  # a timer that ran before runs on
        signal.signal(signal.SIGPROF, handler)
