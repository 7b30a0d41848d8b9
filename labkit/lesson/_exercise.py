"""An exercise in the reader's hands: checked, whatever the answer does, and the lesson goes on.

`LABKIT_STRICT=1` turns an unsolved or wrong exercise into an error.
"""

import contextlib
import io
import os
import signal
import threading
import traceback
from dataclasses import dataclass

from labkit import ledger
from labkit.errors import LessonError
from labkit.ledger.rows import Answer
from labkit.lesson import cards, exercises
from labkit.lesson._run import current

LONGEST_S = 60  # a check of a right answer takes a few seconds
MOST_CHARACTERS = 4000  # of what an answer prints; the card shows the first 20 lines of them


class _TooLong(BaseException):
    """Time is up; no Exception, so that an answer that catches those does not catch this."""


class _Beginning(io.StringIO):
    """The beginning of what is printed: an answer that prints in an endless loop would fill the memory."""

    def write(self, text):
        return super().write(text[: MOST_CHARACTERS - self.tell()])


def exercise(exercise_id):
    """The exercise of that id; call `.check(your_answer)` on it."""
    return Task(exercises.find(exercise_id))


@dataclass(frozen=True)
class Task:
    """An exercise in the reader's hands."""

    exercise: exercises.Exercise

    def check(self, answer):
        """Check the answer, show verdict and hint, and return what later cells should use.

        returns  the answer when it passes, else the reference answer
        raises   LessonError when it does not pass and LABKIT_STRICT=1
        """
        printed = _Beginning()
        with contextlib.redirect_stdout(printed):
            verdict, message = verdict_on(lambda: answer, self.exercise.verify)
        row = Answer(run_key=current().run_key, exercise_id=self.exercise.id, verdict=verdict, message=message or None)
        ledger.add(row)
        cards.show("checked", self.exercise, row, printed.getvalue())
        if verdict == "passed":
            return answer
        if os.environ.get("LABKIT_STRICT") == "1":
            raise LessonError(f"Exercise {self.exercise.id!r} is {verdict}: {message}", fix=self.exercise.hint)
        return self.exercise.reference


def verdict_on(make, verify):
    """("passed" | "wrong" | "unsolved", message) of the answer that `make()` returns, whatever it does."""
    try:
        with _time_limit(LONGEST_S):
            answer = make()
            if exercises.is_stub(answer):
                return "unsolved", "Nothing here yet. The reference answer is used below: read on, and come back."
            verify(answer)
    except NotImplementedError:
        return "unsolved", "Not written yet. The reference answer is used below."
    except exercises.Wrong as error:
        return "wrong", str(error)
    except _TooLong:
        return "wrong", f"Your answer had not finished after {LONGEST_S} seconds. Does a loop never end?"
    except KeyboardInterrupt:
        if not cards.interactive():
            raise
        return "wrong", "You stopped your answer before it had finished. The reference answer is used below."
    except BaseException as error:  # an answer may raise anything, and the lesson goes on
        return "wrong", f"Your answer raised {''.join(traceback.format_exception_only(error)).strip()}"
    return "passed", ""


@contextlib.contextmanager
def _time_limit(seconds):
    """Raise `_TooLong` inside after so many seconds, in the main thread, which alone hears signals; not on Windows."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(signum, frame):
        raise _TooLong

    handler = signal.signal(signal.SIGALRM, stop)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)  # a timer that ran before runs on
        signal.signal(signal.SIGALRM, handler)
