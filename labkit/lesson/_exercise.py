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
from labkit.files import write_text
from labkit.ledger.rows import Answer
from labkit.lesson import cards, exercises
from labkit.lesson._run import current

# of computing: a busy machine takes nothing from them; a check of a right answer takes a few
# seconds
LONGEST_S = 60
MAX_CHARACTERS = 4000  # of what an answer prints; the card shows the first 20 lines of them


class _TooLong(BaseException):
    """Time is up; no Exception, so that an answer that catches those does not catch this."""


class _Beginning(io.StringIO):
    """The beginning of what is printed: an answer that prints in an endless loop would fill the
    memory.
    """

    def write(self, text):
        return super().write(text[: MAX_CHARACTERS - self.tell()])


def exercise(exercise_id: str) -> "Task":
    """Return the exercise of that id: `.show()` says what to write, `.check(answer)` judges it,
    `.hint()` helps.
    """
    return Task(exercises.find(exercise_id))


@dataclass(frozen=True)
class Task:
    """An exercise in the reader's hands."""

    exercise: exercises.Exercise

    def show(self):
        """Show what to write, and its difficulty, importance and minutes."""
        cards.show("task", self.exercise)

    def check(self, answer):
        """Check the answer, show verdict and hint, and return what later cells should use.

        answer   a function, a class or a value; of an exercise that is a script, the path of its
                 file
        returns  the answer when it passes or is not checked here, else the reference answer; of a
                 script the path of one or the other
        """
        if self._is_script(answer):
            return self._check_script(Path(answer))
        if self._judge(answer) in ("passed", "not checked"):
            return answer
        return self.exercise.stand_in()

    def _is_script(self, answer):
        """Return whether the exercise is a script: its reference says so, or in a student
        edition its answer.
        """
        if self.exercise.reference is None:
            return isinstance(answer, str | Path) and Path(answer).suffix == ".py"
        return isinstance(self.exercise.reference, exercises.Script)

    def _check_script(self, path):
        """Check a script by its path; returns that path, or that of the reference, which is
        written beside it.
        """
        script = None
        if path.is_file():
            script = exercises.Script(path.read_text(encoding="utf-8", errors="replace"))
        if self._judge(script) in ("passed", "not checked"):
            return path
        reference = path.with_name(f"{path.stem}_reference.py")
        write_text(reference, str(self.exercise.stand_in()))
        return reference

    def _judge(self, answer):
        """Check the answer, keep and show the verdict, and return it."""
        with _caught() as printed:
            verdict, message = verdict_on(lambda: answer, self.exercise.verify)
        row = Answer(
            run_key=current().run_key,
            exercise_id=self.exercise.id,
            verdict=verdict,
            message=message or None,
        )
        ledger.add(row)
        cards.show("checked", self.exercise, row, printed.getvalue())
        return verdict

    def hint(self):
        """Show the idea, without the code, for a reader who asks for it."""
        cards.show("hint", self.exercise)

    def solution(self):
        """Print the reference answer, for a reader who asks for it."""
        print(self.exercise.solution or "This is a student edition: it has no solutions.")


def verdict_on(make, verify):
    """Judge the answer that `make()` returns: ("passed" | "wrong" | "unsolved" | "not checked",
    message).
    """
    with _put_back() as changed:
        verdict, message = _verdict_on(make, verify)
    if changed:
        note = (
            f"Your answer changed {', '.join(changed)} for the whole notebook; the "
            "check put it back."
        )
        message = f"{message or 'It passes.'} {note}"
    return verdict, message


def _verdict_on(make, verify):
    """Do what `verdict_on` says; an answer that is wrong, and has a stub in it that is not
    written yet, is unsolved.
    """
    verdict, message, answer = _tried(make, verify)
    stub = exercises.unwritten(answer) if verdict == "wrong" else None
    if stub is None:
        return verdict, message
    return "unsolved", f"Your code is still missing in {stub}."


def _tried(make, verify):
    """Return (verdict, message, answer); the answer is None where it could not be made."""
    answer = None
    try:
        with _time_limit(LONGEST_S):
            answer = make()
            if exercises.is_stub(answer):
                return "unsolved", "Nothing here yet.", answer
            verify(answer)
    except exercises.Wrong as error:
        return "wrong", str(error), answer
    except exercises.NotChecked as error:
        return "not checked", str(error), answer
    except _TooLong as late:
        message = (
            f"Your answer had not finished after {LONGEST_S} seconds of computing{_line(late)}."
        )
        return "wrong", f"{message} Does a loop never end?", answer
    except KeyboardInterrupt:
        if not cards.interactive():
            raise
        return "wrong", "You stopped your answer before it had finished.", answer
    except BaseException as error:  # an answer may raise anything, and the lesson goes on
        # torch raises it, too, and says for what
        if isinstance(error, NotImplementedError) and not error.args:
            return "unsolved", "Not written yet.", answer
        description = "".join(traceback.format_exception_only(error)).strip().removesuffix(":")
        return "wrong", f"Your answer raised {description}{_line(error)}", answer
    return "passed", "", answer


def _line(error):
    """Say where the reader's own code was when this was raised: ", in line 3: return x + y", or
    "".
    """
    innermost = None
    for frame, line_number in traceback.walk_tb(error.__traceback__):
        if frame.f_globals["__name__"] == "__main__":
            innermost = frame.f_code.co_filename, line_number
    if innermost is None:
        return ""
    file_name, line_number = innermost
    return f", in line {line_number}: {linecache.getline(file_name, line_number).strip()}"


@contextlib.contextmanager
def _caught():
    """Yield the beginning of what is printed, on stderr too; what goes past Python's own streams
    is dropped.
    """
    printed = _Beginning()
    copies = (os.dup(1), os.dup(2))  # of stdout and stderr
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield printed
    finally:
        for stream, copy in enumerate(copies, start=1):
            os.dup2(copy, stream)
            os.close(copy)


@contextlib.contextmanager
def _put_back():
    """Put back what an answer changes for the whole process.

    Yields a list that is then filled with the names of it.
    """
    import numpy as np
    import torch

    def environment():  # without what torch.compile notes there by itself
        return {
            name: text for name, text in os.environ.items() if not name.startswith("TORCHINDUCTOR_")
        }

    def put_environment(before):
        for name in environment().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)

    # {name: (function that reads the setting, function that sets it)}
    settings = {
        # with the state of the random numbers, below
        "torch's seed": (torch.initial_seed, lambda before: None),
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

    # Run the answer, and set again what is not as it was.
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
    """Raise `_TooLong` inside after so many seconds of computing, in the main thread, which
    alone hears signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum, frame):
        raise _TooLong

    handler = signal.signal(signal.SIGPROF, stop)
    remaining_s, _ = signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, remaining_s)  # a timer that ran before runs on
        signal.signal(signal.SIGPROF, handler)
