"""Disturb a measurement on purpose: with a noisy neighbour, or with a queue as GPUs have one."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from labkit.device import pool, supports_events, usable_cores, waiter
from labkit.errors import require_known

if TYPE_CHECKING:
    import torch

# A neighbour that wakes up now and then.
SLEEP_S = 10e-3
WORK_S = 4e-3
NOW_AND_THEN = f"""
import time
print(flush=True)
while True:
    time.sleep({SLEEP_S})
    end = time.perf_counter() + {WORK_S}
    while time.perf_counter() < end:
        pass
"""
ALWAYS = "print(flush=True)\nwhile True: pass"
KINDS = ("thread", "program", "busy programs")


@contextmanager
def neighbour(kind: str = "thread", *, count: int | None = None) -> Iterator[None]:
    """Run code beside a measurement that competes for the cores, while the `with` block runs.

    kind   "thread": a thread of this program that sleeps 10 ms and computes 4 ms, again and again.
           "program": a separate program that does the same. "busy programs": programs that never
           sleep
    count  number of threads or programs; None: two per core for "busy programs", else one
    """
    require_known(kind, KINDS, "neighbour")
    if count is None:
        count = 2 * usable_cores() if kind == "busy programs" else 1
    with ExitStack() as stack:
        for _ in range(count):
            if kind == "thread":
                stack.enter_context(_thread())
            else:
                stack.enter_context(_program(kind))
        yield


@contextmanager
def _thread():
    stop = threading.Event()

    def disturb():
        while not stop.wait(SLEEP_S):
            end = time.perf_counter() + WORK_S
            while time.perf_counter() < end:
                pass

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _program(kind):
    source = ALWAYS if kind == "busy programs" else NOW_AND_THEN
    program = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    try:
        program.stdout.readline()  # returns once the program runs
        yield
    finally:
        with suppress(ProcessLookupError):
            program.kill()
        program.communicate()


def queued(call: Callable, device: "torch.device") -> tuple[Callable, Callable]:
    """Return the functions (put_in, wait) of a queue of calls that a device works through.

    `put_in(*arguments)` puts `call(*arguments)` into the queue and returns at once. `wait()`
    returns when the queue is empty. A GPU has such a queue: `put_in` is then `call` itself. On a
    CPU, where a call returns when its work is done, a thread plays the GPU.

    call    the function; on a GPU one that starts kernels
    device  a `torch.device`
    """
    if supports_events(device):
        return call, waiter(device)
    queue = pool(1, "queue")  # works through its calls one by one

    def put_in(*arguments):
        queue.submit(call, *arguments)

    def wait():
        queue.submit(int).result()  # its turn comes when all before it are done

    return put_in, wait
