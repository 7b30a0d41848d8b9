"""Check the reader's answer to an exercise, and let the lesson go on whatever the answer does."""

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

# CPU time of one check, which other programs on a busy machine do not use up; a right answer needs
# a few seconds
LONGEST_S = 60
MAX_CHARACTERS = 4000  # of what an answer prints; the card shows the first 20 lines of them


class _TooLong(BaseException):
    """Raised in a reader's answer when its time is up.

    It is no `Exception`, so an `except Exception` in the answer does not catch it.
    """


class _BeginningOfOutput(io.StringIO):
    """A text that stores only its first `MAX_CHARACTERS` characters.

    Otherwise an answer that prints for ever would fill the memory.
    """

    def write(self, text):
        return super().write(text[: MAX_CHARACTERS - self.tell()])


def exercise(exercise_id: str) -> "Task":
    """Return an exercise as a `Task`, whose methods are `show()`, `check(answer)` and `hint()`.

    exercise_id  the id, such as "median-latency"
    Raises       LabError for an unknown id
    """
    return Task(exercises.find(exercise_id))


@dataclass(frozen=True)
class Task:
    """An exercise in a notebook, which shows what to write and checks the reader's answer."""

    exercise: exercises.Exercise

    def show(self):
        """Show what to write, with the difficulty, the importance and the minutes it takes."""
        cards.show("task", self.exercise)

    def check(self, answer):
        """Check the reader's answer, show the verdict, and return the answer for later cells.

        answer   a function, a class or a value; for a script, the path of its file
        returns  the answer itself if it passes, or if it cannot be checked in a student edition.
                 Otherwise the reference answer; for a script, the path of a file with the reference
        Raises   LessonError where the answer does not pass in a student edition, which has no
                 reference
        """
        if self._is_script(answer):
            return self._check_script(Path(answer))
        if self._judge(answer) in ("passed", "not checked"):
            return answer
        return self.exercise.stand_in()

    def _is_script(self, answer):
        """Return whether the exercise asks for a script.

        The type of the reference decides. A student edition has no reference; there an answer
        counts as a script if it is a path that ends in .py.
        """
        if self.exercise.reference is None:
            return isinstance(answer, str | Path) and Path(answer).suffix == ".py"
        return isinstance(self.exercise.reference, exercises.Script)

    def _check_script(self, path):
        """Check the script in a file, and return the path of the script for later cells to run.

        This is the reader's file if the script passes. Otherwise the reference is written to a file
        beside it, and the path of this file is returned.
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
        """Check the answer, store and show the verdict, and return it ("passed", for example)."""
        with _output_captured() as printed:
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
        """Show the idea, without the code."""
        cards.show("hint", self.exercise)

    def solution(self):
        """Print the reference answer."""
        print(self.exercise.solution or "This is a student edition: it has no solutions.")


def verdict_on(make, verify):
    """Judge an answer, and undo the settings that it changed in the whole process.

    make     function without arguments that returns the answer, or raises
    verify   function (answer) that raises `Wrong` when the answer does not pass
    returns  (verdict, message to the reader). The verdict is "passed", "wrong", "unsolved" (not
             written yet) or "not checked"; the message may be ""
    """
    with _settings_restored() as changed:
        verdict, message = _verdict_on(make, verify)
    if changed:
        note = (
            f"Your answer changed {', '.join(changed)} for the whole notebook; the "
            "check put it back."
        )
        message = f"{message or 'It passes.'} {note}"
    return verdict, message


def _verdict_on(make, verify):
    """Judge an answer. Returns (verdict, message), as `verdict_on` does.

    Settings that the answer changed are not undone. A wrong answer counts as "unsolved" if one of
    its functions is not written to its end.
    """
    verdict, message, answer = _make_and_verify(make, verify)
    stub = exercises.unwritten(answer) if verdict == "wrong" else None
    if stub is None:
        return verdict, message
    return "unsolved", f"Your code is still missing in {stub}."


def _make_and_verify(make, verify):
    """Make an answer and verify it. Returns (verdict, message, answer).

    The answer is None if `make` raised. An exception of the answer is not raised further: it
    becomes a verdict and a message.
    """
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
        # an answer raises NotImplementedError without a message; torch's own has one
        if isinstance(error, NotImplementedError) and not error.args:
            return "unsolved", "Not written yet.", answer
        description = "".join(traceback.format_exception_only(error)).strip().removesuffix(":")
        return "wrong", f"Your answer raised {description}{_line(error)}", answer
    return "passed", "", answer


def _line(error):
    """Return the line of the reader's code that raised: ", in line 3: return x + y"; else ""."""
    innermost = None
    for frame, line_number in traceback.walk_tb(error.__traceback__):
        if frame.f_globals["__name__"] == "__main__":
            innermost = frame.f_code.co_filename, line_number
    if innermost is None:
        return ""
    file_name, line_number = innermost
    return f", in line {line_number}: {linecache.getline(file_name, line_number).strip()}"


@contextlib.contextmanager
def _output_captured():
    """Capture what the `with` block prints, and yield it as a `_BeginningOfOutput`.

    This holds for Python's `sys.stdout` and `sys.stderr`. What other code writes to the file
    descriptors 1 and 2, such as a C library, is dropped.
    """
    printed = _BeginningOfOutput()
    copies = (os.dup(1), os.dup(2))  # stdout and stderr, to be restored
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
def _settings_restored():
    """Restore settings of the process that the `with` block changed, such as random states.

    Yields a list, which gets the names of the changed settings at the end of the block.
    """
    import numpy as np
    import torch

    def environment():  # torch.compile sets variables of its own, which do not count
        return {
            name: text for name, text in os.environ.items() if not name.startswith("TORCHINDUCTOR_")
        }

    def put_environment(before):
        for name in environment().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)

    # {name: (function that reads the setting, function that sets it)}
    settings = {
        # only noted here: `fork_rng` below restores the seed with the generator's state
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
    """Raise `_TooLong` in the `with` block after `seconds` seconds of CPU time of the process.

    Outside the main thread there is no limit, because only the main thread gets signals.
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
