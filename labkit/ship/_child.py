"""A forked process that works with a stranger's file, confined; its parent asks pictures over a pipe, and waits no
longer than it wants to.

What comes back is a length and bytes: JSON, or float32 numbers. It is never unpickled, and never longer than allowed.
"""

import contextlib
import json
import os
import signal
from functools import partial
from multiprocessing.connection import Pipe
from pathlib import Path

import numpy as np

from labkit.errors import LabError
from labkit.measure.noise import waited_s
from labkit.ship import confine
from labkit.ship.order import CLASSES, SHAPE

MOST_WORDS = 4_000  # bytes of what a child may say in words


class Refused(LabError):
    """What a child did, or did not do, in words for the one who handed it in."""


class Child:
    """A process apart. `work(serve, folder)` runs there, confined; here are its other end and its clock.

    work      `serve(answer)` asks the function `answer` for pictures until there are no more
    folder    the only one it may write
    readable  other files it may read
    cpu_s     most seconds of computing
    """

    def __init__(self, work, folder, *, readable=(), cpu_s=120):
        (theirs, self.asks), (self.hears, says) = Pipe(duplex=False), Pipe(duplex=False)
        self.pid = os.fork()
        if self.pid == 0:
            _live(work, Path(folder), (theirs, says), readable, cpu_s)
        theirs.close()
        says.close()

    def words(self, seconds):
        """What it says next, as a dict; Refused when it says that it failed, ends, or takes longer."""
        found = json.loads(self._next(seconds, MOST_WORDS))
        if "refused" in found:
            raise Refused(found["refused"])
        return found

    def answer(self, pictures, seconds):
        """(N, 1, 28, 28) float32 -> ((N, 10) float32, whether its last answer changed after it was handed over)."""
        try:
            with _within(seconds):
                self.asks.send_bytes(pictures.tobytes())
        except OSError:  # it reads no more: what it said last tells why
            seconds = 1
        expected = 2 + 4 * CLASSES * len(pictures)
        data = self._next(seconds, max(expected, MOST_WORDS))
        if data[:1] != b"A":
            raise Refused(json.loads(data).get("refused", "It said something that is no answer."))
        if len(data) != expected:
            rows = (len(data) - 2) / 4 / CLASSES
            raise Refused(f"A batch is answered in part: {len(pictures)} pictures, {rows:g} answers.")
        return np.frombuffer(data, np.float32, offset=2).reshape(-1, CLASSES), data[1:2] == b"!"

    def _next(self, seconds, most):
        try:
            with _within(seconds):
                return self.hears.recv_bytes(most)
        except TimeoutError:
            raise Refused(f"It did not answer within {seconds:g} s.") from None
        except (EOFError, OSError) as error:
            raise Refused(f"Its process ended ({self.end() or error}).") from None

    def waited(self):
        """Seconds for which it was ready to run and had no core; 0 where the system does not tell."""
        return waited_s(self.pid) or 0.0

    def computed(self):
        """Seconds that all its threads have computed."""
        import psutil

        with contextlib.suppress(psutil.Error):
            return sum(psutil.Process(self.pid).cpu_times()[:2])  # user, system
        return 0.0

    def end(self):
        """Kill it, with what it started; returns how it had ended before, in words, or None."""
        if self.pid is None:
            return None
        with contextlib.suppress(ChildProcessError):
            done, status = os.waitpid(self.pid, os.WNOHANG)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        if not done:
            os.waitpid(self.pid, 0)
        self.pid = None
        code = os.waitstatus_to_exitcode(status) if done else None
        return code if code is None else f"signal {-code}" if code < 0 else f"exit status {code}"


@contextlib.contextmanager
def _within(seconds):
    """Raise TimeoutError inside after so many seconds."""

    def late(signum, frame):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _live(work, folder, pipes, readable, cpu_s):
    """The life of a child, which never returns. `pipes`: where it is asked, and where it answers."""
    try:
        os.setsid()
        quiet, first, last = os.open(os.devnull, os.O_RDWR), *sorted(pipe.fileno() for pipe in pipes)
        for number in (0, 1, 2):
            os.dup2(quiet, number)
        for begin, end in ((3, first), (first + 1, last), (last + 1, 4096)):  # above all where the judge writes results
            os.closerange(begin, end)
        for name in ("HOME", "TMPDIR", "LABKIT_ARTIFACTS", "XDG_CACHE_HOME"):
            os.environ[name] = str(folder)
        tried = []
        found = confine.confine(folder, cpu_s=cpu_s, readable=readable, tell=tried.append)
        serve = partial(_serve, *pipes, [protection for protection, there in found.items() if there])
        with np.errstate(all="ignore"):
            _work(partial(work, serve, folder), pipes[1], tried)
    finally:
        os._exit(0)


def _work(work, says, tried):
    """Do the work; what goes wrong is said in words."""
    try:
        said, problem = work(), None
    except Refused as error:
        problem = error.what
    except BaseException as error:
        problem = f"It raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if tried:
        problem = f"It tried to {tried[0]}."
    says.send_bytes(json.dumps({"refused": problem[:900]} if problem else said).encode())


def serving(path, engine, precision):
    """The work of a child that answers with an engine of the course, or ("meaning") with the file run as written."""

    def load(folder):
        import torch

        from labkit import engines
        from labkit.export import session
        from labkit.export.runtime import answers

        if engine == "meaning":
            opened = session(path, "none", threads=1)
            return lambda pictures: answers(opened, pictures)[0]
        example = torch.zeros(1, *SHAPE)
        served = engines.get(engine).load(path, example, precision=precision, threads=1)
        return lambda pictures: np.ascontiguousarray(served(torch.from_numpy(pictures)).numpy(), np.float32)

    return lambda serve, folder: serve(load(folder))


def own(source, path):
    """The work of a child that answers with the `serve` of a submission's source."""

    return lambda serve, folder: serve(_function(source, "serve")(Path(path)))


def making(source):
    """The work of a child that runs the `make` of a submission's source, and says which engine it wants."""

    def work(serve, folder):
        engine = _function(source, "make")(folder)
        if not isinstance(engine, str) or not (folder / "model.onnx").is_file():
            raise Refused("`make` must write model.onnx into its folder and return the engine's name.")
        return {"engine": engine[:60]}

    return work


def _function(source, name):
    space = {"__name__": "submission"}
    exec(compile(Path(source).read_text(encoding="utf-8"), "submission.py", "exec"), space)
    if not callable(space.get(name)):
        raise Refused(f"The source defines no function `{name}`.")
    return space[name]


def _serve(asked, says, in_force, answer):
    """Answer pictures until there are no more. An answer is finished numbers: what changes later is told."""
    says.send_bytes(json.dumps({"ready": True, "in force": in_force}).encode())
    found, sent = np.zeros(0, np.float32), b""
    while True:
        data = asked.recv_bytes()
        late = found.tobytes() != sent
        found = answer(np.frombuffer(data, np.float32).reshape(-1, *SHAPE).copy())
        if type(found) is not np.ndarray or found.dtype != np.float32:
            kind = type(found).__name__
            raise Refused(
                f"It answers with {kind}, not with finished float32 numbers: work still to come is not timed."
            )
        sent = found.tobytes()
        says.send_bytes(b"A" + (b"!" if late else b"-") + sent)
