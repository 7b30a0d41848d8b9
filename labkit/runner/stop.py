"""Let Ctrl-C and SIGTERM stop a batch only between two steps of its loop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stoppable() -> Iterator[Callable[[], None]]:
    """Yield a function to call between steps. It raises if the user has stopped the batch.

    When Ctrl-C or SIGTERM arrives, the signal is only recorded. The next call of the function then
    raises KeyboardInterrupt or SystemExit. An exception raised right when the signal arrives could
    get lost: Python drops it in the middle of an import, for example.
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
