"""Ctrl-C at a point of the program's choice.

A KeyboardInterrupt that is raised inside a client library can leave its locks and tasks in a state in which closing the
client waits forever.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Raise the KeyboardInterrupt of a Ctrl-C in this block at the end of the block; of a second one, immediately.

    Outside the main thread, which alone receives signals, and where SIGINT has another handler, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGINT)
    if previous is not signal.default_int_handler:
        yield
        return
    interrupted = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if interrupted:
        raise KeyboardInterrupt
