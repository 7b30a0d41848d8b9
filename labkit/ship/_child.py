"""The process in which one submission is opened, checked and served, or trained.

Of a file, the parent holds the clock and the labels.
Bytes go over the pipe: pictures there, and back either numbers or a line of words. The parent unpickles nothing, and
bounds how long it waits and how much it reads. The child has limits of memory (see `labkit.export.inspection`) and of
computing time. A file could still use a hole in the library that reads it: against that a container would help.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import psutil

from labkit.errors import LabError
from labkit.measure.noise import computed_s
from labkit.ship import gates
from labkit.ship.order import CLASSES, SHAPE

START_S, LOAD_S, ANSWER_S = 120, 50, 10  # how long the parent waits: for the process, the file, an answer
COMPUTE_S = 300  # of one child in all
MOST_WORDS = 4_000  # bytes
ANSWER, ENGINE, AS_WRITTEN = b"A", b"E", b"W"  # how a message begins
# Where it is safe, all children are forks of one process that has imported what takes long.
PROCESSES = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
PRELOADED = ["torch", "onnxruntime", "labkit.engines.fidelity", "labkit.export.inspection", __name__]
PROCESSES.set_forkserver_preload(PRELOADED)


class Child:
    """The parent's end of a process of its own: what it says is bounded in time and in bytes."""

    def __init__(self, serve, compute_s):
        """serve(pipe) is what the process does, for at most `compute_s` seconds of computing."""
        self.pipe, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=_live, args=(theirs, serve, compute_s), daemon=True)
        self.process.start()
        theirs.close()

    def said(self, seconds):
        """Its next line of words, as {str: str}. LabError when it refuses, ends, or says nothing in so many seconds."""
        return _words(self._next(seconds))

    def _next(self, seconds, most=0):
        """The bytes of the next message, at most `most` or those of a line of words."""
        try:
            if not self.pipe.poll(seconds):
                raise LabError(f"It did not answer within {seconds} s.")
            return self.pipe.recv_bytes(max(1 + most, MOST_WORDS))
        except (EOFError, OSError) as error:
            self.process.join(1)
            raise LabError("Its process ended.", found=f"exit code {self.process.exitcode}") from error

    def computed(self, seconds=1.0):
        """Seconds that it has computed so far, by the kernel's clock; None where the system does not tell (not Linux).

        The kernel counts when a thread goes to sleep. So this waits until it does, at most so many seconds.
        """
        end = time.monotonic() + seconds
        with contextlib.suppress(psutil.Error):  # it has ended
            process = psutil.Process(self.process.pid)
            while process.status() == psutil.STATUS_RUNNING and time.monotonic() < end:
                time.sleep(1e-4)
        return computed_s(self.process.pid)

    def close(self):
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Server(Child):
    """Asks a file that is served by an engine."""

    def __init__(self):
        super().__init__(_serve, COMPUTE_S)

    def load(self, path, engine):
        """Let it check and load a file: what the file is stored in, such as "int8". LabError when it is refused."""
        self.said(START_S)
        self.pipe.send_bytes(json.dumps([str(path), engine]).encode())
        return self.said(LOAD_S).get("precision", "")

    def answer(self, pictures, *, as_written=False):
        """(N, 1, 28, 28) float32 -> (N, 10) float32, by the engine, or (`as_written`) by the file's own operators."""
        with contextlib.suppress(OSError):  # it reads no more: what it said last tells why
            self.pipe.send_bytes((AS_WRITTEN if as_written else ENGINE) + pictures.tobytes())
        data = self._next(ANSWER_S, 4 * CLASSES * len(pictures))
        if not data.startswith(ANSWER):
            _words(data)
        numbers = np.frombuffer(data[1:], np.float32)
        if len(numbers) != CLASSES * len(pictures):
            found = f"{len(pictures)} pictures, {len(numbers) / CLASSES:g} answers"
            raise LabError("A batch is answered in part:", found=found)
        return numbers.reshape(-1, CLASSES)


def _words(data):
    """A line of words as {str: str}. LabError when it says why the file is refused, or has another form."""
    try:
        said = json.loads(data)
        if not all(isinstance(text, str) for text in said.values()):
            raise ValueError(data)
    except (ValueError, AttributeError, RecursionError) as error:
        raise LabError("Its process said something that is no answer.") from error
    if "refused" in said:
        raise LabError(said["refused"])
    return said


def reason_of(error):
    """Why something failed, in one line."""
    text = f"It raised {type(error).__name__}: {error}"
    if isinstance(error, LabError):
        text = f"{error.what} {error.found or ''}"
    return " ".join(text.split())[:500]


def _live(pipe, serve, compute_s):
    """The life of a child: serve until the pipe ends. What goes wrong is said in words."""
    from labkit.export.inspection import limit_computing

    limit_computing(compute_s)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        serve(pipe)
    except EOFError:
        return
    except Exception as error:
        pipe.send_bytes(json.dumps({"refused": reason_of(error)}).encode())


def _serve(pipe):
    """Say that this process is ready, check and load the file that is named then, and answer pictures for ever."""
    import torch

    from labkit import engines, export
    from labkit.export.gate import parsed
    from labkit.export.inspection import inspect
    from labkit.export.runtime import answers

    pipe.send_bytes(b"{}")
    path, engine = json.loads(pipe.recv_bytes())
    path = Path(path)
    served_by = engines.get(engine)
    gates.require_plain(parsed(path))
    inspect(path)
    precision = export.precision_of(parsed(path))
    if precision not in served_by.PRECISIONS:
        raise LabError(f"The engine {engine} does not run {precision}.")
    torch.set_num_threads(1)
    served = served_by.load(path, torch.zeros(1, *SHAPE), precision=precision, threads=1)
    as_written = export.session(path, "none", threads=1)
    pipe.send_bytes(json.dumps({"precision": precision}).encode())
    while True:
        asked = pipe.recv_bytes()
        pictures = np.frombuffer(asked[1:], np.float32).reshape(-1, *SHAPE).copy()
        if asked.startswith(AS_WRITTEN):
            found = answers(as_written, pictures)[0]
        else:
            found = served(torch.from_numpy(pictures)).numpy()
        pipe.send_bytes(ANSWER + np.ascontiguousarray(found, np.float32).tobytes())
