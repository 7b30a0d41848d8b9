"""Lets Ctrl-C and SIGTERM end a batch at its next step, and not amid one."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stoppable() -> Iterator[Callable[[], None]]:
    """Yield a function that raises when the batch was told to stop.

    Python drops an exception that a signal raises at a bad moment, such as amid an import: so the
    signal is noted only.
    """
    received: list[int] = []
    earlier_handlers = {}

    def go_on():
        if received:
            raise (
                KeyboardInterrupt if received[0] == signal.SIGINT else SystemExit(128 + received[0])
            )

    def note(number, frame):
        received.append(number)

    if threading.current_thread() is threading.main_thread():  # no other thread may set a handler
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                earlier_handlers[number] = signal.signal(number, note)
    try:
        yield go_on
    finally:
        for number, handler in earlier_handlers.items():
            signal.signal(number, handler)
